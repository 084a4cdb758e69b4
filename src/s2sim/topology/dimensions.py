"""How many of everything a shape needs for a number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.topology.kinds import lay_out
from s2sim.topology.kinds.layout import Dimensions

if TYPE_CHECKING:
    from s2sim.topology.shape import ClusterShape

__all__ = ["Dimensions", "dimensions"]


def dimensions(shape: ClusterShape, workers: int) -> Dimensions:
    """Return the counts of the smallest cluster of this shape that holds ``workers`` GPUs."""
    return lay_out(shape, workers).dims
