"""The same transfers in both networks, and how far apart these are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.study.json_form import JsonForm
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class CrossCheck(JsonForm):
    """What the network that was not asked for makes of the transfers, in float64 arrays of shape (n,).

    Attributes
    ----------
    packet_bytes : int
        Bytes of a packet in the one that has packets.
    finish_s : array
        When each transfer is delivered in it, in seconds from time 0.
    fill_s : array
        What store and forward adds to each transfer alone, in seconds.
    difference : array
        The time of each as packets, less its fill, over its time as a fluid, less 1.
    """

    more_json: ClassVar[tuple[str, ...]] = ("largest_difference", "median_difference", "note")

    other: str
    packet_bytes: int
    finish_s: Floats
    fill_s: Floats
    difference: Floats

    @property
    def largest_difference(self) -> float:
        """Largest difference, without its sign."""
        return float(np.abs(self.difference).max(initial=0.0))

    @property
    def median_difference(self) -> float:
        """Median of the differences, without their signs."""
        return float(np.median(np.abs(self.difference))) if len(self.difference) else 0.0

    @property
    def note(self) -> str:
        """What the differences are."""
        return (
            "difference = (time as packets - fill) / time as a fluid - 1; finish_s holds the fill where the "
            "other network is packet"
        )


def compare_networks(
    other: str, packet_bytes: int, start_ps: Ints, finish_ps: dict[str, Ints], fill_ps: Ints
) -> CrossCheck:
    """Return how far apart the finish times of the two networks are, given by network, int64 arrays of shape (n,).

    ``fill_ps`` is what store and forward adds to each transfer alone.
    """
    fluid_ps = finish_ps["fluid"] - start_ps
    packets_ps = finish_ps["packet"] - fill_ps - start_ps
    return CrossCheck(
        other=other,
        packet_bytes=packet_bytes,
        finish_s=finish_ps[other] / PS_PER_S,
        fill_s=fill_ps / PS_PER_S,
        difference=(packets_ps - fluid_ps) / np.maximum(fluid_ps, 1),
    )
