"""The reducer top-rows: the rows of largest norm of each table, and dense layers in half precision."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from s2sim.codecs.floats import narrow, widen
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers import gpu_cost
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits, wait_all
from s2sim.reducers.script import Work
from s2sim.reducers.shared import row_sparse
from s2sim.reducers.shared.sparse_split import compressed_layers, join_layers, without_layers

_HALF = np.dtype(np.float16)


def largest_rows(table: RowSparse, density: float) -> RowSparse:
    """Return the rows of largest L2 norm: a share of those that a rank holds, at least one if it holds any."""
    held = len(table.rows)
    # In float64, in which no square of a float32 is infinite.
    squares = np.square(table.values.reshape(held, table.width), dtype=np.float64).sum(axis=1)
    largest = np.sort(np.argsort(-squares, kind="stable")[: ceil(density * held)])
    return RowSparse(table.rows[largest], table.values[largest], table.shape)


@dataclass(slots=True)
class TopRows(Reducer):
    """All-gathers the largest rows of each table with their numbers, and all-reduces dense layers in float16.

    Both collectives are posted before either is waited for, so that a library may run them as one launch. The host
    waits for the number of rows, which depends on data.

    Attributes
    ----------
    density : float
        Share of the rows that a rank holds which it sends.
    """

    density: float = 0.1

    about = Traits(
        name="top-rows",
        summary="the rows of largest norm of each table, and dense layers in float16",
        source="unpublished",
        granularity="row",
        feedback="needed",
        # A sum in float16 is rounded once more than what the ranks have sent.
        adds_up=False,
        formula="sum over tables of (4 + 4w)k(P-1), and 4n(P-1)/P for n dense elements",
        certainty="ours",
    )
    compresses_all = True
    fractions = ("density",)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Send both, wait for both, and add up the rows."""
        indices = compressed_layers(gradient, "sparse")
        tables = [layer for layer in gradient.layers if isinstance(layer, RowSparse)]
        dense = without_layers(gradient, indices)

        rows = halves = None
        kept = [largest_rows(table, self.density) for table in tables]
        if kept:
            for table, chosen in zip(tables, kept, strict=True):
                rank.work(select_rows_cost(table, chosen))
            rank.work(row_sparse.pack_rows_cost(kept))
            rows = rank.all_gather(row_sparse.pack_tables(kept, self.held), label="rows", size_from_data=True)
        shares = dense.map(lambda values: narrow(np.divide(values, rank.size, dtype=np.float32), _HALF))
        if dense.layers:
            rank.work(gpu_cost.cast(dense.size, "encode"))
            halves = rank.all_reduce(shares, label="dense layers")
        yield from wait_all(rows, halves)

        def parts_of_ranks() -> Sequence[list[RowSparse]]:
            shapes = [table.shape for table in tables]
            return [row_sparse.unpack_tables(message, shapes) for message in rows.value] if rows else []

        # What all ranks compute alike is computed once.
        parts = rank.replicated(parts_of_ranks)
        sums = rank.replicated(lambda: [row_sparse.sum_tables(each) for each in zip(*parts, strict=True)])
        if rows:
            rank.work(row_sparse.add_rows_cost(parts, sums, "decode"))
        if halves:
            rank.work(gpu_cost.cast(dense.size, "decode"))

        def joined(of_tables: Sequence[RowSparse], others: Gradient) -> Gradient:
            return join_layers(gradient, dict(zip(indices, of_tables, strict=True)), others)

        def mean() -> Gradient:
            means = [table.with_values(table.values / rank.size) for table in sums]
            return joined(means, halves.value.map(widen) if halves else dense)

        return Reduced(
            rank.replicated(mean), sent=lambda: joined(kept, shares.map(lambda values: widen(values) * rank.size))
        )


def select_rows_cost(table: RowSparse, kept: RowSparse) -> Work:
    """Return the GPU's work: a pass over all values for the norms, and a selection of the largest."""
    norms = Work("encode", gpu_cost.VALUE_BYTES * (table.values.size + len(table.rows)))
    selection = gpu_cost.select(len(table.rows), len(kept.rows))
    return Work("encode", norms.bytes_moved + selection.bytes_moved, norms.launches + selection.launches)
