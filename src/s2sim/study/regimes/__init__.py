"""Which reducer wins where: maps over density, overlap, rate and latency."""
