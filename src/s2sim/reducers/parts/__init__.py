"""Gradients and groups of ranks in parts: shards of nodes, layers by name, and programs that run side by side."""
