"""Owner reduce: rows go to their owners, who add them up, and come back to all, exactly.

A reduce-scatter and an all-gather of rows: each row of the union is sent once by every rank that holds it, and its
sum once around by its owner. The values that travel are never more than `s2sim.reducers.systems.union` sends, and
fewer where ranks share few rows; but both rounds carry row numbers, and the host waits for the size of both.
"""

from __future__ import annotations

from dataclasses import dataclass

from s2sim.gradients.gradient import RowSparse
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared import sketch_cost as cost
from s2sim.reducers.shared.row_sparse import pack_tables, sum_tables, unpack_tables
from s2sim.reducers.shared.sparse_split import Layers, RowOwners, SplitGradient
from s2sim.reducers.systems.sparse import Sparse


@dataclass(slots=True)
class OwnerReduce(Sparse):
    """An all-to-all of rows to their owners, and an all-gather of the sums; exact, two rounds.

    Who owns which row says `s2sim.reducers.shared.sparse_split`.
    """

    layers: Layers = "sparse"

    about = Traits(
        name="owner-reduce",
        summary="rows to their owners, who sum them, and back to all: exact, two rounds of what is held",
        source="Renggli et al., SparCML, SC 2019 (SSAR_Split_allgather); Li et al., EmbRace, ICPP 2022 (rows by "
        "all-to-all)",
        lossless=True,
        granularity="row number",
        formula="(P-1)/P (own rows + all rows of the union)",
        certainty="summary read",
    )

    def reduce_split(self, rank: Rank, split: SplitGradient) -> Program:
        """Send rows to their owners, sum one's own, gather the sums."""
        owners = [RowOwners(table.shape[0], rank.size) for table in split.tables]

        # Round one: every row to its owner.
        rank.work(cost.sort_by_owner_cost(split.tables, rank.size))
        rank.work(cost.pack_rows_cost(split.tables))
        shares = [owner.split(table) for owner, table in zip(owners, split.tables, strict=True)]
        messages = [pack_tables(share, split.held) for share in zip(*shares, strict=True)]
        rows = rank.all_to_all(messages, label="rows to their owners", size_from_data=True)
        yield rows
        own_shapes = [share[rank.index].shape for share in shares]
        parts = [unpack_tables(message, own_shapes) for message in rows.value]
        own_sums = [sum_tables(tables) for tables in zip(*parts, strict=True)]
        rank.work(cost.add_rows_cost(parts, own_sums, "encode"))

        # Round two: the sums to all; the dense layers go beside them.
        rank.work(cost.write_keys_cost(own_sums))
        gathered = rank.all_gather(pack_tables(own_sums, split.held), label="sums", size_from_data=True)
        dense = split.post_dense(rank)
        yield gathered if dense is None else gathered & dense

        def join() -> list[RowSparse]:
            shapes = [[share[owner].shape for share in shares] for owner in range(rank.size)]
            parts = [unpack_tables(*each) for each in zip(gathered.value, shapes, strict=True)]
            return [owner.join(tables) for owner, tables in zip(owners, zip(*parts, strict=True), strict=True)]

        sums = rank.replicated(join)
        rank.work(cost.join_rows_cost(sums))
        return Reduced(rank.replicated(lambda: split.mean(sums, dense, rank.size)), sent=lambda: split.gradient)
