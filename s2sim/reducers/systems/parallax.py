"""Parallax: tables through servers, dense layers by an all-reduce; and what the S2 authors' code made of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from s2sim.gradients.gradient import RowSparse
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared import row_sparse as coo
from s2sim.reducers.shared.sparse_split import Layers, SplitGradient
from s2sim.reducers.systems.owner_reduce import OwnerReduce
from s2sim.reducers.systems.sparse import Sparse


@dataclass(slots=True)
class Parallax(Sparse):
    """Rows of tables to servers and back, exactly; dense layers in an all-reduce.

    Of the paper nothing was read here. Its servers share the machines of the workers and hold a part of every table
    each; a worker pulls the rows that its next batch needs, while here, as of all reducers, every rank ends with all
    rows: it is `s2sim.reducers.systems.owner_reduce` by another name.

    Attributes
    ----------
    as_coded : bool
        In place of the paper's servers, what the S2 authors' code measures under this name (``Parallax_Reducer``): an
        all-gather of counts, padded coordinates of single elements (20 bytes each) to rank 0, and from there a
        broadcast of all of them, not summed.
    """

    layers: Layers = "sparse"
    as_coded: bool = False

    about = Traits(
        name="parallax",
        summary="rows of tables to servers on the ranks and back, dense layers in an all-reduce: exact",
        source="Kim et al., Parallax, EuroSys 2019; github.com/GeKeShi/Sparse_Sketch_Reducer (Parallax_Reducer)",
        lossless=True,
        granularity="row number",
        formula="(P-1)/P (rows held + rows of the union)",
        certainty="recalled",
    )

    def reduce_split(self, rank: Rank, split: SplitGradient) -> Program:
        """Let every rank be the server of some rows; or rank 0 the one that gathers all elements."""
        if not self.as_coded:
            return (yield from OwnerReduce().reduce_split(rank, split))
        own = [coo.to_coordinates(table, split.held) for table in split.tables]
        rank.work(coo.encode_coordinates_cost(split.tables, own))
        counts = yield from coo.agree_on_lengths(rank, own)
        most = counts.max(axis=0).tolist()

        message = tuple(coo.pad_coordinates(table, length) for table, length in zip(own, most, strict=True))
        to_root = rank.exchange({0: message} if rank.index else {}, label="elements to rank 0", size_from_data=True)
        yield to_root
        concatenated = None
        if rank.index == 0:
            by_table = zip(message, *to_root.value.values(), strict=True)
            concatenated = tuple(
                (np.hstack([at for at, _ in parts]), np.concatenate([values for _, values in parts]))
                for parts in by_table
            )
        all_elements = rank.broadcast(concatenated, root=0, label="all elements")
        yield all_elements
        dense = split.post_dense(rank)
        rank.work(coo.decode_coordinates_cost(split.tables, rank.size * sum(most), rank.size))

        def sums() -> list[RowSparse]:
            return [
                coo.sum_coordinates(
                    list(zip(np.split(at, rank.size, axis=1), np.split(values, rank.size), strict=True)),
                    lengths,
                    table.shape,
                )
                for (at, values), lengths, table in zip(all_elements.value, counts.T, split.tables, strict=True)
            ]

        total = rank.replicated(sums)
        if dense is not None:
            yield dense
        return Reduced(rank.replicated(lambda: split.mean(total, dense, rank.size)), sent=lambda: split.gradient)

    @property
    def traits(self) -> Traits:
        """What the S2 authors' code sends, it sends by element."""
        if not self.as_coded:
            return self.about
        return replace(
            self.about,
            granularity="element, with row and column",
            formula="8L(P-1) + 20 nnz_max, and 20 P nnz_max from rank 0",
            certainty="code read",
        )
