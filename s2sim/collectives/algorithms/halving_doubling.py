"""Collectives in a logarithmic number of rounds: recursive halving and doubling, Bruck's all-gather, and PAT.

Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", Int. J.
High Performance Computing Applications 19(1), 2005 (the all-reduce is Rabenseifner's); J. Bruck, C.-T. Ho, S. Kipnis,
E. Upfal, D. Weathersby, "Efficient Algorithms for All-to-All Communications in Multiport Message-Passing Systems", IEEE
Transactions on Parallel and Distributed Systems 8(11), 1997; S. Jeaugey, "PAT: a new algorithm for all-gather and
reduce-scatter operations at scale", arXiv 2506.20252, 2025.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from s2sim.collectives import Kind
from s2sim.collectives.schedules import exchange
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.groups import Groups, OverGroups, even_groups
from s2sim.collectives.schedules.schedule import Stage
from s2sim.errors import OptionError


@dataclass(frozen=True, slots=True)
class Bruck(OverGroups):
    """All-gather in ceil(log2 P) rounds for any P, each sending as much as all before it.

    In round j, j = 0, 1, ..., rank i has the contributions of ranks i to i + 2^j - 1 modulo P and sends the first
    min(2^j, P - 2^j) of them to rank i - 2^j. All ranks together send (P - 1)·D bytes, D the sum of contributions.
    Turning a rank's buffer so that its own contribution comes first, and back, costs no time here.

    A reduce-scatter is the same backwards. A barrier is the same without bytes: the dissemination barrier (D. Hensgen,
    R. Finkel, U. Manber, Int. J. Parallel Programming 17(1), 1988), in the other direction around.
    """

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        member = np.arange(groups.members)
        moves = []
        for distance in exchange.distances_below(groups.members):
            pairs = exchange.MemberPairs(member, (member - distance) % groups.members)
            moves.append(exchange.ChunkMove(pairs, member, min(distance, groups.members - distance)))
        if kind == "reduce_scatter":
            moves = exchange.reverse_moves(moves)
        return exchange.stage_of_moves(groups.ranks, exchange.chunk_per_member(groups), moves)

    def closed_form_s(self, demand: Demand, hops: exchange.Hops) -> float:
        """Return the time without shared links, on routes of one latency and rate.

        Round j takes L + b/B, b the most that min(2^j, P - 2^j) ranks in a row contribute; ceil(log2 P)·L + (P-1)/P·D/B
        for equal contributions, ceil(log2 P)·L for a barrier.
        """
        exchange.require_uniform_routes(self.name, hops)
        around = np.concatenate([[0.0], np.cumsum(np.tile(demand.sizes_bytes, 2))])
        total = 0.0
        for distance in exchange.distances_below(demand.ranks):
            count = min(distance, demand.ranks - distance)
            total += hops.round_s(float((around[count:] - around[:-count]).max()))
        return total


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
    """

    # Distances of partners in the halving: 1, 2, 4, ..., P/2, so that the largest messages stay near, or the other way
    # round. The doubling goes through them backwards. None takes what MPICH runs: near-first for an all-reduce; far-
    # first for a reduce-scatter, whose messages are then of parts side by side, and for an all-gather, which so begins
    # with the nearest partner.
    distance: Literal["near-first", "far-first"] | None = None

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        near_first = self._gathers_near_first(kind)
        if kind != "all_reduce":
            return exchange.exchange(kind, groups, near_first=near_first)
        cube = exchange.Cube(groups.members)
        halving, doubling = exchange.doubling_exchanges(cube, near_first=near_first)
        chunks, first_chunk = groups, np.zeros(cube.extras, np.int64)
        if cube.extras:
            # Even chunks of the whole part of each group, one for each corner.
            part_bytes = groups.bytes.sum(axis=1, keepdims=True)
            even = even_groups(groups.ranks[:, cube.corners()], groups.begin[:, 0], groups.end[:, -1], 1.0)
            chunks = replace(even, bytes=even.bytes * part_bytes)
        fold = cube.fold(first_chunk, chunks.members, adds=True)
        unfold = cube.fold(first_chunk, chunks.members, adds=False, back=True)
        members = exchange.chunk_per_member(chunks)
        return exchange.stage_of_moves(groups.ranks, members, [*fold, *halving, *doubling, *unfold])

    def _gathers_near_first(self, kind: Kind) -> bool:
        return self.distance == "far-first" or (self.distance is None and kind != "all_reduce")

    def closed_form_s(self, demand: Demand, hops: exchange.Hops) -> float:
        """Return the time without shared links, on routes of one latency and rate.

        All-reduce: 2k·L + 2·(2^k - 1)/2^k·D/B, so 2·log2(P)·L + 2·(P-1)/P·D/B for a power of two; with r > 0, 2·(L +
        D/B) more. All-gather and reduce-scatter: see `doubling_time_s`; log2(P)·L + (P-1)/P·D/B for a power of two and
        equal contributions.
        """
        exchange.require_uniform_routes(self.name, hops)
        if not demand.shared:
            return exchange.doubling_time_s(demand, hops, near_first=self._gathers_near_first(demand.kind))
        cube = exchange.Cube(demand.ranks)
        halves_s = sum(hops.round_s(demand.buffer_bytes / 2**j) for j in range(1, cube.rounds + 1))
        return 2 * halves_s + (2 * hops.round_s(demand.buffer_bytes) if cube.extras else 0.0)


