"""Exchanges between partners at distances 1, 2, 4, ...: the rounds of recursive halving and recursive doubling.

They need 2^k members. Of p = 2^k + r members the first 2r form pairs: the even one of each sends its data to the odd
one before, and receives its result from it afterwards (Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from s2sim.arrays import Array, Floats, Ints
from s2sim.collectives import Kind
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.groups import Groups, joined, pattern_of_members
from s2sim.collectives.schedules.schedule import LazySteps, Pieces, Round, Stage, Step, traffic_between
from s2sim.errors import ContendedError


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """The parts of the buffer of G groups, cut into c chunks of q ranges of positions each.

    Positions [``begin``, ``end``) of each range are int64 of shape (G, c, q); ``bytes`` of each chunk on the network
    are float64 of shape (G, c).
    """

    begin: Ints
    end: Ints
    bytes: Floats


def chunk_per_member(groups: Groups) -> Chunks:
    """Return one chunk per member."""
    return Chunks(groups.begin[:, :, None], groups.end[:, :, None], groups.bytes)


def single_chunk(groups: Groups) -> Chunks:
    """Return each group's part as one chunk."""
    return Chunks(groups.begin[:, :1, None], groups.end[:, -1:, None], groups.bytes.sum(axis=1, keepdims=True))


@dataclass(frozen=True, slots=True, eq=False)
class MemberPairs:
    """Senders and receivers in every group as indices of members, int64 of shape (m,); shared by equal moves."""

    src: Ints
    dst: Ints


@dataclass(frozen=True, slots=True, eq=False)
class ChunkMove:
    """One round: message i has ``count`` chunks, with index first[i] + skip + j·stride modulo c for j = 0, 1, ...

    ``first`` is int64 of shape (m,); ``adds`` states whether destinations add the chunks to their own.
    """

    pairs: MemberPairs
    first: Ints
    count: int
    stride: int = 1
    skip: int = 0
    adds: bool = False


def reverse_moves(moves: Sequence[ChunkMove]) -> list[ChunkMove]:
    """Return the reduce-scatter that is an all-gather run backwards.

    In the all-gather each chunk goes down a tree from its owner; partial sums go up that tree.
    """
    turned = {move.pairs: MemberPairs(move.pairs.dst, move.pairs.src) for move in moves}
    return [replace(move, pairs=turned[move.pairs], adds=True) for move in reversed(moves)]


