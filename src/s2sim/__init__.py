"""s2sim: would a gradient compressor make training faster on this cluster, by how much, why, and at what cost?"""

from __future__ import annotations

__version__ = "0.1.0"
