"""Tables summed over two levels, in nodes and between them, by ranks that first tell each other of their rows."""

from __future__ import annotations

from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.reducers.parts import known_rows as known
from s2sim.reducers.row_sparse import cost
from s2sim.reducers.row_sparse.owners import Owners
from s2sim.reducers.scripts.traffic import chunk_bounds

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Bits
    from s2sim.gradients.gradient import RowSparse
    from s2sim.reducers.parts.nodes import Nodes
    from s2sim.reducers.rank import Held, Pending, Rank


class TwoLevels:
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

    def __init__(self, rank: Rank, nodes: Nodes, tables: Sequence[RowSparse], held: Held) -> None:
        self._rank, self._tables, self._held = rank, tables, held
        self._local = rank.subgroup(nodes.mates(rank.index))
        self._holders = [nodes.held_by(place, self._local.size) for place in range(self._local.size)]
        self._holds = self._holders[self._local.index]
        self._peers = [rank.subgroup(nodes.peers(shard)) for shard in self._holds]
        self._owners = [Owners(table.shape[0], nodes.shards) for table in tables]
        split = [owners.split(table) for owners, table in zip(self._owners, tables, strict=True)]
        self._own: list[known.Tables] = [list(shard) for shard in zip(*split, strict=True)]
        # Of the shards that this rank holds: rows of each rank of its node, of the node, and of every node.
        self._ranks: list[known.Tables] = []
        self._node: known.Tables = []
        self._nodes: list[list[known.Tables]] = []
        # Of all shards: rows of the union.
        self._union: list[known.Tables] = []

    def tell(self) -> Generator[Pending, None, None]:
        """Let everybody know the rows of what will be sent and received, by bitmaps, whose sizes are known."""
        local = self._local
        self._rank.work(cost.mark(self._tables, "packed"))
        bitmaps = [known.pack_support(self._of(self._own, holds)) for holds in self._holders]
        came = yield from _to_each([local], [bitmaps], "rows of ranks")
        shapes = _shapes(self._of(self._own, self._holds))
        self._ranks = [known.unpack_support(bitmap, shapes) for bitmap in came[0]]
        self._node = known.merged(self._ranks)
        self._rank.work(known.merge_cost(bitmaps[local.index].nbytes, local.size))

        parts = self._by_shard(self._node)
        told = yield from _to_all(self._peers, list(map(known.pack_support, parts)), "rows of nodes")
        union: known.Tables = []
        for peers, part, gathered in zip(self._peers, parts, told, strict=True):
            nodes, merged = peers.replicated(partial(_known, gathered, _shapes(part)))
            self._nodes.append(nodes)
            union += merged
        self._rank.work(known.merge_cost(bitmaps[local.index].nbytes, self._peers[0].size))

        (whole,) = yield from _to_all([local], [known.pack_support(union)], "rows of the union")
        self._union = self._rank.replicated(partial(self._all_shards, whole))
        for table, shards in zip(self._tables, zip(*self._union, strict=True), strict=True):
            self._rank.work(cost.read_bitmaps([table], "packed", [shard.rows for shard in shards], "encode"))

    def sum(self) -> Generator[Pending, None, list[RowSparse]]:
        """Return the sums of the tables over all ranks: values to shards, to owners, and both ways back."""
        local = self._local
        self._rank.work(known.pack_cost(self._tables, len(self._tables)))
        blocks = [known.pack_values(self._of(self._own, holds), self._held) for holds in self._holders]
        (came,) = yield from _to_each([local], [blocks], "values to their shards in the node")
        values = list(map(known.unpack_values, came, self._ranks))
        node_sums = known.add_up(values, self._node)
        self._rank.work(known.add_cost(values, node_sums))

        blocks_by_shard = [
            [known.pack_values(part, self._held) for part in _stretches(shard, self._peers[0].size)]
            for shard in self._by_shard(node_sums)
        ]
        to_owners = yield from _to_each(self._peers, blocks_by_shard, "sums of nodes to their owners")
        gathered = yield from _to_all(self._peers, self._owned(to_owners), "sums")

        shards: known.Tables = []
        for peers, stretches, held in zip(self._peers, gathered, self._holds, strict=True):
            supports = _stretches(self._union[held], peers.size)
            parts = map(known.unpack_values, stretches, supports)
            for table, own in zip(self._union[held], zip(*parts, strict=True), strict=True):
                shards.append(table.with_values(np.concatenate([part.values for part in own])))
        (whole,) = yield from _to_all([local], [known.pack_values(shards, self._held)], "sums of all shards")
        tables = self._rank.replicated(partial(self._whole, whole))
        self._rank.work(cost.join(tables))
        return tables

    def _owned(self, to_owners: Iterable[Sequence[NDArray[Any]]]) -> Iterator[NDArray[Any]]:
        """Yield the sums of what this rank owns, by shard: one may leave while the next is added up."""
        for peers, sent, nodes, held in zip(self._peers, to_owners, self._nodes, self._holds, strict=True):
            supports = [_stretches(node, peers.size)[peers.index] for node in nodes]
            values = list(map(known.unpack_values, sent, supports))
            sums = known.add_up(values, _stretches(self._union[held], peers.size)[peers.index])
            self._rank.work(known.add_cost(values, sums))
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


def _to_each(
    groups: Sequence[Rank], blocks: Sequence[Sequence[NDArray[Any]]], label: str
) -> Generator[Pending, None, list[Sequence[NDArray[Any]]]]:
    """Return what comes of an all-to-all in each of some groups of as many ranks; of one rank nothing is posted."""
    if groups[0].size == 1:
        return list(blocks)
    pending = [group.all_to_all(own, label=label, unequal=True) for group, own in zip(groups, blocks, strict=True)]
    yield reduce(and_, pending)
    return [each.value for each in pending]


def _to_all(
    groups: Sequence[Rank], payloads: Iterable[NDArray[Any]], label: str
) -> Generator[Pending, None, list[Sequence[NDArray[Any]]]]:
    """Return what comes of an all-gather in each of some groups of as many ranks; of one rank nothing is posted."""
    if groups[0].size == 1:
        return [(own,) for own in payloads]
    pending = [group.all_gather(own, label=label, unequal=True) for group, own in zip(groups, payloads, strict=True)]
    yield reduce(and_, pending)
    return [each.value for each in pending]


def _known(gathered: Sequence[Bits], shapes: known.Shapes) -> tuple[list[known.Tables], known.Tables]:
    """Return the rows of each node, and of all."""
    nodes = [known.unpack_support(bitmap, shapes) for bitmap in gathered]
    return nodes, known.merged(nodes)


def _stretches(tables: known.Tables, owners: int) -> list[known.Tables]:
    """Return the parts of the tables of a shard that each of its owners has."""
    parts = [known.stretches(table, chunk_bounds(table.shape[0], owners)) for table in tables]
    return [list(own) for own in zip(*parts, strict=True)]


def _shapes(tables: known.Tables) -> known.Shapes:
    return [table.shape for table in tables]
