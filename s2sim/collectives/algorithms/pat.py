"""Parallel aggregated trees: NCCL's all-gather and reduce-scatter of logarithmic latency, with a limit on messages.

Source: S. Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", arXiv 2506.20252,
2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from s2sim.collectives.kinds import Kind
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import (
    ChunkMove,
    Hops,
    MemberPairs,
    chunk_per_member,
    chunk_totals,
    distances_below,
    require_uniform_routes,
    reverse_moves,
    stage_of_moves,
)
from s2sim.collectives.schedules.groups import Groups, OverGroups
from s2sim.collectives.schedules.schedule import Stage
from s2sim.errors import OptionError


@dataclass(frozen=True, slots=True)
class Pat(OverGroups):
    """Binomial trees from every rank, farthest partner first, that share messages up to a limit.

    Every contribution goes down a tree of its own: to the rank P'/2 further on, P' the power of two from P on, then
    from both to those P'/4 further on, and so on; always r to r + d modulo P. Trees of all ranks run at once. A round
    at distance d sends what has come from multiples of 2d away, so that the largest messages stay near. Without a limit
    that takes ceil(log2 P) rounds. With at most A = 2^a contributions a message (``aggregation``), only the a farthest
    distances, of 1, 2, ..., A/2 contributions, take one round each; below, the trees that begin at multiples of P'/A go
    on together, one rank of each a round: P'/A - 1 rounds of up to A contributions each. A = 1 is linear in P. All
    ranks together send (P - 1)·D bytes, D the sum of contributions, whatever the limit. A reduce-scatter is the same
    backwards.

    Modelled: partners, which contributions a message carries, and the number of messages. Not modelled: the order of
    rounds under a limit, which is by distance here, while NCCL finishes one branch after another so that few buffers
    are in use (rounds are the same, so is their time); that rounds of several pieces of one contribution overlap; the
    copies in and out of buffers; and that NCCL sets the limit itself, from the size of contributions and its buffers,
    and runs PAT with one GPU a node alone. Grouping under a limit follows NCCL's code (2.23 and later).
    """

    name: ClassVar[str] = "pat"
    source: ClassVar[str] = "Jeaugey, arXiv 2506.20252, 2025"
    kinds: ClassVar[tuple[str, ...]] = ("all_gather", "reduce_scatter")
    aggregation: int | None = None

    def __post_init__(self) -> None:
        limit = self.aggregation
        if limit is not None and (limit < 1 or limit & (limit - 1)):
            raise OptionError(f"pat: aggregation={limit} must be a power of two, 1 or more: trees join in pairs")

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        """Return the rounds in which each group does ``kind`` on its part."""
        moves = self._moves(groups.members)
        if kind == "reduce_scatter":
            moves = reverse_moves(moves)
        return stage_of_moves(groups.ranks, chunk_per_member(groups), moves)

    def _moves(self, members: int) -> list[ChunkMove]:
        """Return the rounds of the all-gather."""
        member = np.arange(members)
        power = 1 << (members - 1).bit_length()
        # Distance between trees that advance in the same round, P'/A; 1 if no message reaches the limit.
        spacing = max(1, power // (self.aggregation or power))
        moves = []
        for distance in reversed(distances_below(members)):
            pairs = MemberPairs(member, (member + distance) % members)
            # A message sends the contributions at offset v - distance from their owners, and multiples of `together`
            # from there, to offset v.
            together = max(spacing, 2 * distance)
            for offset in range(distance, min(together, members), 2 * distance):
                count = -(-(members - offset) // together)
                moves.append(ChunkMove(pairs, member, count, -together, distance - offset))
        return moves

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time without shared links, on routes of one latency and rate.

        Equal contributions of b bytes take L + n·b/B a round, n the contributions of its message; for a power of two
        (log2(A) + P/A - 1)·L + (P-1)·b/B, and log2(P)·L + (P-1)·b/B without a limit. Unequal ones take the largest
        message of each round.
        """
        require_uniform_routes(self.name, hops)
        sizes, moves = demand.sizes_bytes[None], self._moves(demand.ranks)
        return sum((hops.round_s(float(chunk_totals(sizes, move).max())) for move in moves), 0.0)
