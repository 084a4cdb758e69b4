"""Binomial trees from or to a root (Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.collectives.algorithms.over_groups import OverGroups
from s2sim.collectives.schedules.chunk_moves import Move, Pairs, mirrored, stage_of_moves, whole_part
from s2sim.collectives.schedules.doubling import require_one_way

if TYPE_CHECKING:
    from s2sim.collectives.kinds import Kind
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.groups import Groups
    from s2sim.collectives.schedules.hops import Hops
    from s2sim.collectives.schedules.schedule import Stage


@dataclass(frozen=True, slots=True)
class Binomial(OverGroups):
    """Whole buffers down or up a binomial tree: as few rounds as there can be, for small messages.

    With ranks counted from the root on, a broadcast sends in each round from every rank that has the buffer to the one
    at half the distance of the round before, from the first power of two below P on down to 1. A reduce is the same
    backwards. All ranks together send (P - 1)·D bytes.
    """

    name: ClassVar[str] = "binomial"
    source: ClassVar[str] = "Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19(1), 2005"
    kinds: ClassVar[tuple[str, ...]] = ("broadcast", "reduce")
    auto: ClassVar[tuple[str, ...]] = ("broadcast", "reduce")

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        """Return the rounds in which each group does ``kind`` on its part, from or to its first member."""
        moves = []
        for j in reversed(range((groups.members - 1).bit_length())):
            source = np.arange(0, groups.members - 2**j, 2 ** (j + 1))
            moves.append(Move(Pairs(source, source + 2**j), np.zeros(len(source), np.int64), 1))
        return stage_of_moves(groups.ranks, whole_part(groups), moves if kind == "broadcast" else mirrored(moves))

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time where messages share nothing and all ways are alike: ceil(log2 P)·(L + D/B)."""
        require_one_way(self.name, hops)
        return (demand.ranks - 1).bit_length() * hops.round_s(float(demand.buffer_bytes))
