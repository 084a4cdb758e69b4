"""Unpipelined binary tree: whole buffers up to a root and down again, one level a round."""

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
class BinaryTree(OverGroups):
    """A complete binary tree over ranks counted from the root on: rank i has the children 2i + 1 and 2i + 2.

    A parent receives from both children, or sends to both, in one round; where it has one port they share it. A
    broadcast or a reduce sends (P - 1)·D bytes in all, an all-reduce twice as many.
    """

    name: ClassVar[str] = "binary-tree"
    source: ClassVar[str] = "Chan, Heimlich, Purkayastha and van de Geijn, Concurr. Comput. Pract. Exp. 19(13), 2007"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce", "broadcast", "reduce")
    auto: ClassVar[tuple[str, ...]] = ()

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        """Return the rounds in which each group does ``kind`` on its part, the first member at the root."""
        down = []
        for depth in range(1, groups.members.bit_length()):
            child = np.arange(2**depth - 1, min(2 ** (depth + 1) - 1, groups.members))
            down.append(Move(Pairs((child - 1) // 2, child), np.zeros(len(child), np.int64), 1))
        moves = {"broadcast": down, "reduce": mirrored(down), "all_reduce": [*mirrored(down), *down]}[kind]
        return stage_of_moves(groups.ranks, whole_part(groups), moves)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return h·(L + D/B), h = floor(log2 P), or twice that, where every pair of ranks has links of its own.

        On any fabric where a rank has one port, two children share it and this form does not hold.
        """
        require_one_way(self.name, hops)
        levels = demand.ranks.bit_length() - 1
        return (2 if demand.kind == "all_reduce" else 1) * levels * hops.round_s(float(demand.buffer_bytes))
