"""Cluster descriptions and the hardware catalogue as files."""
