"""Tables summed over two levels, in nodes and between them, by ranks that first tell each other of their rows."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce
from itertools import pairwise
from operator import and_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Bits
from s2sim.gradients.gradient import Gradient, Layer, RowSparse
from s2sim.reducers.rank import GradientDtype, Pending, Rank
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared import row_sparse as known
from s2sim.reducers.shared import sketch_cost as cost
from s2sim.reducers.shared.sparse_split import RowOwners


@dataclass(frozen=True)
class NodeMembership:
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

    def holder_of(self, place: int, ranks: int) -> range:
        """Return the shards that the rank at a place among so many of its node holds."""
        return range(place, self.shards, ranks)

    def peers(self, shard: int) -> tuple[int, ...]:
        """Return those that hold a shard, one on each node, in rank order."""
        return tuple(sorted(ranks[shard % len(ranks)] for ranks in self.members))


@cache
def group_by_node(numbers: tuple[int, ...]) -> NodeMembership:
    """Return the nodes of ranks of which rank r runs on the node with the r-th number.

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
    """Return the nodes of so many ranks: ``node`` on each, or if that is None by the numbers of theirs, if known."""
    if node is not None:
        return group_by_node(tuple(rank // node for rank in range(ranks)))
    return group_by_node(numbers or tuple(range(ranks)))


def no_shared_node_reason(node: int | None, numbers: tuple[int, ...]) -> str | None:
    """Return in words why no two ranks share a node; None where some do."""
    if node is None and not numbers:
        return "every rank is taken to have a node of its own, as neither a topology nor node= says otherwise"
    alone = node == 1 if node is not None else group_by_node(numbers).single
    return "every node holds one rank" if alone else None


def cut_shards(gradient: Gradient, shards: int) -> list[Gradient]:
    """Return the shards of a gradient: of a row-sparse layer the rows of each owner, of a dense one a stretch of rows.

    Which row-sparse rows belong to which shard says `s2sim.reducers.shared.sparse_split`.
    """
    layers = [_cut_layer(layer, shards) for layer in gradient.layers]
    return [Gradient(gradient.names, tuple(parts[shard] for parts in layers)) for shard in range(shards)]


def join_shards(parts: Sequence[Gradient], like: Gradient) -> Gradient:
    """Return the gradient whose shards these are; ``like`` is what was cut, though other types may have come of it."""
    columns = zip(*(part.layers for part in parts), strict=True)
    return Gradient(
        like.names, tuple(_join_layer(layers, whole) for layers, whole in zip(columns, like.layers, strict=True))
    )


def single_shard(shards: Mapping[int, Gradient], like: Gradient, count: int) -> Gradient:
    """Return a gradient such as ``like``, which is cut into ``count`` shards, that is zero but for some of them."""
    zeros = [Gradient(like.names, tuple(map(_zeros_like, part.layers))) for part in cut_shards(like, count)]
    return join_shards([shards.get(shard, empty) for shard, empty in enumerate(zeros)], like)


def select_layers(gradient: Gradient, indices: Iterable[int]) -> Gradient:
    """Return some layers of a gradient."""
    chosen = list(indices)
    return Gradient(tuple(gradient.names[index] for index in chosen), tuple(gradient.layers[index] for index in chosen))


def merge_layers(parts: Iterable[tuple[Sequence[int], Gradient]], like: Gradient) -> Gradient:
    """Return the gradient of whose layers each part has some, by their indices; all together have every one."""
    layers: dict[int, Layer] = {}
    for indices, part in parts:
        layers |= dict(zip(indices, part.layers, strict=True))
    return Gradient(like.names, tuple(layers[index] for index in range(len(like.layers))))


def _cut_layer(layer: Layer, shards: int) -> Sequence[Layer]:
    if isinstance(layer, RowSparse):
        return RowOwners(layer.shape[0], shards).split(layer)
    rows = np.atleast_1d(layer)
    bounds = chunk_bounds(len(rows), shards).tolist()
    return [rows[start:stop] for start, stop in pairwise(bounds)]


def _join_layer(parts: Sequence[Layer], whole: Layer) -> Layer:
    tables = [part for part in parts if isinstance(part, RowSparse)]
    if not isinstance(whole, RowSparse):
        dense = [part.to_dense() if isinstance(part, RowSparse) else part for part in parts]
        return np.concatenate(dense).reshape(whole.shape)
    owners = RowOwners(whole.shape[0], len(parts))
    if len(tables) == len(parts):
        return owners.join(tables)
    joined = np.empty(whole.shape, np.float32)
    joined[owners.rows_in_order()] = np.concatenate(
        [part.to_dense() if isinstance(part, RowSparse) else part for part in parts]
    )
    return joined


def _zeros_like(layer: Layer) -> Layer:
    if isinstance(layer, RowSparse):
        return RowSparse(layer.rows[:0], layer.values[:0], layer.shape)
    return np.zeros_like(layer)


class TwoLevelSum:
    """One rank's tables on their way: those of all shards one after the other, as every rank numbers them.

    Whoever holds a shard on some node owns a stretch of it among those that hold it on others.

    Parameters
    ----------
    rank : Rank
        Handle on the group of all.
    nodes : Nodes
        Who holds which shard.
    tables : sequence of RowSparse
        The rank's own.
    held : {"fp32", "bf16"}
        Type in which values travel.
    """

    def __init__(self, rank: Rank, nodes: NodeMembership, tables: Sequence[RowSparse], held: GradientDtype) -> None:
        self._rank, self._tables, self._held = rank, tables, held
        self._local = rank.subgroup(nodes.mates(rank.index))
        self._holders = [nodes.holder_of(place, self._local.size) for place in range(self._local.size)]
        self._holds = self._holders[self._local.index]
        self._peers = [rank.subgroup(nodes.peers(shard)) for shard in self._holds]
        self._owners = [RowOwners(table.shape[0], nodes.shards) for table in tables]
        split = [owners.split(table) for owners, table in zip(self._owners, tables, strict=True)]
        self._own: list[known.Tables] = [list(shard) for shard in zip(*split, strict=True)]
        # Of the shards that this rank holds: rows of each rank of its node, of the node, and of every node.
        self._ranks: list[known.Tables] = []
        self._node: known.Tables = []
        self._nodes: list[list[known.Tables]] = []
        # Of all shards: rows of the union.
        self._union: list[known.Tables] = []

    def exchange_rows(self) -> Generator[Pending, None, None]:
        """Let everybody know the rows of what will be sent and received, by bitmaps, whose sizes are known."""
        local = self._local
        self._rank.work(cost.mark_bitmap_cost(self._tables, "packed"))
        bitmaps = [known.pack_support(self._of(self._own, holds)) for holds in self._holders]
        came = yield from _all_to_all_each([local], [bitmaps], "rows of ranks")
        shapes = _shapes(self._of(self._own, self._holds))
        self._ranks = [known.unpack_support(bitmap, shapes) for bitmap in came[0]]
        self._node = known.merge_supports(self._ranks)
        self._rank.work(known.merge_bitmaps_cost(bitmaps[local.index].nbytes, local.size))

        parts = self._by_shard(self._node)
        told = yield from _all_gather_each(self._peers, list(map(known.pack_support, parts)), "rows of nodes")
        union: known.Tables = []
        for peers, part, gathered in zip(self._peers, parts, told, strict=True):
            nodes, merged = peers.replicated(partial(_node_rows, gathered, _shapes(part)))
            self._nodes.append(nodes)
            union += merged
        self._rank.work(known.merge_bitmaps_cost(bitmaps[local.index].nbytes, self._peers[0].size))

        (whole,) = yield from _all_gather_each([local], [known.pack_support(union)], "rows of the union")
        self._union = self._rank.replicated(partial(self._all_shards, whole))
        for table, shards in zip(self._tables, zip(*self._union, strict=True), strict=True):
            self._rank.work(cost.read_bitmaps_cost([table], "packed", [shard.rows for shard in shards], "encode"))

    def sum(self) -> Generator[Pending, None, list[RowSparse]]:
        """Return the sums of the tables over all ranks: values to shards, to owners, and both ways back."""
        local = self._local
        self._rank.work(known.pack_values_cost(self._tables, len(self._tables)))
        blocks = [known.pack_values(self._of(self._own, holds), self._held) for holds in self._holders]
        (came,) = yield from _all_to_all_each([local], [blocks], "values to their shards in the node")
        values = list(map(known.unpack_values, came, self._ranks))
        node_sums = known.sum_known_rows(values, self._node)
        self._rank.work(known.sum_values_cost(values, node_sums))

        blocks_by_shard = [
            [known.pack_values(part, self._held) for part in _split_by_owner(shard, self._peers[0].size)]
            for shard in self._by_shard(node_sums)
        ]
        to_owners = yield from _all_to_all_each(self._peers, blocks_by_shard, "sums of nodes to their owners")
        gathered = yield from _all_gather_each(self._peers, self._owned(to_owners), "sums")

        shards: known.Tables = []
        for peers, stretches, held in zip(self._peers, gathered, self._holds, strict=True):
            supports = _split_by_owner(self._union[held], peers.size)
            parts = map(known.unpack_values, stretches, supports)
            for table, own in zip(self._union[held], zip(*parts, strict=True), strict=True):
                shards.append(table.with_values(np.concatenate([part.values for part in own])))
        (whole,) = yield from _all_gather_each([local], [known.pack_values(shards, self._held)], "sums of all shards")
        tables = self._rank.replicated(partial(self._whole, whole))
        self._rank.work(cost.join_rows_cost(tables))
        return tables

    def _owned(self, to_owners: Iterable[Sequence[NDArray[Any]]]) -> Iterator[NDArray[Any]]:
        """Yield the sums of what this rank owns, by shard: one may leave while the next is added up."""
        for peers, sent, nodes, held in zip(self._peers, to_owners, self._nodes, self._holds, strict=True):
            supports = [_split_by_owner(node, peers.size)[peers.index] for node in nodes]
            values = list(map(known.unpack_values, sent, supports))
            sums = known.sum_known_rows(values, _split_by_owner(self._union[held], peers.size)[peers.index])
            self._rank.work(known.sum_values_cost(values, sums))
            yield known.pack_values(sums, self._held)

    def _of(self, shards: Sequence[known.Tables], holds: Iterable[int]) -> known.Tables:
        return [table for shard in holds for table in shards[shard]]

    def _by_shard(self, tables: known.Tables) -> list[known.Tables]:
        """Return the tables of each shard that this rank holds."""
        count = len(self._tables)
        return [tables[start : start + count] for start in range(0, len(tables), count)]

    def _all_shards(self, gathered: Sequence[Bits]) -> list[known.Tables]:
        """Return the union's rows in each shard, from what the ranks of the node hand in."""
        found: dict[int, known.Tables] = {}
        for holds, bitmap in zip(self._holders, gathered, strict=True):
            tables = known.unpack_support(bitmap, _shapes(self._of(self._own, holds)))
            found |= zip(holds, self._by_shard(tables), strict=True)
        return [found[shard] for shard in range(len(found))]

    def _whole(self, gathered: Sequence[NDArray[Any]]) -> list[RowSparse]:
        """Return the tables, from the sums in each shard that the ranks of the node hand in."""
        found: dict[int, known.Tables] = {}
        for holds, values in zip(self._holders, gathered, strict=True):
            tables = known.unpack_values(values, self._of(self._union, holds))
            found |= zip(holds, self._by_shard(tables), strict=True)
        columns = zip(*(found[shard] for shard in range(len(found))), strict=True)
        return [owners.join(parts) for owners, parts in zip(self._owners, columns, strict=True)]


def _all_to_all_each(
    groups: Sequence[Rank], blocks: Sequence[Sequence[NDArray[Any]]], label: str
) -> Generator[Pending, None, list[Sequence[NDArray[Any]]]]:
    """Return what comes of an all-to-all in each of some groups of as many ranks; of one rank nothing is posted."""
    if groups[0].size == 1:
        return list(blocks)
    pending = [group.all_to_all(own, label=label, unequal=True) for group, own in zip(groups, blocks, strict=True)]
    yield reduce(and_, pending)
    return [each.value for each in pending]


def _all_gather_each(
    groups: Sequence[Rank], payloads: Iterable[NDArray[Any]], label: str
) -> Generator[Pending, None, list[Sequence[NDArray[Any]]]]:
    """Return what comes of an all-gather in each of some groups of as many ranks; of one rank nothing is posted."""
    if groups[0].size == 1:
        return [(own,) for own in payloads]
    pending = [group.all_gather(own, label=label, unequal=True) for group, own in zip(groups, payloads, strict=True)]
    yield reduce(and_, pending)
    return [each.value for each in pending]


def _node_rows(gathered: Sequence[Bits], shapes: known.Shapes) -> tuple[list[known.Tables], known.Tables]:
    """Return the rows of each node, and of all."""
    nodes = [known.unpack_support(bitmap, shapes) for bitmap in gathered]
    return nodes, known.merge_supports(nodes)


def _split_by_owner(tables: known.Tables, owners: int) -> list[known.Tables]:
    """Return the parts of the tables of a shard that each of its owners has."""
    parts = [known.split_table(table, chunk_bounds(table.shape[0], owners)) for table in tables]
    return [list(own) for own in zip(*parts, strict=True)]


def _shapes(tables: known.Tables) -> known.Shapes:
    return [table.shape for table in tables]
