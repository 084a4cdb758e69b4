"""Shards of a gradient within nodes, and a sum of tables over two levels after an exchange of their rows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce
from itertools import pairwise
from operator import and_
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Bits
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, to_dense, zeros_like
from s2sim.reducers.rank import GradientDtype, Pending, Rank
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared import row_sparse as known
from s2sim.reducers.shared import sketch_cost as cost
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
    layers = [_cut_layer(layer, shards) for layer in gradient.layers]
    return [Gradient(gradient.names, tuple(parts[shard] for parts in layers)) for shard in range(shards)]


def join_shards(parts: Sequence[Gradient], like: Gradient) -> Gradient:
    """Return the gradient with these shards; ``like`` is the gradient that was cut, maybe with other layer types."""
    columns = zip(*(part.layers for part in parts), strict=True)
    return Gradient(
        like.names, tuple(_join_layer(layers, whole) for layers, whole in zip(columns, like.layers, strict=True))
    )


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


def _cut_layer(layer: Layer, shards: int) -> Sequence[Layer]:
    if isinstance(layer, RowSparse):
        return RowOwners(layer.shape[0], shards).split(layer)
    rows = np.atleast_1d(layer)
    bounds = chunk_bounds(len(rows), shards).tolist()
    return [rows[start:stop] for start, stop in pairwise(bounds)]


def _join_layer(parts: Sequence[Layer], whole: Layer) -> Layer:
    if not isinstance(whole, RowSparse):
        return np.concatenate(list(map(to_dense, parts))).reshape(whole.shape)
    owners = RowOwners(whole.shape[0], len(parts))
    tables = [part for part in parts if isinstance(part, RowSparse)]
    if len(tables) == len(parts):
        return owners.join(tables)
    joined = np.empty(whole.shape, np.float32)
    joined[owners.rows_in_order()] = np.concatenate(list(map(to_dense, parts)))
    return joined


class TwoLevelSum:
    """The sum of one rank's tables with those of all ranks, by shards.

    The ranks that have the same shard, one on each node, own a contiguous range of it each.
    """

    def __init__(self, rank: Rank, nodes: NodeMembership, tables: Sequence[RowSparse], held: GradientDtype) -> None:
        self._rank, self._tables, self._held = rank, tables, held
        self._local = rank.subgroup(nodes.mates(rank.index))
        self._holders = nodes.holders(self._local.size)
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
        """Exchange the rows of all messages of `sum`, as bitmaps of known sizes."""
        local = self._local
        self._rank.work(cost.mark_bitmap_cost(self._tables, "packed"))
        bitmaps = [known.pack_support(self._of(self._own, holds)) for holds in self._holders]
        (received,) = yield from _post_each("all_to_all", [local], [bitmaps], "rows of ranks")
        self._ranks = _unpack_supports(received, _shapes(self._of(self._own, self._holds)))
        self._node = known.merge_supports(self._ranks)
        self._rank.work(known.merge_bitmaps_cost(bitmaps[local.index].nbytes, local.size))

        parts = self._by_shard(self._node)
        supports = list(map(known.pack_support, parts))
        by_shard = yield from _post_each("all_gather", self._peers, supports, "rows of nodes")
        union: known.Tables = []
        for peers, part, gathered in zip(self._peers, parts, by_shard, strict=True):
            nodes = peers.replicated(partial(_unpack_supports, gathered, _shapes(part)))
            self._nodes.append(nodes)
            union += peers.replicated(partial(known.merge_supports, nodes))
        self._rank.work(known.merge_bitmaps_cost(bitmaps[local.index].nbytes, self._peers[0].size))

        (of_node,) = yield from _post_each("all_gather", [local], [known.pack_support(union)], "rows of the union")

        def read(bitmap: Bits, holds: range) -> known.Tables:
            return known.unpack_support(bitmap, _shapes(self._of(self._own, holds)))

        self._union = self._rank.replicated(lambda: self._all_shards(of_node, read))
        for table, shards in zip(self._tables, zip(*self._union, strict=True), strict=True):
            self._rank.work(cost.read_bitmaps_cost([table], "packed", [shard.rows for shard in shards], "encode"))

    def sum(self) -> Generator[Pending, None, list[RowSparse]]:
        """Return the sums of the tables over all ranks: values to shards, to owners, and back."""
        local = self._local
        self._rank.work(known.pack_values_cost(self._tables, len(self._tables)))
        blocks = [known.pack_values(self._of(self._own, holds), self._held) for holds in self._holders]
        (received,) = yield from _post_each("all_to_all", [local], [blocks], "values to their shards in the node")
        values = list(map(known.unpack_values, received, self._ranks))
        node_sums = known.sum_known_rows(values, self._node)
        self._rank.work(known.sum_values_cost(values, node_sums))

        blocks_by_shard = [
            [known.pack_values(part, self._held) for part in _split_by_owner(shard, self._peers[0].size)]
            for shard in self._by_shard(node_sums)
        ]
        to_owners = yield from _post_each("all_to_all", self._peers, blocks_by_shard, "sums of nodes to their owners")
        gathered = yield from _post_each("all_gather", self._peers, self._owned(to_owners), "sums")

        shards: known.Tables = []
        for peers, ranges, shard in zip(self._peers, gathered, self._holds, strict=True):
            parts = map(known.unpack_values, ranges, _split_by_owner(self._union[shard], peers.size))
            for table, own in zip(self._union[shard], zip(*parts, strict=True), strict=True):
                shards.append(table.with_values(np.concatenate([part.values for part in own])))
        packed = [known.pack_values(shards, self._held)]
        (of_node,) = yield from _post_each("all_gather", [local], packed, "sums of all shards")

        def read(values: NDArray[Any], holds: range) -> known.Tables:
            return known.unpack_values(values, self._of(self._union, holds))

        def joined() -> list[RowSparse]:
            columns = zip(*self._all_shards(of_node, read), strict=True)
            return [owners.join(parts) for owners, parts in zip(self._owners, columns, strict=True)]

        tables = self._rank.replicated(joined)
        self._rank.work(cost.join_rows_cost(tables))
        return tables

    def _owned(self, to_owners: Iterable[Sequence[NDArray[Any]]]) -> Iterator[NDArray[Any]]:
        """Yield the sums that this rank owns, by shard: one may be sent while the next is added up."""
        for peers, sent, nodes, shard in zip(self._peers, to_owners, self._nodes, self._holds, strict=True):
            supports = [_split_by_owner(node, peers.size)[peers.index] for node in nodes]
            values = list(map(known.unpack_values, sent, supports))
            sums = known.sum_known_rows(values, _split_by_owner(self._union[shard], peers.size)[peers.index])
            self._rank.work(known.sum_values_cost(values, sums))
            yield known.pack_values(sums, self._held)

    def _of(self, shards: Sequence[known.Tables], holds: Iterable[int]) -> known.Tables:
        return [table for shard in holds for table in shards[shard]]

    def _by_shard(self, tables: known.Tables) -> list[known.Tables]:
        """Return the tables of each shard, from those of all shards in order."""
        count = len(self._tables)
        return [tables[start : start + count] for start in range(0, len(tables), count)]

    def _all_shards(
        self, gathered: Sequence[NDArray[Any]], read: Callable[[NDArray[Any], range], known.Tables]
    ) -> list[known.Tables]:
        """Return the tables of all shards, from the messages of the node's ranks about their shards."""
        shards: dict[int, known.Tables] = {}
        for holds, message in zip(self._holders, gathered, strict=True):
            shards |= zip(holds, self._by_shard(read(message, holds)), strict=True)
        return [shards[shard] for shard in range(len(shards))]


def _post_each(
    kind: Literal["all_to_all", "all_gather"], groups: Sequence[Rank], payloads: Iterable[Any], label: str
) -> Generator[Pending, None, list[Sequence[NDArray[Any]]]]:
    """Return the results of a collective in each of some groups of equal size; groups of one rank post nothing."""
    if groups[0].size == 1:
        return [payload if kind == "all_to_all" else (payload,) for payload in payloads]
    pairs = zip(groups, payloads, strict=True)
    pending: list[Pending] = [getattr(group, kind)(payload, label=label, unequal=True) for group, payload in pairs]
    yield reduce(and_, pending)
    return [posted.value for posted in pending]


def _unpack_supports(bitmaps: Sequence[Bits], shapes: known.Shapes) -> list[known.Tables]:
    return [known.unpack_support(bitmap, shapes) for bitmap in bitmaps]


def _split_by_owner(tables: known.Tables, owners: int) -> list[known.Tables]:
    """Return each owner's part of the tables of a shard."""
    parts = [known.split_table(table, chunk_bounds(table.shape[0], owners)) for table in tables]
    return [list(own) for own in zip(*parts, strict=True)]


def _shapes(tables: known.Tables) -> known.Shapes:
    return [table.shape for table in tables]
