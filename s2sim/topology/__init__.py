"""The graph of a cluster as arrays: builders, hardware catalogue, routing."""
