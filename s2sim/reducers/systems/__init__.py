"""The reducers themselves, one published system a file."""
