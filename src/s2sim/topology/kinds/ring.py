"""Rings: a torus of one dimension, whose links have names of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from s2sim.topology.kinds.layout import Kind
from s2sim.topology.kinds.torus import Torus
from s2sim.units import format_rate


@dataclass(frozen=True, slots=True)
class Ring(Torus):
    """A stop a node; two nodes have two cables."""

    usual_dimensions: ClassVar[int] = 1
    least_both_ways: ClassVar[int] = 2
    link_class: ClassVar[str] = "ring"

    def way_name(self, dimension: int, step: int) -> str:
        """Return what the links of one direction are called."""
        return "clockwise" if step > 0 else "counterclockwise"

    def words(self, oversubscription: float | None) -> list[str]:
        """Return the rate."""
        return [f"ring links of {format_rate(self.shape.link.rate_Bps)}"]

    def counts(self) -> dict[str, Any]:
        """Return nothing: a ring is described by its nodes."""
        return {}


RING = Kind(Ring, host_cable=False)
