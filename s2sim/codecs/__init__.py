"""Arrays to wire bytes and back, in pure NumPy."""
