"""Sweeps: thousands of questions at once, on one machine or many, in a store that loses nothing."""
