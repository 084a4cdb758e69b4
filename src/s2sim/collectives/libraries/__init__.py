"""Communication libraries: what is asked of one, and what it executes for it."""
