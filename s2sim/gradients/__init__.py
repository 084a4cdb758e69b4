"""Gradients: what they are in memory, traces of real ones, and their statistics."""
