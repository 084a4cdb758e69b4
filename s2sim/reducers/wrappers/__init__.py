"""What may be put around any reducer: error feedback, and a later step."""
