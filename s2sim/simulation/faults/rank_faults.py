"""Ranks that are slower than others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.errors import OptionError
from s2sim.options import Time
from s2sim.simulation.faults.fault import Effect, Fault
from s2sim.topology.cluster import Cluster
from s2sim.units import PS_PER_S, format_seconds


def straggler_delays(faults: Sequence[Fault], ranks: int) -> tuple[Floats, Ints]:
    """Return how much longer the GPU work of each rank takes, and by how many picoseconds each comes later."""
    factors, late_ps = np.ones(ranks), np.zeros(ranks, np.int64)
    for fault in faults:
        fault.hold_back(factors, late_ps)
    return factors, late_ps


def arrivals_ps(faults: Sequence[Fault], ranks: int, where: str) -> Ints:
    """Return each rank's delay, int64 picoseconds; `OptionError` for slow GPU work, which ``where`` has none of."""
    for fault in faults:
        if (straggler_delays([fault], ranks)[0] > 1).any():
            raise OptionError(
                f"{fault.text} slows GPU work, and {where} has none: give delay= for a rank that comes late"
            )
    return straggler_delays(faults, ranks)[1]


@dataclass(frozen=True, slots=True)
class SlowRank(Fault):
    """A rank whose GPU work takes a factor longer, or that comes later by a delay."""

    name: ClassVar[str] = "slow-rank"
    example: ClassVar[str] = "slow-rank:rank=3,delay=1ms"
    on_network: ClassVar[bool] = False

    rank: int
    factor: float | None = None
    delay: Time | None = None

    def __post_init__(self) -> None:
        if (self.factor is None) == (self.delay is None):
            raise OptionError("slow-rank: give either factor=, for its GPU work, or delay=, for coming late")
        if self.rank < 0:
            raise OptionError(f"slow-rank: rank={self.rank} must not be negative")
        if self.factor is not None and not 1 < self.factor < float("inf"):
            raise OptionError(f"slow-rank: factor={self.factor} of the time of its work must be more than 1")
        if self.delay is not None and self.delay.ps == 0:
            raise OptionError(f"slow-rank: delay={self.delay} delays nothing: leave it out")

    def check(self, cluster: Cluster) -> None:
        """Raise the error for a rank that the cluster does not have."""
        if self.rank >= cluster.workers:
            raise OptionError(f"{self.text}: there are {cluster.workers} ranks, from 0 on")

    def hold_back(self, factors: Floats, late_ps: Ints) -> None:
        """Slow the rank's work, or let it come late."""
        if self.factor is not None:
            factors[self.rank] *= self.factor
        if self.delay is not None:
            late_ps[self.rank] += self.delay.ps

    def effect_on_work(self, *, works: bool) -> Effect:
        """Return what happened to the rank: one that has no work cannot be slow at it."""
        if self.factor is None:
            return Effect(self.text, f"it came {self.delay} late", nothing=False)
        did = f"its work took {self.factor:g} times as long" if works else "it has no work"
        return Effect(self.text, did, nothing=not works)

    def effect_on_collective(self, ends_ps: Ints, without_ps: Ints) -> Effect:
        """Return by how much later the last rank ended: one that nobody waits for changes nothing."""
        if np.array_equal(ends_ps, without_ps):
            return Effect(self.text, f"rank {self.rank} came {self.delay} late, and nobody ended later", nothing=True)
        later = format_seconds((int(ends_ps.max()) - int(without_ps.max())) / PS_PER_S)
        others = int(np.count_nonzero(ends_ps > without_ps))
        did = f"rank {self.rank} came {self.delay} late: {others:,} ranks ended later, the last one by {later}"
        return Effect(self.text, did, nothing=False)

    def effect_on_transfers(self, src: Ints) -> Effect:
        """Return how many transfers it starts."""
        count = int(np.count_nonzero(src == self.rank))
        return Effect(self.text, f"{count:,} transfers start later", count == 0)
