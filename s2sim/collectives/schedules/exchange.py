"""Exchanges between partners at distances 1, 2, 4, ...: what recursive halving and recursive doubling share.

They need 2^k members. Of p = 2^k + r members the first 2r form pairs: the even one of each hands what it has to the odd
one before, and gets what it wants from it afterwards (Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats, Ints
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.groups import Groups, joined
from s2sim.collectives.schedules.schedule import LazySteps, Pattern, Pieces, Round, Stage, Step, traffic_between
from s2sim.errors import ContendedError


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """The parts of the buffer of G groups, cut into c chunks, each of q stretches of positions.

    Positions [``begin``, ``end``) of each stretch are int64 of shape (G, c, q); what each chunk counts on the network,
    ``bytes``, is float64 of shape (G, c).
    """

    begin: Ints
    end: Ints
    bytes: Floats


def chunk_per_member(groups: Groups) -> Chunks:
    """Return one chunk a member."""
    return Chunks(groups.begin[:, :, None], groups.end[:, :, None], groups.bytes)


def single_chunk(groups: Groups) -> Chunks:
    """Return each group's part as one chunk."""
    total = groups.bytes.sum(axis=1, keepdims=True)
    return Chunks(groups.begin[:, :1, None], groups.end[:, -1:, None], total)


@dataclass(frozen=True, slots=True, eq=False)
class MemberPairs:
    """Senders and receivers in every group, as numbers of members: int64 arrays of shape (m,).

    One object serves all moves between the same members.
    """

    src: Ints
    dst: Ints


@dataclass(frozen=True, slots=True, eq=False)
class ChunkMove:
    """One round: message i carries ``count`` chunks, number first[i] + skip + j·stride modulo c for j = 0, 1, ...

    ``first`` is int64 of shape (m,); ``adds`` says whether destinations add what comes to what they have.
    """

    pairs: MemberPairs
    first: Ints
    count: int
    stride: int = 1
    skip: int = 0
    adds: bool = False


def reverse_moves(moves: Sequence[ChunkMove]) -> list[ChunkMove]:
    """Return the reduce-scatter that is an all-gather run backwards.

    Where each chunk reaches every member once, along a tree from its owner, partial sums flow up that tree.
    """
    turned = {move.pairs: MemberPairs(move.pairs.dst, move.pairs.src) for move in moves}
    return [replace(move, pairs=turned[move.pairs], adds=True) for move in reversed(moves)]


