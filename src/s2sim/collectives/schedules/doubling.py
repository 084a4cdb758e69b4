"""Exchanges between partners at distances 1, 2, 4, ...: what recursive halving and recursive doubling share.

They need 2^k members. Of p = 2^k + r members the first 2r form pairs: the even one of each hands what it has to the odd
one before, and gets what it wants from it afterwards (Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.schedules.chunk_moves import Chunks, Move, Pairs, own_chunks, stage_of_moves
from s2sim.collectives.schedules.groups import joined
from s2sim.errors import ContendedError

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.collectives.schedules.demand import Demand
    from s2sim.collectives.schedules.groups import Groups
    from s2sim.collectives.schedules.hops import Hops
    from s2sim.collectives.schedules.schedule import Stage


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

    def fold(self, first: Ints, count: int, *, adds: bool) -> list[Move]:
        """Return the round in which folded members send chunks to their partners, none where none is folded."""
        pairs = Pairs(self.folded(), self.folded() + 1)
        return [Move(pairs, first, count, adds=adds)] if self.extras else []

    def unfold(self, first: Ints, count: int, *, adds: bool) -> list[Move]:
        """Return the round in which partners send chunks to folded members."""
        pairs = Pairs(self.folded() + 1, self.folded())
        return [Move(pairs, first, count, adds=adds)] if self.extras else []


def exchanges(cube: Cube, *, near_first: bool) -> tuple[list[Move], list[Move]]:
    """Return a reduce-scatter and an all-gather over the corners, one chunk each, between the same pairs.

    In the all-gather a corner sends all that it has to the one whose number differs in one bit. With the nearest
    partner first it has the chunks of 1, 2, 4, ... corners in a row; with the farthest first, those of all corners
    whose lower bits are its own. The reduce-scatter is the same backwards: a corner sends what its partner will keep.
    """
    corners = cube.corners()
    number = np.arange(len(corners))
    gather: list[Move] = []
    scatter: list[Move] = []
    distances = distances_below(len(corners))
    for distance in distances if near_first else reversed(distances):
        partner = number ^ distance
        first = number - number % distance if near_first else number % (2 * distance)
        count, stride = (distance, 1) if near_first else (len(corners) // (2 * distance), 2 * distance)
        pairs = Pairs(corners, corners[partner])
        gather.append(Move(pairs, first, count, stride))
        scatter.append(Move(pairs, first[partner], count, stride, adds=True))
    return scatter[::-1], gather


def all_gather(groups: Groups, *, near_first: bool) -> Stage:
    """Return an all-gather by doubling; near_first: whether corners begin with their nearest partner.

    Folded members send their chunk before, and get all others afterwards.
    """
    cube, own = Cube(groups.members), own_chunks(groups)
    folded = cube.folded()
    return joined(
        [
            stage_of_moves(groups.ranks, own, cube.fold(folded, 1, adds=False)),
            stage_of_moves(groups.ranks, _with_folded(groups, cube), exchanges(cube, near_first=near_first)[1]),
            stage_of_moves(groups.ranks, own, cube.unfold(folded + 1, groups.members - 1, adds=False)),
        ]
    )


def reduce_scatter(groups: Groups, *, near_first: bool) -> Stage:
    """Return a reduce-scatter by halving; near_first: whether corners end with their nearest partner.

    Folded members send all but their own chunk before, and add what the others have of that to theirs afterwards.
    """
    cube, own = Cube(groups.members), own_chunks(groups)
    folded = cube.folded()
    return joined(
        [
            stage_of_moves(groups.ranks, own, cube.fold(folded + 1, groups.members - 1, adds=True)),
            stage_of_moves(groups.ranks, _with_folded(groups, cube), exchanges(cube, near_first=near_first)[0]),
            stage_of_moves(groups.ranks, own, cube.unfold(folded, 1, adds=True)),
        ]
    )


def _with_folded(groups: Groups, cube: Cube) -> Chunks:
    """Return a chunk for each corner: its own, and beside it that of the member that is folded into it."""
    if cube.extras == 0:
        return own_chunks(groups)
    corners = cube.corners()
    paired = np.arange(len(corners)) < cube.extras
    beside = corners - paired  # a corner without such a member has an empty stretch there
    begin = np.stack([groups.begin[:, corners], groups.begin[:, beside]], axis=2)
    end = np.stack([groups.end[:, corners], np.where(paired, groups.end[:, beside], begin[:, :, 1])], axis=2)
    return Chunks(begin, end, groups.bytes[:, corners] + np.where(paired, groups.bytes[:, beside], 0.0))


def exchange_s(demand: Demand, hops: Hops, *, near_first: bool) -> float:
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


def require_one_way(name: str, hops: Hops) -> None:
    """Raise `ContendedError` unless all messages take ways of the same latency and rate.

    Which of several ways a round takes depends on where its ranks are, which a closed form does not know.
    """
    if len({*hops.inside, *hops.across}) > 1:
        raise ContendedError(
            f"{name} has a closed form where all ways between ranks have one latency and one rate: simulate it instead"
        )
