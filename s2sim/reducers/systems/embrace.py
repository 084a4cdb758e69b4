"""EmbRace: tables sharded over ranks; rows and their gradients go by all-to-all, dense layers by all-reduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from s2sim.codecs.floats import widen
from s2sim.gradients.gradient import RowSparse, average
from s2sim.options import option
from s2sim.reducers.gpu_cost import permute
from s2sim.reducers.rank import Program, Rank, Reduced, Traits, wait_all
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared import row_sparse as known
from s2sim.reducers.shared.row_sparse import Message, pack_tables, unpack_tables
from s2sim.reducers.shared.sparse_split import RowOwners, SplitGradient
from s2sim.reducers.systems.exact_rows import Sparse


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

    shards: Literal["columns", "rows"] = option(
        "columns",
        "What a rank owns of a table: a stretch of the columns of all rows, or rows, spread evenly by their numbers.",
    )

    layers = "sparse"

    about = Traits(
        name="embrace",
        summary="sharded tables, rows and gradients by all-to-all, dense layers by all-reduce: exact in parts",
        source="Li et al., EmbRace, ICPP 2022, arXiv:2110.09132",
        lossless=True,
        agrees=False,
        estimates="shards",
        before_gradient=True,
        granularity="row number",
        formula="2(P-1)/P values of rows held + (P-1) 4 rows held",
        certainty="recalled",
    )

    def reduce_split(self, rank: Rank, split: SplitGradient) -> Program:
        """Tell all of one's rows, send their gradients to owners, and get as many rows from these."""
        tables = split.tables
        rank.work(known.write_keys_cost(tables))
        numbers = [
            RowSparse(table.rows, np.empty((len(table.rows), 0), np.float32), (table.shape[0], 0)) for table in tables
        ]
        gathered = rank.all_gather(pack_tables(numbers), label="row numbers of the batch", size_from_data=True)
        yield gathered
        shapes = [number.shape for number in numbers]

        def rows_of(message: Message) -> list[known.Tables]:
            pairs = zip(unpack_tables(message, shapes), tables, strict=True)
            return self._parts([known.rows_without_values(part.rows, table.shape) for part, table in pairs], rank.size)

        # Of every rank the rows of each part of each table.
        held = rank.replicated(lambda: list(map(rows_of, gathered.value)))
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
        rows = rank.all_to_all(
            [known.pack_values(part, split.held) for part in wanted], label="rows of the next batch", unequal=True
        )
        yield rows
        rank.work(permute(sum(table.values.nbytes for table in tables), len(tables)))

        others = rank.replicated(lambda: split.dense if dense is None else average(dense.value.map(widen), rank.size))
        whole = [self._whole(mean, table, rank) for mean, table in zip(means, tables, strict=True)]
        return Reduced(split.join(whole, others), sent=lambda: split.gradient)

    def notes(self) -> tuple[str, ...]:
        """Return what ranks end with, and what is taken of the next batch."""
        owned = f"each rank ends with the {self.shards} of tables that it owns; errors are those of all parts together"
        return (f"{owned}; the next batch is taken to need the same rows",)

    def _parts(self, tables: Sequence[RowSparse], ranks: int) -> list[known.Tables]:
        """Return what each rank owns of some tables."""
        return [list(own) for own in zip(*(self._cut(table, ranks) for table in tables), strict=True)]

    def _cut(self, table: RowSparse, ranks: int) -> list[RowSparse]:
        if self.shards == "rows":
            return RowOwners(table.shape[0], ranks).split(table)
        values = table.values.reshape(len(table.rows), table.width)
        return [
            RowSparse(table.rows, values[:, start:stop], (table.shape[0], stop - start))
            for start, stop in pairwise(chunk_bounds(table.width, ranks).tolist())
        ]

    def _whole(self, part: RowSparse, table: RowSparse, rank: Rank) -> RowSparse:
        """Return one's own part of a table in its place in the whole, which is zero elsewhere."""
        if self.shards == "rows":
            return RowOwners(table.shape[0], rank.size).place(part, rank.index)
        start, stop = chunk_bounds(table.width, rank.size)[rank.index : rank.index + 2]
        values = np.zeros((len(part.rows), table.width), np.float32)
        values[:, start:stop] = part.values
        return RowSparse(part.rows, values.reshape(len(part.rows), *table.shape[1:]), table.shape)
