"""One experiment as a value: run it, sweep it, find where it breaks even."""
