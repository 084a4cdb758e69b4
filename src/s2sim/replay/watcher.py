"""What a replay tells whoever watches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from s2sim.arrays import Floats
    from s2sim.collectives.timing.running import RanRound


class Watcher(Protocol):
    """Told of all that happens in simulated time; a replay that is watched runs message by message."""

    def add_round(self, ran: RanRound, what: str) -> None:
        """Take note of a round that has been delivered; ``what`` names the collective."""

    def add_work(self, rank: int, name: str, category: str, start_ps: int, end_ps: int) -> None:
        """Take note of something that a rank did."""

    def add_loads(self, now_ps: int, loads_Bps: Floats) -> None:
        """Take note of what every link carries from now on, float64 bytes per second of shape (links,)."""
