"""Replay of scripts on a simulated cluster."""
