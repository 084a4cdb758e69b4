"""Everything at once: one round of all messages, as NCCL runs grouped sends and receives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.collectives.doubling import require_one_way
from s2sim.collectives.groups import schedule_of
from s2sim.collectives.pairwise import block_bytes, block_pieces
from s2sim.collectives.schedule import Pattern, Pieces, Round, Stage, Step
from s2sim.errors import OptionError
from s2sim.units import format_bytes

if TYPE_CHECKING:
    from s2sim.collectives.demand import Demand
    from s2sim.collectives.hops import Hops
    from s2sim.collectives.schedule import Schedule
    from s2sim.topology.cluster import Cluster

_MOST_PAIRS = 2**21
# Memory that routes and sharing of one pair take, measured on a two-level fat tree with four links a way.
_PAIR_BYTES = 750


@dataclass(frozen=True, slots=True)
class Spread:
    """All messages in one round: they share every port, and the fluid network divides it."""

    name: ClassVar[str] = "spread"
    source: ClassVar[str] = "NVIDIA, NCCL user guide, point-to-point communication: grouped sends and receives"
    kinds: ClassVar[tuple[str, ...]] = ("all_to_all", "send_recv")
    auto: ClassVar[tuple[str, ...]] = ("all_to_all", "send_recv")

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:  # noqa: ARG002  (a tree needs it)
        """Return the schedule: each rank sends its stretch to the next, or each of its blocks to its owner."""
        return schedule_of(demand, self.name, _shift(demand) if demand.kind == "send_recv" else _exchange(demand))

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time where every pair has links of its own: L + b/B, b the largest message.

        On any fabric where a rank has one port, the blocks of an all_to_all share it and this form does not hold.
        """
        if demand.ranks == 1:
            return 0.0
        if len(set(demand.elements)) > 1:
            require_one_way(self.name, hops)
        most_bytes = float(max(demand.elements)) * demand.itemsize
        return hops.round_s(most_bytes if demand.kind == "send_recv" else most_bytes / demand.ranks)


def _shift(demand: Demand) -> Stage:
    """Return the round in which each rank sends its whole stretch to the next."""
    source = np.arange(demand.ranks)
    begin, end = demand.stretches()
    pattern = Pattern(source, (source + 1) % demand.ranks)
    step = Step(Round(pattern, ((end - begin) * demand.itemsize).astype(np.float64)))
    return Stage((step,), lambda _step, _time: Pieces(source, begin, end, np.zeros(demand.ranks, bool)))


def _exchange(demand: Demand) -> Stage:
    """Return the round in which each rank sends a block to every other, from the next rank on."""
    ranks = demand.ranks
    pairs = ranks * (ranks - 1)
    if pairs > _MOST_PAIRS:
        raise OptionError(
            f"spread sends {pairs} messages at once between {ranks} ranks, which takes about "
            f"{format_bytes(pairs * _PAIR_BYTES)} of memory, and at most {_MOST_PAIRS} are run: take pairwise"
        )
    source = np.repeat(np.arange(ranks), ranks - 1)
    target = (source + np.tile(np.arange(1, ranks), ranks)) % ranks
    step = Step(Round(Pattern(source, target), block_bytes(demand)[source]))
    return Stage((step,), lambda _step, _time: block_pieces(demand, source, target))
