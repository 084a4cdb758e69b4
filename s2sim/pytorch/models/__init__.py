"""The models that traces are recorded from."""
