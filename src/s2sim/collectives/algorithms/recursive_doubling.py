"""Recursive doubling: partners at distances 1, 2, 4, ... exchange all that they have, in the fewest rounds.

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", Int. J.
High Performance Computing Applications 19(1), 2005.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.collectives.algorithms.over_groups import OverGroups
from s2sim.collectives.schedules.chunk_moves import Move, stage_of_moves, whole_part
from s2sim.collectives.schedules.doubling import Cube, all_gather, exchange_s, exchanges, require_one_way

if TYPE_CHECKING:
    from s2sim.collectives.kinds import Kind
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.groups import Groups
    from s2sim.collectives.schedules.hops import Hops
    from s2sim.collectives.schedules.schedule import Stage


@dataclass(frozen=True, slots=True)
class RecursiveDoubling(OverGroups):
    """Whole buffers exchanged with partners at distances 1, 2, 4, ...: for small messages.

    In an all-reduce every round sends the whole buffer, so all ranks together send 2^k·k·D bytes. In an all-gather
    every round sends twice as much as the one before; a barrier is that without bytes. Of P = 2^k + r ranks with r > 0
    the first 2r form pairs of which only the odd one takes part: the even one sends what it has before (D bytes, or
    its contribution) and gets the result afterwards (D bytes, or all other contributions), in two more rounds. The
    all-gather is that of halving-doubling.
    """

    name: ClassVar[str] = "recursive-doubling"
    source: ClassVar[str] = "Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19(1), 2005"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce", "all_gather", "barrier")
    auto: ClassVar[tuple[str, ...]] = ()

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        """Return the rounds in which each group does ``kind`` on its part."""
        if kind != "all_reduce":
            return all_gather(groups, near_first=True)
        cube = Cube(groups.members)
        _, doubling = exchanges(cube, near_first=True)
        whole = np.zeros(groups.members, np.int64)
        moves = [
            *cube.fold(whole[: cube.extras], 1, adds=True),
            *(Move(move.pairs, whole[: len(move.first)], 1, adds=True) for move in doubling),
            *cube.unfold(whole[: cube.extras], 1, adds=False),
        ]
        return stage_of_moves(groups.ranks, whole_part(groups), moves)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time where messages share nothing and all ways are alike.

        All-reduce: k·(L + D/B), with r > 0 two rounds more. All-gather: see `exchange_s`; log2(P)·L + (P-1)/P·D/B for
        a power of two and equal contributions. Barrier: k·L, with r > 0 two rounds more.
        """
        require_one_way(self.name, hops)
        if not demand.shared:
            return exchange_s(demand, hops, near_first=True)
        cube = Cube(demand.ranks)
        rounds = cube.rounds + (2 if cube.extras else 0)
        return rounds * hops.round_s(demand.buffer_bytes)
