"""Traces on disk: format, reading, writing, import, and those that are synthetic or shipped."""
