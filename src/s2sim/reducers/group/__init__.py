"""Ranks in memory: their programs in lock-step, and how what they post combines."""
