"""Scripts, and what can be counted in one without a cluster: rounds, and bytes on the wire."""
