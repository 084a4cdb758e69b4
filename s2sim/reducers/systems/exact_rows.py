"""Exact sums of row-sparse layers, with one key a row: by gathering, by owners, and by the union of held rows.

Gathering is what frameworks do; it wins where ranks hold few rows and share few of them. Owner reduce is a
reduce-scatter and an all-gather of rows: it sends the fewest values, but both rounds carry row numbers, and the host
waits for both sizes. The union is agreed on first; every rank then knows the place of each row, and values travel
packed in this order, without index. The batch tells the rows of a table before forward, so that the first round can run
beside compute. The S2 authors' code has the union as its emulation of OmniReduce. EmbRace leaves sums with owners.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, RowSparse, average
from s2sim.reducers import gpu_cost, script
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits, wait_all
from s2sim.reducers.shared import row_sparse as known
from s2sim.reducers.shared import sparse_split
from s2sim.reducers.systems.dense import Dense


class Sparse(Reducer):
    """A reducer of tables; without any, all goes as `Dense` sends it."""

    __slots__ = ()
    layers: sparse_split.Layers
    prefetch: bool = False  # Whether supports are exchanged before there is a gradient; an option of some

    def __post_init__(self) -> None:
        Reducer.__post_init__(self)
        if self.prefetch and self.layers == "all":
            raise OptionError(
                f"{self.about.name}: prefetch=true needs layers=sparse: which elements of dense layers are not zero is "
                "known only after backward"
            )

    @property
    def traits(self) -> Traits:
        return replace(self.about, before_gradient=True) if self.prefetch else self.about

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        split = sparse_split.split_layers(rank, gradient, self.layers, self.held)
        if any(table.size for table in split.tables):
            return (yield from self.reduce_split(rank, split))
        reduced = yield from Dense().with_dtype(self.held).reduce(rank, gradient)
        if not split.tables:
            return reduced
        # An empty table stays a table: that of an empty shard is gathered beside those of others.
        others = sparse_split.without_layers(reduced.mean, split.compressed)
        return Reduced(rank.replicated(lambda: split.join(split.tables, others)), reduced.sent)

    def fallback_for(self, gradient: Gradient) -> Reducer | None:
        return None if sparse_split.compressed_layers(gradient, self.layers) else Dense().with_dtype(self.held)

    @abstractmethod
    def reduce_split(self, rank: Rank, split: sparse_split.SplitGradient) -> Program:
        """Return the program for a gradient with tables that are not empty, beside which some may be."""

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        return sparse_split.compressed_layers(gradient, self.layers)


@dataclass(slots=True)
class GatherRows(Sparse):
    """An all-gather of the rows that each rank holds, with their numbers; exact, one round.

    How many rows there are only data tells: the host waits for it, and libraries exchange it.
    """

    layers: sparse_split.Layers = "sparse"

    def reduce_split(self, rank: Rank, split: sparse_split.SplitGradient) -> Program:
        rank.work(known.pack_rows_cost(split.tables))
        rows = rank.all_gather(known.pack_tables(split.tables, split.held), label="rows", size_from_data=True)
        dense = split.post_dense(rank)
        yield from wait_all(rows, dense)

        shapes = [table.shape for table in split.tables]
        parts = rank.replicated(lambda: known.unpack_messages(rows.value, [shapes] * rank.size))
        sums = rank.replicated(lambda: [known.sum_tables(tables) for tables in zip(*parts, strict=True)])
        rank.work(known.add_rows_cost(parts, sums, "decode"))
        return Reduced(rank.replicated(lambda: split.mean(sums, dense, rank.size)), sent=lambda: split.gradient)


@dataclass(slots=True)
class OwnerReduce(Sparse):
    """An all-to-all of rows to their owners, and an all-gather of the sums; exact, two rounds.

    Who owns which row says `s2sim.reducers.shared.sparse_split`.
    """

    layers: sparse_split.Layers = "sparse"

    def reduce_split(self, rank: Rank, split: sparse_split.SplitGradient) -> Program:
        def shares() -> tuple[list[sparse_split.RowOwners], list[list[tuple[int, ...]]]]:
            owners = [sparse_split.RowOwners(table.shape[0], rank.size) for table in split.tables]
            rows = zip(*(np.diff(owner.cuts).tolist() for owner in owners), strict=True)
            return owners, [[(n, *table.shape[1:]) for n, table in zip(own, split.tables, strict=True)] for own in rows]

        owners, shapes = rank.replicated(shares)

        # Round one: every row to its owner.
        rank.work(known.sort_by_owner_cost(split.tables, rank.size))
        rank.work(known.pack_rows_cost(split.tables))
        ordered = [owner.in_order(table) for owner, table in zip(owners, split.tables, strict=True)]
        messages = known.pack_parts(ordered, [owner.cuts for owner in owners], split.held)
        rows = yield from rank.all_to_all(messages, label="rows to their owners", size_from_data=True)
        parts = known.unpack_messages(rows, [shapes[rank.index]] * rank.size)
        own_sums = [known.sum_tables(tables) for tables in zip(*parts, strict=True)]
        rank.work(known.add_rows_cost(parts, own_sums, "encode"))

        # Round two: the sums to all; the dense layers go beside them.
        rank.work(known.write_keys_cost(own_sums))
        gathered = rank.all_gather(known.pack_tables(own_sums, split.held), label="sums", size_from_data=True)
        dense = split.post_dense(rank)
        yield from wait_all(gathered, dense)

        def join() -> list[RowSparse]:
            parts = known.unpack_messages(gathered.value, shapes)
            return [owner.join(tables) for owner, tables in zip(owners, zip(*parts, strict=True), strict=True)]

        sums = rank.replicated(join)
        rank.work(known.join_rows_cost(sums))
        return Reduced(rank.replicated(lambda: split.mean(sums, dense, rank.size)), sent=lambda: split.gradient)


@dataclass(slots=True)
class Union(Sparse):
    """A bitmap of the held rows, then an all-reduce of the values of their union; exact."""

    layers: sparse_split.Layers = "sparse"
    bitmap: known.BitmapFormat = "packed"
    prefetch: bool = False

    def reduce_split(self, rank: Rank, split: sparse_split.SplitGradient) -> Program:
        # Round one: which rows does any rank hold?
        rank.work(known.mark_bitmap_cost(split.tables, self.bitmap))
        label = "support, before backward has ended" if self.prefetch else "support"
        support = yield from known.post_support(rank, split.tables, self.bitmap, label)
        union = rank.replicated(lambda: known.union_rows(support, split.tables, self.bitmap))
        rank.work(known.read_bitmaps_cost(split.tables, self.bitmap, union, "encode"))

        if self.prefetch:
            rank.await_gradient()

        # Round two: their values; how many is known only now, unless it was prefetched. The dense layers join
        # their launch.
        rank.work(known.place_rows_cost(split.tables, union))
        placed = (table.among(rows) for table, rows in zip(split.tables, union, strict=True))
        packed = tuple(table.with_values(round_to_dtype(table.values, split.held)) for table in placed)
        values = rank.all_reduce(packed, label="values", size_from_data=not self.prefetch)
        dense = split.post_dense(rank)
        yield from wait_all(values, dense)

        # The result is a table of the union's rows as it stands; nothing is left to decode.
        def mean() -> Gradient:
            sums = [
                RowSparse(rows, widen(total), table.shape)
                for rows, total, table in zip(union, values.value, split.tables, strict=True)
            ]
            return split.mean(sums, dense, rank.size)

        return Reduced(rank.replicated(mean), sent=lambda: split.gradient)


@dataclass(slots=True)
class EmbRace(Sparse):
    """Tables that no rank has as a whole: rank i owns some columns of all rows, or some rows.

    1. Row numbers of the batch are gathered, before there is a gradient.
    2. Gradients of a rank's rows go to the owners of each column, who add them up; dense layers are all-reduced.
    3. Owners send the rows that the next batch needs: its forward pass waits for them, so that they count here.

    Each rank ends with its own part of the mean of tables and with all of the dense layers' mean; together it is exact.
    Of the paper only the abstract was read here: all-to-all for embeddings, all-reduce for the rest. That columns are
    what is sharded, and steps 1 and 3, are recalled. A gradient tells no next batch: it is taken to need as many rows,
    and the same. How EmbRace schedules, what the next batch needs first, is about the iteration and not here.
    """

    shards: Literal["columns", "rows"] = "columns"

    layers = "sparse"

    def reduce_split(self, rank: Rank, split: sparse_split.SplitGradient) -> Program:
        tables = split.tables
        rank.work(known.write_keys_cost(tables))
        numbers = [known.rows_without_values(table.rows, (table.shape[0], 0)) for table in tables]
        packed = known.pack_tables(numbers)
        gathered = yield from rank.all_gather(packed, label="row numbers of the batch", size_from_data=True)
        shapes = [number.shape for number in numbers]

        def rows_of(message: known.Message) -> list[known.Tables]:
            pairs = zip(known.unpack_tables(message, shapes), tables, strict=True)
            return self._parts([known.rows_without_values(part.rows, table.shape) for part, table in pairs], rank.size)

        # Of every rank the rows of each part of each table.
        held = rank.replicated(lambda: list(map(rows_of, gathered)))
        rank.await_gradient()

        rank.work(known.pack_values_cost(tables, len(tables)))
        blocks = [known.pack_values(part, split.held) for part in self._parts(tables, rank.size)]
        gradients = rank.all_to_all(blocks, label="gradients of rows to their owners", unequal=True)
        dense = split.post_dense(rank)
        yield from wait_all(gradients, dense)
        own = [parts[rank.index] for parts in held]
        came = list(map(known.unpack_values, gradients.value, own))
        sums = known.sum_known_rows(came, known.merge_supports(own))
        rank.work(known.sum_values_cost(came, sums))
        means = [table.with_values(table.values / rank.size) for table in sums]

        wanted = [[mean.keep(part.rows) for mean, part in zip(means, parts, strict=True)] for parts in own]
        rank.work(known.pack_values_cost([table for part in wanted for table in part], len(tables)))
        values = [known.pack_values(part, split.held) for part in wanted]
        yield rank.all_to_all(values, label="rows of the next batch", unequal=True)
        rank.work(gpu_cost.permute(sum(table.values.nbytes for table in tables), len(tables)))

        others = rank.replicated(lambda: split.dense if dense is None else average(dense.value.map(widen), rank.size))
        whole = [self._whole(mean, table, rank) for mean, table in zip(means, tables, strict=True)]
        return Reduced(split.join(whole, others), sent=lambda: split.gradient)

    def notes(self) -> tuple[str, ...]:
        owned = f"each rank ends with the {self.shards} of tables that it owns; errors are those of all parts together"
        return (f"{owned}; the next batch is taken to need the same rows",)

    def _parts(self, tables: Sequence[RowSparse], ranks: int) -> list[known.Tables]:
        return [list(own) for own in zip(*(self._cut(table, ranks) for table in tables), strict=True)]

    def _cut(self, table: RowSparse, ranks: int) -> list[RowSparse]:
        if self.shards == "rows":
            return sparse_split.RowOwners(table.shape[0], ranks).split(table)
        values = table.values.reshape(len(table.rows), table.width)
        return [
            RowSparse(table.rows, values[:, start:stop], (table.shape[0], stop - start))
            for start, stop in pairwise(script.chunk_bounds(table.width, ranks).tolist())
        ]

    def _whole(self, part: RowSparse, table: RowSparse, rank: Rank) -> RowSparse:
        """Return one's own part of a table in its place in the whole, which is zero elsewhere."""
        if self.shards == "rows":
            return sparse_split.RowOwners(table.shape[0], rank.size).place(part, rank.index)
        start, stop = script.chunk_bounds(table.width, rank.size)[rank.index : rank.index + 2]
        values = np.zeros((len(part.rows), table.width), np.float32)
        values[:, start:stop] = part.values
        return RowSparse(part.rows, values.reshape(len(part.rows), *table.shape[1:]), table.shape)
