"""Union: agree on which rows anyone holds, then all-reduce just these, exactly.

The support is merged first; every rank then knows the place of each row among those of the union, and the values
travel packed in this order: one cell for each value, no index, no collision. It costs two rounds, one after the other,
and a host that waits for the size of the second. The S2 authors' code has it as its emulation of OmniReduce.

Which rows of an embedding table have a gradient, the batch tells before forward: then the first round can run beside
compute, and the size of the second is known in time.
"""

from __future__ import annotations

from dataclasses import dataclass

from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared import sketch_cost as cost
from s2sim.reducers.shared.row_sparse import BitmapFormat, post_support, union_rows
from s2sim.reducers.shared.sparse_split import Layers, SplitGradient
from s2sim.reducers.systems.sparse import Sparse


@dataclass(slots=True)
class Union(Sparse):
    """A bitmap of the held rows, then an all-reduce of the values of their union; exact.

    Attributes
    ----------
    bitmap : {"packed", "byte", "float32"}
        How the support travels, see `s2sim.reducers.shared.row_sparse`.
    prefetch : bool
        Merge the supports during forward and backward, from the rows that the batch names.
    """

    layers: Layers = "sparse"
    bitmap: BitmapFormat = "packed"
    prefetch: bool = False

    about = Traits(
        name="union",
        summary="merge the bitmaps of held rows, then all-reduce the union's values: exact, two rounds",
        source="github.com/GeKeShi/Sparse_Sketch_Reducer (OminiReducer); Fei et al., OmniReduce, SIGCOMM 2021",
        lossless=True,
        granularity="row, with a bit of a bitmap for each",
        formula="2(P-1)/P (rows/8 + 4 values of the union)",
        certainty="code read",
    )

    def reduce_split(self, rank: Rank, split: SplitGradient) -> Program:
        """Merge the supports, then sum the values of the union."""
        # Round one: which rows does any rank hold?
        rank.work(cost.mark_bitmap_cost(split.tables, self.bitmap))
        label = "support, before backward has ended" if self.prefetch else "support"
        support = post_support(rank, split.tables, self.bitmap, label)
        yield support
        union = rank.replicated(lambda: union_rows(support.value, split.tables, self.bitmap))
        rank.work(cost.read_bitmaps_cost(split.tables, self.bitmap, union, "encode"))

        if self.prefetch:
            rank.await_gradient()

        # Round two: their values; how many is known only now, unless it was prefetched. The dense layers join
        # their launch.
        rank.work(cost.place_rows_cost(split.tables, union))
        placed = (table.among(rows) for table, rows in zip(split.tables, union, strict=True))
        packed = tuple(table.with_values(round_to_dtype(table.values, split.held)) for table in placed)
        values = rank.all_reduce(packed, label="values", size_from_data=not self.prefetch)
        dense = split.post_dense(rank)
        yield values if dense is None else values & dense

        # The result is a table of the union's rows as it stands; nothing is left to decode.
        def mean() -> Gradient:
            sums = [
                RowSparse(rows, widen(total), table.shape)
                for rows, total, table in zip(union, values.value, split.tables, strict=True)
            ]
            return split.mean(sums, dense, rank.size)

        return Reduced(rank.replicated(mean), sent=lambda: split.gradient)
