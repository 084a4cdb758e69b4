"""Tables and texts, for terminals, files and notebooks."""