def stage_of_moves(ranks: Ints, chunks: Chunks, moves: Sequence[ChunkMove]) -> Stage:
    """Return the rounds of these moves, concurrent in all groups.

    If all chunks of a group have equal bytes, consecutive moves of equally many chunks between the same members are one
    step.
    """
    groups, count = chunks.bytes.shape
    patterns = {move.pairs: pattern_of_members(ranks, move.pairs.src, move.pairs.dst) for move in moves}
    keys = [(move.pairs, move.count, move.adds) for move in moves]
    equal = bool((chunks.bytes == chunks.bytes[:, :1]).all())
    # The first move of each step, and the end of the last.
    starts = [*(at for at in range(len(moves)) if not (at and equal) or keys[at] != keys[at - 1]), len(moves)]

    def step(index: int) -> Step:
        move = moves[starts[index]]
        sizes = chunk_totals(chunks.bytes, move).reshape(-1)
        return Step(Round(patterns[move.pairs], sizes), starts[index + 1] - starts[index])

    def pieces(index: int, time: int) -> Pieces:
        move = moves[starts[index] + time]
        chosen = (move.first[:, None] + move.skip + np.arange(move.count) * move.stride) % count
        begin, end = chunks.begin[:, chosen], chunks.end[:, chosen]
        messages = groups * len(move.first)
        message = np.repeat(np.arange(messages), begin.size // max(messages, 1))
        return Pieces(message, begin.reshape(-1), end.reshape(-1), np.full(begin.size, move.adds))

    def volume(places: int) -> Ints:
        total = np.zeros((2, places), np.int64)
        elements = (chunks.end - chunks.begin).sum(axis=2)
        for move in moves:
            pattern = patterns[move.pairs]
            total += traffic_between(places, pattern.src, pattern.dst, chunk_totals(elements, move))
        return total

    return Stage(LazySteps(len(starts) - 1, step), pieces, volume)


def chunk_totals(values: Array, move: ChunkMove) -> Array:
    """Return the sum over the chunks of each message, shape (G, m), of ``values`` of shape (G, c).

    Sums of 1, 2, 4, ... consecutive chunks are computed from each other: the cost is logarithmic in their number.
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
    """Return the powers of two less than ``members``."""
    return [1 << bit for bit in range((members - 1).bit_length())]


@dataclass(frozen=True, slots=True)
class Cube:
    """The 2^k of p members that exchange, the corners, and the r that are folded into these."""

    members: int

    @property
    def rounds(self) -> int:
        """The exponent k: rounds until every corner has received data of every other."""
        return self.members.bit_length() - 1

    @property
    def extras(self) -> int:
        """Number of folded members, r."""
        return self.members - (1 << self.rounds)

    def corners(self) -> Ints:
        """Return the members that exchange, int64 of shape (2^k,)."""
        number = np.arange(1 << self.rounds, dtype=np.int64)
        return np.where(number < self.extras, 2 * number + 1, number + self.extras)

    def folded(self) -> Ints:
        """Return the folded members, int64 of shape (r,); the partner of each is the next member."""
        return 2 * np.arange(self.extras, dtype=np.int64)

    def fold(self, first: Ints, count: int, *, adds: bool, back: bool = False) -> list[ChunkMove]:
        """Return the round in which folded members send chunks to their partners, or receive these ``back``."""
        sides = (self.folded(), self.folded() + 1)
        pairs = MemberPairs(*(reversed(sides) if back else sides))
        return [ChunkMove(pairs, first, count, adds=adds)] if self.extras else []


def doubling_exchanges(cube: Cube, *, near_first: bool) -> tuple[list[ChunkMove], list[ChunkMove]]:
    """Return a reduce-scatter and an all-gather over the corners, one chunk each, between the same pairs.

    In the all-gather a corner sends all its chunks to the corner whose number differs in one bit. With the nearest
    partner first these are of 1, 2, 4, ... consecutive corners; with the farthest first, of all corners with its lower
    bits. The reduce-scatter is the same backwards: a corner sends the chunks that its partner will keep.
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


def exchange(kind: Kind, groups: Groups, *, near_first: bool) -> Stage:
    """Return an all-gather by doubling that begins with the nearest partners, or a reduce-scatter that ends with them.

    In an all-gather folded members send their chunk before, and receive all others afterwards; in a reduce-scatter they
    send all but their own chunk before, and add the sum of that of the others to theirs afterwards.
    """
    cube, chunks = Cube(groups.members), chunk_per_member(groups)
    folded, adds = cube.folded(), kind == "reduce_scatter"
    scatter, gather = doubling_exchanges(cube, near_first=near_first)
    before, after = (folded, 1), (folded + 1, groups.members - 1)
    if adds:
        before, after = after, before
    return joined(
        [
            stage_of_moves(groups.ranks, chunks, cube.fold(*before, adds=adds)),
            stage_of_moves(groups.ranks, _add_folded_chunks(groups, cube), scatter if adds else gather),
            stage_of_moves(groups.ranks, chunks, cube.fold(*after, adds=adds, back=True)),
        ]
    )


def _add_folded_chunks(groups: Groups, cube: Cube) -> Chunks:
    """Return a chunk of two ranges for each corner: its own, and that of the member that is folded into it."""
    if cube.extras == 0:
        return chunk_per_member(groups)
    corners = cube.corners()
    paired = np.arange(len(corners)) < cube.extras
    partner = corners - paired  # the second range of a corner without a partner is empty
    begin = np.stack([groups.begin[:, corners], groups.begin[:, partner]], axis=2)
    end = np.stack([groups.end[:, corners], np.where(paired, groups.end[:, partner], begin[:, :, 1])], axis=2)
    return Chunks(begin, end, groups.bytes[:, corners] + np.where(paired, groups.bytes[:, partner], 0.0))


def doubling_time_s(demand: Demand, hops: "Hops", *, near_first: bool) -> float:
    """Return the closed form of `exchange`, equal for both kinds, which send the same in opposite order.

    Round j of k takes L + b/B, b the most bytes of 2^j corners that have exchanged. With r > 0, two more rounds: of the
    largest contribution of a folded member, and of all except the smallest such.
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


def require_uniform_routes(name: str, hops: "Hops") -> None:
    """Raise `ContendedError` unless all routes have the same latency and rate.

    The routes of a round depend on the placement of its ranks, which a closed form does not know.
    """
    if len({*hops.inside, *hops.across}) > 1:
        raise ContendedError(
            f"{name} has a closed form where all ways between ranks have one latency and one rate: simulate it instead"
        )


@dataclass(frozen=True, slots=True)
class Hop:
    """A route between two ranks without other messages: its latency, and the rate of its narrowest link."""

    latency_s: float
    rate_Bps: float


@dataclass(frozen=True, slots=True)
class Hops:
    """All different routes of the messages of a schedule, inside nodes and between the given number of nodes."""

    inside: tuple[Hop, ...]
    across: tuple[Hop, ...]
    nodes: int

    def round_s(self, size_bytes: float) -> float:
        """Return the duration of a round with messages of this size on all routes."""
        return max((hop.latency_s + size_bytes / hop.rate_Bps for hop in (*self.inside, *self.across)), default=0.0)

    def sending_s(self, size_bytes: float) -> float:
        """Return the time until all bytes of such a round have been sent."""
        return max((size_bytes / hop.rate_Bps for hop in (*self.inside, *self.across)), default=0.0)

    def within_nodes(self) -> "Hops":
        """Return the routes inside nodes only."""
        return Hops(self.inside, (), self.nodes)

    def between_nodes(self) -> "Hops":
        """Return the routes between nodes only."""
        return Hops((), self.across, self.nodes)
