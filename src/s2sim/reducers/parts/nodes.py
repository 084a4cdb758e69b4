"""Which ranks share a node, and who in it holds which shard of the node's gradient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Nodes:
    """Nodes as the ranks on each, in rank order.

    There are as many shards as the largest node has ranks, and shard s of a node is held by its rank number s modulo
    the number of its ranks: in full nodes one shard a rank, in smaller ones several.

    Attributes
    ----------
    members : tuple of tuple of int
        Ranks on each node, the node of rank 0 first.
    """

    members: tuple[tuple[int, ...], ...]

    @property
    def shards(self) -> int:
        """Number of shards."""
        return max(map(len, self.members))

    @property
    def single(self) -> bool:
        """Whether every node has one rank only."""
        return self.shards == 1

    @property
    def equal(self) -> bool:
        """Whether every node has as many ranks."""
        return all(len(ranks) == self.shards for ranks in self.members)

    def mates(self, rank: int) -> tuple[int, ...]:
        """Return the ranks on the node of a rank, itself included."""
        return next(ranks for ranks in self.members if rank in ranks)

    def held_by(self, place: int, ranks: int) -> range:
        """Return the shards that the rank at a place among so many of its node holds."""
        return range(place, self.shards, ranks)

    def peers(self, shard: int) -> tuple[int, ...]:
        """Return those that hold a shard, one on each node, in rank order."""
        return tuple(sorted(ranks[shard % len(ranks)] for ranks in self.members))


@cache
def nodes_of(numbers: tuple[int, ...]) -> Nodes:
    """Return the nodes of ranks of which rank r runs on the node with the r-th number.

    >>> nodes_of((7, 7, 3, 7)).members
    ((0, 1, 3), (2,))
    >>> nodes_of((7, 7, 3, 7)).peers(2)
    (2, 3)
    """
    members: dict[int, list[int]] = {}
    for rank, number in enumerate(numbers):
        members.setdefault(number, []).append(rank)
    return Nodes(tuple(map(tuple, members.values())))


def nodes_among(ranks: int, node: int | None, numbers: tuple[int, ...]) -> Nodes:
    """Return the nodes of so many ranks: ``node`` on each, or if that is None by the numbers of theirs, if known."""
    if node is not None:
        return nodes_of(tuple(rank // node for rank in range(ranks)))
    return nodes_of(numbers or tuple(range(ranks)))


def why_no_nodes(node: int | None, numbers: tuple[int, ...]) -> str | None:
    """Return in words why no two ranks share a node; None where some do."""
    if node is None and not numbers:
        return "every rank is taken to have a node of its own, as neither a topology nor node= says otherwise"
    alone = node == 1 if node is not None else nodes_of(numbers).single
    return "every node holds one rank" if alone else None
