"""Predictions compared with measurements, and constants fitted to them."""
