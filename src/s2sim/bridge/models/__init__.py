"""Models to record gradients from, one a file."""
