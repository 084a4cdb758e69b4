"""Recursive halving and doubling: bandwidth-optimal in a logarithmic number of rounds.

Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", Int. J.
High Performance Computing Applications 19(1), 2005; the all-reduce is Rabenseifner's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from s2sim.collectives.algorithms.over_groups import OverGroups
from s2sim.collectives.schedules.chunk_moves import own_chunks, stage_of_moves
from s2sim.collectives.schedules.doubling import (
    Cube,
    all_gather,
    exchange_s,
    exchanges,
    reduce_scatter,
    require_one_way,
)
from s2sim.collectives.schedules.groups import even_groups
from s2sim.options import check_options

if TYPE_CHECKING:
    from s2sim.collectives.kinds import Kind
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.groups import Groups
    from s2sim.collectives.schedules.hops import Hops
    from s2sim.collectives.schedules.schedule import Stage


@dataclass(frozen=True, slots=True)
class HalvingDoubling(OverGroups):
    """Reduce-scatter by recursive halving, all-gather by recursive doubling; both for an all-reduce.

    In round j of the halving, j = 1 to k, partners keep one half each of what they still have to sum, and send the
    other: D/2^j bytes. The doubling is the same backwards. Of P = 2^k + r ranks with r > 0 the first 2r form pairs of
    which only the odd one takes part:

    - all-reduce: the even one sends its buffer before and gets the sum afterwards. 2k + 2 rounds; all ranks together
      send 2·r·D + 2·(2^k - 1)·D bytes.
    - all-gather: it sends its contribution before and gets all others afterwards. k + 2 rounds; all ranks together
      send (P - 1)·D bytes, as any all-gather that brings nothing twice, D the sum of contributions.
    - reduce-scatter: the same backwards. It sends all but its own part before, and gets that afterwards.

    A message may carry parts that do not lie side by side. Libraries number the parts of an all-reduce otherwise, so
    that they do; bytes are the same.

    Attributes
    ----------
    distance : {"near-first", "far-first"} or None
        Distances of partners in the halving: 1, 2, 4, ..., P/2, so that the largest messages stay near, or the other
        way round. The doubling goes through them backwards. None takes what MPICH runs: near-first for an all-reduce;
        far-first for a reduce-scatter, whose messages are then of parts side by side, and for an all-gather, which so
        begins with the nearest partner.
    """

    name: ClassVar[str] = "halving-doubling"
    source: ClassVar[str] = "Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19(1), 2005"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce", "reduce_scatter", "all_gather")
    auto: ClassVar[tuple[str, ...]] = ()
    distance: Literal["near-first", "far-first"] | None = None

    def __post_init__(self) -> None:
        check_options(self, self.name)

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        """Return the rounds in which each group does ``kind`` on its part."""
        gathers_near_first = self._halves_far_first(kind)
        if kind == "reduce_scatter":
            return reduce_scatter(groups, near_first=gathers_near_first)
        if kind == "all_gather":
            return all_gather(groups, near_first=gathers_near_first)
        cube = Cube(groups.members)
        halving, doubling = exchanges(cube, near_first=gathers_near_first)
        corners = len(cube.corners())
        cut = _cut_anew(groups, cube) if cube.extras else groups
        everything = np.zeros(cube.extras, np.int64)
        moves = [
            *cube.fold(everything, corners, adds=True),
            *halving,
            *doubling,
            *cube.unfold(everything, corners, adds=False),
        ]
        return stage_of_moves(groups.ranks, own_chunks(cut), moves)

    def _halves_far_first(self, kind: Kind) -> bool:
        return self.distance == "far-first" or (self.distance is None and kind != "all_reduce")

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time where messages share nothing and all ways are alike.

        All-reduce: 2k·L + 2·(2^k - 1)/2^k·D/B, so 2·log2(P)·L + 2·(P-1)/P·D/B for a power of two; with r > 0, 2·(L +
        D/B) more. All-gather and reduce-scatter: see `exchange_s`; log2(P)·L + (P-1)/P·D/B for a power of two and
        equal contributions.
        """
        require_one_way(self.name, hops)
        if not demand.shared:
            return exchange_s(demand, hops, near_first=self._halves_far_first(demand.kind))
        cube = Cube(demand.ranks)
        halves_s = sum(hops.round_s(demand.buffer_bytes / 2**j) for j in range(1, cube.rounds + 1))
        return 2 * halves_s + (2 * hops.round_s(demand.buffer_bytes) if cube.extras else 0.0)


def _cut_anew(groups: Groups, cube: Cube) -> Groups:
    """Return the corners with even chunks of their group's part, whose positions lie side by side."""
    part_bytes = groups.bytes.sum(axis=1, keepdims=True)
    even = even_groups(groups.ranks[:, cube.corners()], groups.begin[:, 0], groups.end[:, -1], 1.0)
    return replace(even, bytes=even.bytes * part_bytes)
