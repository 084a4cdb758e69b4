"""The packet network: the reference, for tens of ranks."""
