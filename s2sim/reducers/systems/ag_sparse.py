"""Sparse all-gather as the S2 authors' code has it: coordinates of single elements, padded to the longest message."""

from __future__ import annotations

from dataclasses import dataclass

from s2sim.gradients.gradient import RowSparse
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared import row_sparse as coo
from s2sim.reducers.shared.sparse_split import Layers, SplitGradient
from s2sim.reducers.systems.sparse import Sparse


@dataclass(slots=True)
class AgSparse(Sparse):
    """Three all-gathers, one after the other: counts, coordinates, values; exact, 20 bytes for each non-zero element.

    What S2 is compared with in its authors' code (``Exact_Embed_Reducer``). `s2sim.reducers.systems.gather_rows` sends
    the same with one number a row: about a fifth. Where there are several tables, that their counts, coordinates and
    values travel together is inferred.
    """

    layers: Layers = "sparse"

    about = Traits(
        name="ag-sparse",
        summary="an all-gather of elements with row and column, padded to the longest: exact, 20 bytes an element",
        source="github.com/GeKeShi/Sparse_Sketch_Reducer (Exact_Embed_Reducer)",
        lossless=True,
        granularity="element, with row and column",
        formula="(P-1)(8L + 20 nnz_max)",
        certainty="code read",
    )

    def reduce_split(self, rank: Rank, split: SplitGradient) -> Program:
        """Gather counts, then coordinates, then values; add them up."""
        own = [coo.to_coordinates(table, split.held) for table in split.tables]
        rank.work(coo.encode_coordinates_cost(split.tables, own))
        counts = yield from coo.agree_on_lengths(rank, own)
        most = counts.max(axis=0).tolist()

        messages = [coo.pad_coordinates(table, length) for table, length in zip(own, most, strict=True)]
        places = rank.all_gather(tuple(at for at, _ in messages), label="coordinates", size_from_data=True)
        yield places
        values = rank.all_gather(tuple(held for _, held in messages), label="values")
        yield values
        dense = split.post_dense(rank)
        rank.work(coo.decode_coordinates_cost(split.tables, rank.size * sum(most), rank.size))

        def sums() -> list[RowSparse]:
            by_table = zip(zip(*places.value, strict=True), zip(*values.value, strict=True), strict=True)
            return [
                coo.sum_coordinates(list(zip(at, held, strict=True)), lengths, table.shape)
                for (at, held), lengths, table in zip(by_table, counts.T, split.tables, strict=True)
            ]

        total = rank.replicated(sums)
        if dense is not None:
            yield dense
        return Reduced(rank.replicated(lambda: split.mean(total, dense, rank.size)), sent=lambda: split.gradient)
