"""Time for bytes on a topology."""