def stage_of_moves(ranks: Ints, chunks: Chunks, moves: Sequence[ChunkMove]) -> Stage:
    """Return the rounds of these moves, one each, in every group at once.

    Where all chunks of a group count alike, moves in a row between the same members that carry as many chunks are one
    step.
    """
    groups, count = chunks.bytes.shape
    patterns = {
        move.pairs: Pattern(ranks[:, move.pairs.src].reshape(-1), ranks[:, move.pairs.dst].reshape(-1))
        for move in moves
    }
    starts = _step_bounds(moves, alike=bool((chunks.bytes == chunks.bytes[:, :1]).all()))

    def step(index: int) -> Step:
        move = moves[starts[index]]
        sizes = chunk_totals(chunks.bytes, move).reshape(-1)
        return Step(Round(patterns[move.pairs], sizes), starts[index + 1] - starts[index])

    def pieces(index: int, time: int) -> Pieces:
        move = moves[starts[index] + time]
        chosen = (move.first[:, None] + move.skip + np.arange(move.count) * move.stride) % count
        begin, end = chunks.begin[:, chosen], chunks.end[:, chosen]
        messages = groups * len(move.first)
        return Pieces(
            np.repeat(np.arange(messages), begin.size // max(messages, 1)),
            begin.reshape(-1),
            end.reshape(-1),
            np.full(begin.size, move.adds),
        )

    def volume(places: int) -> Ints:
        total = np.zeros((2, places), np.int64)
        elements = (chunks.end - chunks.begin).sum(axis=2)
        for move in moves:
            pattern = patterns[move.pairs]
            total += traffic_between(places, pattern.src, pattern.dst, chunk_totals(elements, move))
        return total

    return Stage(LazySteps(len(starts) - 1, step), pieces, volume)


def _step_bounds(moves: Sequence[ChunkMove], *, alike: bool) -> list[int]:
    """Return the first move of each step, and the number of moves."""

    def repeats(move: ChunkMove, before: ChunkMove) -> bool:
        return alike and (move.pairs, move.count, move.adds) == (before.pairs, before.count, before.adds)

    starts = [index for index, move in enumerate(moves) if index == 0 or not repeats(move, moves[index - 1])]
    return [*starts, len(moves)]


def chunk_totals(values: NDArray[Any], move: ChunkMove) -> NDArray[Any]:
    """Return what each message's chunks add up to, shape (G, m), from ``values`` of shape (G, c).

    Sums of 1, 2, 4, ... chunks in a row are made from each other, so that a run costs the logarithm of its length.
    """
    chunks = np.arange(values.shape[1])
    total = np.zeros((len(values), len(move.first)), values.dtype)
    at = move.first + move.skip
    length = 1
    while length <= move.count:
        if move.count & length:
            total += values[:, at % len(chunks)]
            at = at + length * move.stride
        values = values + values[:, (chunks + length * move.stride) % len(chunks)]
        length *= 2
    return total


def distances_below(members: int) -> list[int]:
    """Return 1, 2, 4, ... as long as they are less than ``members``."""
    return [1 << bit for bit in range((members - 1).bit_length())]


@dataclass(frozen=True, slots=True)
class Cube:
    """The 2^k of p members that exchange, and the r that are folded into others."""

    members: int

    @property
    def rounds(self) -> int:
        """The exponent k: rounds until every corner has heard from every other."""
        return self.members.bit_length() - 1

    @property
    def extras(self) -> int:
        """Members beyond 2^k: r."""
        return self.members - (1 << self.rounds)

    def corners(self) -> Ints:
        """Return the members that exchange, int64 of shape (2^k,)."""
        number = np.arange(1 << self.rounds, dtype=np.int64)
        return np.where(number < self.extras, 2 * number + 1, number + self.extras)

    def folded(self) -> Ints:
        """Return the members that do not, int64 of shape (r,); each one's partner is the next."""
        return 2 * np.arange(self.extras, dtype=np.int64)

    def fold(self, first: Ints, count: int, *, adds: bool) -> list[ChunkMove]:
        """Return the round in which folded members send chunks to their partners, none where none is folded."""
        pairs = MemberPairs(self.folded(), self.folded() + 1)
        return [ChunkMove(pairs, first, count, adds=adds)] if self.extras else []

    def unfold(self, first: Ints, count: int, *, adds: bool) -> list[ChunkMove]:
        """Return the round in which partners send chunks to folded members."""
        pairs = MemberPairs(self.folded() + 1, self.folded())
        return [ChunkMove(pairs, first, count, adds=adds)] if self.extras else []


def doubling_exchanges(cube: Cube, *, near_first: bool) -> tuple[list[ChunkMove], list[ChunkMove]]:
    """Return a reduce-scatter and an all-gather over the corners, one chunk each, between the same pairs.

    In the all-gather a corner sends all that it has to the one whose number differs in one bit. With the nearest
    partner first it has the chunks of 1, 2, 4, ... corners in a row; with the farthest first, those of all corners
    whose lower bits are its own. The reduce-scatter is the same backwards: a corner sends what its partner will keep.
    """
    corners = cube.corners()
    number = np.arange(len(corners))
    gather: list[ChunkMove] = []
    scatter: list[ChunkMove] = []
    distances = distances_below(len(corners))
    for distance in distances if near_first else reversed(distances):
        partner = number ^ distance
        first = number - number % distance if near_first else number % (2 * distance)
        count, stride = (distance, 1) if near_first else (len(corners) // (2 * distance), 2 * distance)
        pairs = MemberPairs(corners, corners[partner])
        gather.append(ChunkMove(pairs, first, count, stride))
        scatter.append(ChunkMove(pairs, first[partner], count, stride, adds=True))
    return scatter[::-1], gather


def all_gather(groups: Groups, *, near_first: bool) -> Stage:
    """Return an all-gather by doubling; near_first: whether corners begin with their nearest partner.

    Folded members send their chunk before, and get all others afterwards.
    """
    cube, own = Cube(groups.members), chunk_per_member(groups)
    folded = cube.folded()
    return joined(
        [
            stage_of_moves(groups.ranks, own, cube.fold(folded, 1, adds=False)),
            stage_of_moves(
                groups.ranks, _add_folded_chunks(groups, cube), doubling_exchanges(cube, near_first=near_first)[1]
            ),
            stage_of_moves(groups.ranks, own, cube.unfold(folded + 1, groups.members - 1, adds=False)),
        ]
    )


def reduce_scatter(groups: Groups, *, near_first: bool) -> Stage:
    """Return a reduce-scatter by halving; near_first: whether corners end with their nearest partner.

    Folded members send all but their own chunk before, and add what the others have of that to theirs afterwards.
    """
    cube, own = Cube(groups.members), chunk_per_member(groups)
    folded = cube.folded()
    return joined(
        [
            stage_of_moves(groups.ranks, own, cube.fold(folded + 1, groups.members - 1, adds=True)),
            stage_of_moves(
                groups.ranks, _add_folded_chunks(groups, cube), doubling_exchanges(cube, near_first=near_first)[0]
            ),
            stage_of_moves(groups.ranks, own, cube.unfold(folded, 1, adds=True)),
        ]
    )


def _add_folded_chunks(groups: Groups, cube: Cube) -> Chunks:
    """Return a chunk for each corner: its own, and beside it that of the member that is folded into it."""
    if cube.extras == 0:
        return chunk_per_member(groups)
    corners = cube.corners()
    paired = np.arange(len(corners)) < cube.extras
    beside = corners - paired  # a corner without such a member has an empty stretch there
    begin = np.stack([groups.begin[:, corners], groups.begin[:, beside]], axis=2)
    end = np.stack([groups.end[:, corners], np.where(paired, groups.end[:, beside], begin[:, :, 1])], axis=2)
    return Chunks(begin, end, groups.bytes[:, corners] + np.where(paired, groups.bytes[:, beside], 0.0))


def doubling_time_s(demand: Demand, hops: Hops, *, near_first: bool) -> float:
    """Return the closed form of `all_gather` and `reduce_scatter`, which send the same in opposite order.

    Round j of k takes L + b/B, b the most that 2^j corners hold which have met. With r > 0, two more rounds: of the
    largest contribution of a folded member, and of everything but the smallest such.
    """
    cube = Cube(demand.ranks)
    sizes = demand.sizes_bytes
    folded = sizes[cube.folded()]
    held = sizes[cube.corners()]
    held[: cube.extras] += folded
    total = hops.round_s(folded.max()) + hops.round_s(sizes.sum() - folded.min()) if cube.extras else 0.0
    for bit in range(cube.rounds):
        met = held.reshape(-1, 2**bit).sum(axis=1) if near_first else held.reshape(2**bit, -1).sum(axis=0)
        total += hops.round_s(met.max())
    return float(total)


def require_uniform_routes(name: str, hops: Hops) -> None:
    """Raise `ContendedError` unless all messages take ways of the same latency and rate.

    Which of several ways a round takes depends on where its ranks are, which a closed form does not know.
    """
    if len({*hops.inside, *hops.across}) > 1:
        raise ContendedError(
            f"{name} has a closed form where all ways between ranks have one latency and one rate: simulate it instead"
        )


@dataclass(frozen=True, slots=True)
class Hop:
    """A way between two ranks that no other message uses: its latency, and the rate of its narrowest link."""

    latency_s: float
    rate_Bps: float


@dataclass(frozen=True, slots=True)
class Hops:
    """All different ways that the messages of a schedule take, inside nodes and between the nodes that hold ranks."""

    inside: tuple[Hop, ...]
    across: tuple[Hop, ...]
    nodes: int

    def round_s(self, size_bytes: float) -> float:
        """Return how long a round takes in which messages of this size take all these ways."""
        return max((hop.latency_s + size_bytes / hop.rate_Bps for hop in (*self.inside, *self.across)), default=0.0)

    def sending_s(self, size_bytes: float) -> float:
        """Return how long it takes until all bytes of such a round have left."""
        return max((size_bytes / hop.rate_Bps for hop in (*self.inside, *self.across)), default=0.0)

    def within_nodes(self) -> Hops:
        """Return the ways inside nodes alone."""
        return Hops(self.inside, (), self.nodes)

    def between_nodes(self) -> Hops:
        """Return the ways between nodes alone."""
        return Hops((), self.across, self.nodes)
