"""Schedules as data: what they are made of, and the checker that runs them on values."""
