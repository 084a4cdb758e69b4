"""Optional: recording gradient traces from PyTorch."""
