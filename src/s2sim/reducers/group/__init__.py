"""Ranks in memory: their programs, their groups, and how what they post combines."""
