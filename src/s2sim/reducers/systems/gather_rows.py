"""Gather rows: every rank gets the rows of all others and adds them up itself, exactly.

What frameworks do for sparse gradients, but with one key a row in place of two coordinates an element. It wins where
ranks hold few rows and share few of them: then nothing is saved by adding on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.reducers.rank import Reduced, Reducer, Traits
from s2sim.reducers.row_sparse import cost
from s2sim.reducers.row_sparse.messages import pack_tables, sum_tables, unpack_tables
from s2sim.reducers.row_sparse.split import Layers, compressed_layers, split_layers
from s2sim.reducers.systems.dense import Dense

if TYPE_CHECKING:
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Program, Rank


@dataclass(slots=True)
class GatherRows(Reducer):
    """An all-gather of the rows that each rank holds, with their numbers; exact, one round.

    How many rows there are only data tells: the host waits for it, and libraries exchange it.

    Attributes
    ----------
    layers : {"sparse", "all"}
        Compress the row-sparse layers only, or the dense ones too, by element.
    """

    layers: Layers = "sparse"

    about = Traits(
        name="gather-rows",
        summary="an all-gather of every rank's rows with their numbers, summed by all: exact, one round",
        source="Renggli et al., SparCML, SC 2019, section 5 (sparse all-gather); Horovod and PyTorch gather sparse "
        "tensors",
        lossless=True,
        granularity="row number",
    )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Gather all rows, sum them."""
        split = split_layers(rank, gradient, self.layers, self.about.name)
        if not split.tables:
            return (yield from Dense().reduce(rank, gradient))
        rank.work(cost.pack(split.tables))
        rows = rank.all_gather(pack_tables(split.tables), label="rows", size_from_data=True)
        dense = split.post_dense(rank)
        yield rows if dense is None else rows & dense

        shapes = [table.shape for table in split.tables]
        parts = rank.replicated(lambda: [unpack_tables(message, shapes) for message in rows.value])
        sums = rank.replicated(lambda: [sum_tables(tables) for tables in zip(*parts, strict=True)])
        rank.work(cost.add_up(parts, sums, "decode"))
        return Reduced(rank.replicated(lambda: split.mean(sums, dense, rank.size)), sent=lambda: gradient)

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return the row-sparse layers, or all."""
        return compressed_layers(gradient, self.layers)
