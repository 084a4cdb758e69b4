"""One collective on one cluster."""