@dataclass(frozen=True, slots=True)
class RecursiveDoubling(OverGroups):
    """Whole buffers exchanged with partners at distances 1, 2, 4, ...: for small messages.

    In an all-reduce every round sends the whole buffer, so all ranks together send 2^k·k·D bytes. In an all-gather
    every round sends twice as much as the one before; a barrier is that without bytes. Of P = 2^k + r ranks with r > 0
    the first 2r form pairs of which only the odd one takes part: the even one sends what it has before (D bytes, or
    its contribution) and gets the result afterwards (D bytes, or all other contributions), in two more rounds. The
    all-gather is that of halving-doubling.
    """

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        if kind != "all_reduce":
            return exchange.exchange("all_gather", groups, near_first=True)
        cube = exchange.Cube(groups.members)
        _, doubling = exchange.doubling_exchanges(cube, near_first=True)
        first_chunk = np.zeros(cube.extras, np.int64)
        moves = [
            *cube.fold(first_chunk, 1, adds=True),
            *(exchange.ChunkMove(move.pairs, np.zeros_like(move.first), 1, adds=True) for move in doubling),
            *cube.fold(first_chunk, 1, adds=False, back=True),
        ]
        return exchange.stage_of_moves(groups.ranks, exchange.single_chunk(groups), moves)

    def closed_form_s(self, demand: Demand, hops: exchange.Hops) -> float:
        """Return the time without shared links, on routes of one latency and rate.

        All-reduce: k·(L + D/B), with r > 0 two rounds more. All-gather: see `doubling_time_s`; log2(P)·L + (P-1)/P·D/B
        for a power of two and equal contributions. Barrier: k·L, with r > 0 two rounds more.
        """
        exchange.require_uniform_routes(self.name, hops)
        if not demand.shared:
            return exchange.doubling_time_s(demand, hops, near_first=True)
        cube = exchange.Cube(demand.ranks)
        return (cube.rounds + (2 if cube.extras else 0)) * hops.round_s(demand.buffer_bytes)


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
    are in use (rounds are the same, so is their time); that rounds of several pieces of one contribution overlap; and
    the copies in and out of buffers. Grouping under a limit follows NCCL's code (2.23 and later), which sets the limit
    by its buffers.
    """

    aggregation: int | None = None

    def __post_init__(self) -> None:
        limit = self.aggregation
        if limit is not None and (limit < 1 or limit & (limit - 1)):
            raise OptionError(f"pat: aggregation={limit} must be a power of two, 1 or more: trees join in pairs")

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        moves = self._moves(groups.members)
        if kind == "reduce_scatter":
            moves = exchange.reverse_moves(moves)
        return exchange.stage_of_moves(groups.ranks, exchange.chunk_per_member(groups), moves)

    def _moves(self, members: int) -> list[exchange.ChunkMove]:
        member = np.arange(members)
        power = 1 << (members - 1).bit_length()
        # Distance between trees that advance in the same round, P'/A; 1 if no message reaches the limit.
        spacing = max(1, power // (self.aggregation or power))
        moves = []
        for distance in reversed(exchange.distances_below(members)):
            pairs = exchange.MemberPairs(member, (member + distance) % members)
            # A message sends the contributions at offset v - distance from their owners, and multiples of `together`
            # from there, to offset v.
            together = max(spacing, 2 * distance)
            for offset in range(distance, min(together, members), 2 * distance):
                count = -(-(members - offset) // together)
                moves.append(exchange.ChunkMove(pairs, member, count, -together, distance - offset))
        return moves

    def closed_form_s(self, demand: Demand, hops: exchange.Hops) -> float:
        """Return the time without shared links, on routes of one latency and rate.

        Equal contributions of b bytes take L + n·b/B a round, n the contributions of its message; for a power of two
        (log2(A) + P/A - 1)·L + (P-1)·b/B, and log2(P)·L + (P-1)·b/B without a limit. Unequal ones take the largest
        message of each round.
        """
        exchange.require_uniform_routes(self.name, hops)
        sizes, moves = demand.sizes_bytes[None], self._moves(demand.ranks)
        return sum((hops.round_s(float(exchange.chunk_totals(sizes, move).max())) for move in moves), 0.0)
