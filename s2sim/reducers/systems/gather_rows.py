"""Gather rows: every rank gets the rows of all others and adds them up itself, exactly.

What frameworks do for sparse gradients, but with one key a row in place of two coordinates an element. It wins where
ranks hold few rows and share few of them: then nothing is saved by adding on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared import sketch_cost as cost
from s2sim.reducers.shared.row_sparse import pack_tables, sum_tables, unpack_tables
from s2sim.reducers.shared.sparse_split import Layers, SplitGradient
from s2sim.reducers.systems.sparse import Sparse


@dataclass(slots=True)
class GatherRows(Sparse):
    """An all-gather of the rows that each rank holds, with their numbers; exact, one round.

    How many rows there are only data tells: the host waits for it, and libraries exchange it.
    """

    layers: Layers = "sparse"

    about = Traits(
        name="gather-rows",
        summary="an all-gather of every rank's rows with their numbers, summed by all: exact, one round",
        source="Renggli et al., SparCML, SC 2019, section 5 (sparse all-gather); Horovod and PyTorch gather sparse "
        "tensors",
        lossless=True,
        granularity="row number",
        formula="(P-1) (4 values + 4 rows)",
        certainty="summary read",
    )

    def reduce_split(self, rank: Rank, split: SplitGradient) -> Program:
        """Gather all rows, sum them."""
        rank.work(cost.pack_rows_cost(split.tables))
        rows = rank.all_gather(pack_tables(split.tables, split.held), label="rows", size_from_data=True)
        dense = split.post_dense(rank)
        yield rows if dense is None else rows & dense

        shapes = [table.shape for table in split.tables]
        parts = rank.replicated(lambda: [unpack_tables(message, shapes) for message in rows.value])
        sums = rank.replicated(lambda: [sum_tables(tables) for tables in zip(*parts, strict=True)])
        rank.work(cost.add_rows_cost(parts, sums, "decode"))
        return Reduced(rank.replicated(lambda: split.mean(sums, dense, rank.size)), sent=lambda: split.gradient)
