"""The algorithms, one a file, each with its closed form beside it."""
