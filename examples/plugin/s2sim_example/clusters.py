"""The paths of cluster files in this package, one for each entry point."""

from pathlib import Path

CABLE_RING = Path(__file__).with_name("cable_ring.toml")
