"""Node union: bitmaps of held rows go ahead, first inside nodes, then between them; values follow without numbers.

Rows are spread over shards, one for each rank of a node, and a shard over owners, one on each node. Three small rounds
of bitmaps tell whoever sends or receives values which rows these are: who holds what in the node, what each node holds,
what the union is. Their sizes depend on no data. The host then waits once for all sizes, and the values go the way of a
two-level all-reduce: to their shard in the node, its sums to their owner between nodes, and back in both. A row leaves
a node once if any of its ranks holds it, and its sum comes back once; `union` would send all rows of the union,
held or not.

Which rows of an embedding table have a gradient, the batch tells before forward: then all bitmaps can go beside
compute, and only values remain.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np

from s2sim.arrays import Array, Bits
from s2sim.gradients.gradient import RowSparse
from s2sim.reducers.rank import GradientDtype, Pending, Program, Rank, Reduced, Waits, wait_all
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared import row_sparse as known
from s2sim.reducers.shared.layers import NodeMembership, no_shared_node_reason, node_membership
from s2sim.reducers.shared.sparse_split import Layers, RowOwners, SplitGradient
from s2sim.reducers.systems.exact_rows import Sparse


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

    def exchange_rows(self) -> Waits[None]:
        """Exchange the rows of all messages of `sum`, as bitmaps of known sizes."""
        local = self._local
        self._rank.work(known.mark_bitmap_cost(self._tables, "packed"))
        bitmaps = [known.pack_support(self._of(self._own, holds)) for holds in self._holders]
        (received,) = yield from _post_each("all_to_all", [local], [bitmaps], "rows of ranks")
        self._ranks = _unpack_supports(received, self._of(self._own, self._holds))
        self._node = known.merge_supports(self._ranks)
        self._rank.work(known.merge_bitmaps_cost(bitmaps[local.index].nbytes, local.size))

        parts = self._by_shard(self._node)
        supports = list(map(known.pack_support, parts))
        by_shard = yield from _post_each("all_gather", self._peers, supports, "rows of nodes")
        union: known.Tables = []
        for peers, part, gathered in zip(self._peers, parts, by_shard, strict=True):
            nodes = peers.replicated(partial(_unpack_supports, gathered, part))
            self._nodes.append(nodes)
            union += peers.replicated(partial(known.merge_supports, nodes))
        self._rank.work(known.merge_bitmaps_cost(bitmaps[local.index].nbytes, self._peers[0].size))

        (of_node,) = yield from _post_each("all_gather", [local], [known.pack_support(union)], "rows of the union")
        self._union = self._rank.replicated(lambda: self._all_shards(of_node, known.unpack_support, self._own))
        for table, shards in zip(self._tables, zip(*self._union, strict=True), strict=True):
            self._rank.work(known.read_bitmaps_cost([table], "packed", [shard.rows for shard in shards], "encode"))

    def sum(self) -> Waits[list[RowSparse]]:
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

        def joined() -> list[RowSparse]:
            columns = zip(*self._all_shards(of_node, known.unpack_values, self._union), strict=True)
            return [owners.join(parts) for owners, parts in zip(self._owners, columns, strict=True)]

        tables = self._rank.replicated(joined)
        self._rank.work(known.join_rows_cost(tables))
        return tables

    def _owned(self, to_owners: Iterable[Sequence[Array]]) -> Iterator[Array]:
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
        count = len(self._tables)
        return [tables[start : start + count] for start in range(0, len(tables), count)]

    def _all_shards(
        self, gathered: Sequence[Any], unpack: Callable[[Any, known.Tables], known.Tables], like: list[known.Tables]
    ) -> list[known.Tables]:
        """Return the tables of all shards, from the messages of the node's ranks about their shards."""
        shards: dict[int, known.Tables] = {}
        for holds, message in zip(self._holders, gathered, strict=True):
            shards |= zip(holds, self._by_shard(unpack(message, self._of(like, holds))), strict=True)
        return [shards[shard] for shard in range(len(shards))]


def _post_each(
    kind: Literal["all_to_all", "all_gather"], groups: Sequence[Rank], payloads: Iterable[Any], label: str
) -> Waits[list[Sequence[Array]]]:
    """Return the results of a collective in each of some groups of equal size; groups of one rank post nothing."""
    if groups[0].size == 1:
        return [payload if kind == "all_to_all" else (payload,) for payload in payloads]
    pairs = zip(groups, payloads, strict=True)
    pending: list[Pending] = [getattr(group, kind)(payload, label=label, unequal=True) for group, payload in pairs]
    yield from wait_all(*pending)
    return [posted.value for posted in pending]


def _unpack_supports(bitmaps: Sequence[Bits], like: known.Tables) -> list[known.Tables]:
    return [known.unpack_support(bitmap, like) for bitmap in bitmaps]


def _split_by_owner(tables: known.Tables, owners: int) -> list[known.Tables]:
    parts = [known.split_table(table, chunk_bounds(table.shape[0], owners)) for table in tables]
    return [list(own) for own in zip(*parts, strict=True)]


@dataclass(slots=True)
class NodeUnion(Sparse):
    """Bitmaps ahead, then values to shards in the node, to owners between nodes, and back; exact.

    Of R bytes of rows that a rank holds, N that the L ranks of its node hold and U of the union, on M nodes, a rank
    sends (R + U)(L - 1)/L in the node and (N + U)(M - 1)/LM between nodes. No publication of it is known to us: owners
    are those of SparCML's split all-gather (Renggli et al., SC 2019), the union's bitmap is that of the S2 authors'
    emulation of OmniReduce, and two levels are usual for dense arrays.
    """

    minimums: ClassVar = {"node": 1}
    layers: Layers = "sparse"
    prefetch: bool = False
    node: int | None = None

    numbers: tuple[int, ...] = field(init=False, repr=False, compare=False, default=(), metadata={"fitted": True})
    """Of the node of each rank; empty until `placed`."""

    def placed(self, nodes: Sequence[int]) -> Self:
        return self.variant(numbers=tuple(nodes))

    def notes(self) -> tuple[str, ...]:
        why = no_shared_node_reason(self.node, self.numbers)
        return () if why is None else (f"{why}: only the way between nodes is left",)

    def reduce_split(self, rank: Rank, split: SplitGradient) -> Program:
        dense = None if self.prefetch else split.post_dense(rank)
        way = TwoLevelSum(rank, node_membership(rank.size, self.node, self.numbers), split.tables, self.held)
        yield from way.exchange_rows()
        # Host and GPU know all sizes from here on.
        rank.synchronise()
        if self.prefetch:
            rank.await_gradient()
            dense = split.post_dense(rank)
        sums = yield from way.sum()
        yield from wait_all(dense)
        return Reduced(rank.replicated(lambda: split.mean(sums, dense, rank.size)), sent=lambda: split.gradient)
