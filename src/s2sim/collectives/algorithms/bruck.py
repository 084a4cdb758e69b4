"""Bruck's all-gather: as few rounds as there can be, for any number of ranks.

Source: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient Algorithms for All-to-All Communications in
Multiport Message-Passing Systems", IEEE Transactions on Parallel and Distributed Systems 8(11), 1997.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.collectives.algorithms.over_groups import OverGroups
from s2sim.collectives.schedules.chunk_moves import Move, Pairs, mirrored, own_chunks, stage_of_moves
from s2sim.collectives.schedules.doubling import distances_below, require_one_way

if TYPE_CHECKING:
    from s2sim.collectives.kinds import Kind
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.groups import Groups
    from s2sim.collectives.schedules.hops import Hops
    from s2sim.collectives.schedules.schedule import Stage


@dataclass(frozen=True, slots=True)
class Bruck(OverGroups):
    """All-gather in ceil(log2 P) rounds for any P, each sending as much as all before it.

    In round j, j = 0, 1, ..., rank i has the contributions of ranks i to i + 2^j - 1 modulo P and sends the first
    min(2^j, P - 2^j) of them to rank i - 2^j. All ranks together send (P - 1)·D bytes, D the sum of contributions.
    Turning a rank's buffer so that its own contribution comes first, and back, costs no time here.

    A reduce-scatter is the same backwards. A barrier is the same without bytes: the dissemination barrier (D. Hensgen,
    R. Finkel, U. Manber, Int. J. Parallel Programming 17(1), 1988), in the other direction around.
    """

    name: ClassVar[str] = "bruck"
    source: ClassVar[str] = "Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE Trans. Parallel Distrib. Syst. 8(11), 1997"
    kinds: ClassVar[tuple[str, ...]] = ("all_gather", "reduce_scatter", "barrier")
    auto: ClassVar[tuple[str, ...]] = ("barrier",)

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        """Return the rounds in which each group does ``kind`` on its part."""
        member = np.arange(groups.members)
        moves = [
            Move(Pairs(member, (member - distance) % groups.members), member, min(distance, groups.members - distance))
            for distance in distances_below(groups.members)
        ]
        if kind == "reduce_scatter":
            moves = mirrored(moves)
        return stage_of_moves(groups.ranks, own_chunks(groups), moves)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time where messages share nothing and all ways are alike.

        Round j takes L + b/B, b the most that min(2^j, P - 2^j) ranks in a row contribute; ceil(log2 P)·L + (P-1)/P·D/B
        for equal contributions, ceil(log2 P)·L for a barrier.
        """
        require_one_way(self.name, hops)
        sizes = demand.sizes_bytes
        around = np.concatenate([[0.0], np.cumsum(np.tile(sizes, 2))])
        total = 0.0
        for distance in distances_below(demand.ranks):
            count = min(distance, demand.ranks - distance)
            total += hops.round_s(float((around[count:] - around[:-count]).max()))
        return total
