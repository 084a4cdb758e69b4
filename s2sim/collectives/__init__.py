"""Collective schedules as data, their closed forms, and the checker that runs them on values."""
