"""Experiments with everything that they name resolved: what all studies take."""
