"""Layers of a gradient and their shards within nodes, and programs that run concurrently on groups of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TypeVar, cast

import numpy as np

from s2sim.gradients.gradient import Gradient, Layer, RowSparse, to_dense, zeros_like
from s2sim.reducers.rank import Pending, Waits, wait_all
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared.sparse_split import RowOwners


@dataclass(frozen=True)
class NodeMembership:
    """The ranks on each node, in rank order.

    The number of shards is that of ranks on the largest node. Shard s of a node belongs to its rank number s modulo
    the number of its ranks: one shard per rank in full nodes, several in smaller ones.
    """

    members: tuple[tuple[int, ...], ...]  # The node of rank 0 first

    @property
    def shards(self) -> int:
        """Number of shards."""
        return max(map(len, self.members))

    @property
    def single(self) -> bool:
        """Whether every node has one rank."""
        return self.shards == 1

    @property
    def equal(self) -> bool:
        """Whether all nodes have the same number of ranks."""
        return all(len(ranks) == self.shards for ranks in self.members)

    def mates(self, rank: int) -> tuple[int, ...]:
        """Return the ranks on the node of a rank, itself included."""
        return next(ranks for ranks in self.members if rank in ranks)

    def holders(self, ranks: int) -> list[range]:
        """Return the shards of each rank of a node with ``ranks`` ranks."""
        return [range(place, self.shards, ranks) for place in range(ranks)]

    def peers(self, shard: int) -> tuple[int, ...]:
        """Return the ranks that have a shard, one on each node, in rank order."""
        return tuple(sorted(ranks[shard % len(ranks)] for ranks in self.members))


@cache
def group_by_node(numbers: tuple[int, ...]) -> NodeMembership:
    """Return the nodes, if rank r runs on the node with the r-th number.

    >>> group_by_node((7, 7, 3, 7)).members
    ((0, 1, 3), (2,))
    >>> group_by_node((7, 7, 3, 7)).peers(2)
    (2, 3)
    """
    members: dict[int, list[int]] = {}
    for rank, number in enumerate(numbers):
        members.setdefault(number, []).append(rank)
    return NodeMembership(tuple(map(tuple, members.values())))


def node_membership(ranks: int, node: int | None, numbers: tuple[int, ...]) -> NodeMembership:
    """Return the nodes of ``ranks`` ranks: ``node`` on each, or if that is None, by node numbers, if known."""
    if node is not None:
        return group_by_node(tuple(rank // node for rank in range(ranks)))
    return group_by_node(numbers or tuple(range(ranks)))


def no_shared_node_reason(node: int | None, numbers: tuple[int, ...]) -> str | None:
    """Return a text that states why no two ranks share a node; None if some do."""
    if node is None and not numbers:
        return "every rank is taken to have a node of its own, as neither a topology nor node= says otherwise"
    alone = node == 1 if node is not None else group_by_node(numbers).single
    return "every node holds one rank" if alone else None


def cut_shards(gradient: Gradient, shards: int) -> list[Gradient]:
    """Return the shards of a gradient: rows of each of the `RowOwners` of a row-sparse layer, ranges of a dense one."""
    layers: list[Sequence[Layer]] = []
    for layer in gradient.layers:
        if isinstance(layer, RowSparse):
            layers.append(RowOwners(layer.shape[0], shards).split(layer))
        else:
            rows = np.atleast_1d(layer)
            layers.append([rows[start:stop] for start, stop in pairwise(chunk_bounds(len(rows), shards).tolist())])
    return [Gradient(gradient.names, tuple(parts[shard] for parts in layers)) for shard in range(shards)]


def join_shards(parts: Sequence[Gradient], like: Gradient) -> Gradient:
    """Return the gradient with these shards; ``like`` is the gradient that was cut, maybe with other layer types."""
    joined: list[Layer] = []
    for whole, *layers in zip(like.layers, *(part.layers for part in parts), strict=True):
        tables = [part for part in layers if isinstance(part, RowSparse)]
        owners = RowOwners(whole.shape[0], len(parts)) if isinstance(whole, RowSparse) else None
        if owners is not None and len(tables) == len(parts):
            joined.append(owners.join(tables))
            continue
        dense = np.concatenate(list(map(to_dense, layers)))
        if owners is not None:
            rows = np.empty(whole.shape, np.float32)
            rows[owners.rows_in_order()] = dense
            dense = rows
        joined.append(dense.reshape(whole.shape))
    return Gradient(like.names, tuple(joined))


def single_shard(shards: Mapping[int, Gradient], like: Gradient, count: int) -> Gradient:
    """Return a gradient in the shape of ``like`` from some of its ``count`` shards; the others are zero."""
    zeros = [Gradient(like.names, tuple(map(zeros_like, part.layers))) for part in cut_shards(like, count)]
    return join_shards([shards.get(shard, empty) for shard, empty in enumerate(zeros)], like)


def select_layers(gradient: Gradient, indices: Iterable[int]) -> Gradient:
    """Return some layers of a gradient."""
    chosen = list(indices)
    return Gradient(tuple(gradient.names[index] for index in chosen), tuple(gradient.layers[index] for index in chosen))


def merge_layers(parts: Iterable[tuple[Sequence[int], Gradient]], like: Gradient) -> Gradient:
    """Return the gradient of which each part has some layers, by their indices; together they have all."""
    layers: dict[int, Layer] = {}
    for indices, part in parts:
        layers |= dict(zip(indices, part.layers, strict=True))
    return Gradient(like.names, tuple(layers[index] for index in range(len(like.layers))))


T = TypeVar("T")


def run_interleaved(programs: Sequence[Waits[T]]) -> Waits[list[T]]:
    """Run programs in turns, each until it waits, then wait for all that they wait for.

    The turns are equal on all ranks with programs that wait equally often: ranks of a group post in the same order.
    """
    results: list[T | None] = [None] * len(programs)
    running = dict(enumerate(programs))
    while running:
        waits: list[Pending] = []
        for place, program in list(running.items()):
            try:
                waits.append(next(program))
            except StopIteration as stop:
                results[place] = stop.value
                del running[place]
        yield from wait_all(*waits)
    return cast("list[T]", results)
