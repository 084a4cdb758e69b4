"""Exact sums of row-sparse layers, with one key a row: by gathering, by owners, and by the union of held rows.

Gathering is what frameworks do; it wins where ranks hold few rows and share few of them. Owner reduce is a
reduce-scatter and an all-gather of rows: it sends the fewest values, but both rounds carry row numbers, and the host
waits for both sizes. The union is agreed on first; every rank then knows the place of each row, and values travel
packed in this order, without index. The batch tells the rows of a table before forward, so that the first round can run
beside compute. The S2 authors' code has the union as its emulation of OmniReduce.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.options import option
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits, wait_all
from s2sim.reducers.shared import row_sparse as known
from s2sim.reducers.shared.row_sparse import (
    BitmapFormat,
    pack_tables,
    post_support,
    sum_tables,
    union_rows,
    unpack_tables,
)
from s2sim.reducers.shared.sparse_split import (
    Layers,
    RowOwners,
    SplitGradient,
    compressed_layers,
    split_layers,
    without_layers,
)
from s2sim.reducers.systems.dense import Dense


class Sparse(Reducer):
    """A reducer of tables; without any, all goes as `Dense` sends it.

    Attributes
    ----------
    layers : {"sparse", "all"}
        Compress the row-sparse layers only, or the dense ones too, by element.
    """

    __slots__ = ()
    layers: Layers
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
        """``about``, and whether it begins before the gradient."""
        return replace(self.about, before_gradient=True) if self.prefetch else self.about

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Split the gradient, and reduce its tables and other layers."""
        split = split_layers(rank, gradient, self.layers, self.held)
        if any(table.size for table in split.tables):
            return (yield from self.reduce_split(rank, split))
        reduced = yield from Dense().with_dtype(self.held).reduce(rank, gradient)
        if not split.tables:
            return reduced
        # An empty table stays a table: that of an empty shard is gathered beside those of others.
        others = without_layers(reduced.mean, split.compressed)
        return Reduced(rank.replicated(lambda: split.join(split.tables, others)), reduced.sent)

    def fallback_for(self, gradient: Gradient) -> Reducer | None:
        """Return `Dense` where there is no layer to compress."""
        return None if compressed_layers(gradient, self.layers) else Dense().with_dtype(self.held)

    @abstractmethod
    def reduce_split(self, rank: Rank, split: SplitGradient) -> Program:
        """Return the program for a gradient with tables that are not empty, beside which some may be."""

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return the row-sparse layers, or all."""
        return compressed_layers(gradient, self.layers)


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
        rank.work(known.pack_rows_cost(split.tables))
        rows = rank.all_gather(pack_tables(split.tables, split.held), label="rows", size_from_data=True)
        dense = split.post_dense(rank)
        yield from wait_all(rows, dense)

        shapes = [table.shape for table in split.tables]
        parts = rank.replicated(lambda: [unpack_tables(message, shapes) for message in rows.value])
        sums = rank.replicated(lambda: [sum_tables(tables) for tables in zip(*parts, strict=True)])
        rank.work(known.add_rows_cost(parts, sums, "decode"))
        return Reduced(rank.replicated(lambda: split.mean(sums, dense, rank.size)), sent=lambda: split.gradient)


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
        rank.work(known.sort_by_owner_cost(split.tables, rank.size))
        rank.work(known.pack_rows_cost(split.tables))
        shares = [owner.split(table) for owner, table in zip(owners, split.tables, strict=True)]
        messages = [pack_tables(share, split.held) for share in zip(*shares, strict=True)]
        rows = rank.all_to_all(messages, label="rows to their owners", size_from_data=True)
        yield rows
        own_shapes = [share[rank.index].shape for share in shares]
        parts = [unpack_tables(message, own_shapes) for message in rows.value]
        own_sums = [sum_tables(tables) for tables in zip(*parts, strict=True)]
        rank.work(known.add_rows_cost(parts, own_sums, "encode"))

        # Round two: the sums to all; the dense layers go beside them.
        rank.work(known.write_keys_cost(own_sums))
        gathered = rank.all_gather(pack_tables(own_sums, split.held), label="sums", size_from_data=True)
        dense = split.post_dense(rank)
        yield from wait_all(gathered, dense)

        def join() -> list[RowSparse]:
            shapes = [[share[owner].shape for share in shares] for owner in range(rank.size)]
            parts = [unpack_tables(*each) for each in zip(gathered.value, shapes, strict=True)]
            return [owner.join(tables) for owner, tables in zip(owners, zip(*parts, strict=True), strict=True)]

        sums = rank.replicated(join)
        rank.work(known.join_rows_cost(sums))
        return Reduced(rank.replicated(lambda: split.mean(sums, dense, rank.size)), sent=lambda: split.gradient)


@dataclass(slots=True)
class Union(Sparse):
    """A bitmap of the held rows, then an all-reduce of the values of their union; exact."""

    layers: Layers = "sparse"
    bitmap: BitmapFormat = option("packed", "How the support travels, see `s2sim.reducers.shared.row_sparse`.")
    prefetch: bool = option(
        False, "Merge the supports during forward and backward, from the rows that the batch names."
    )

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
        rank.work(known.mark_bitmap_cost(split.tables, self.bitmap))
        label = "support, before backward has ended" if self.prefetch else "support"
        support = post_support(rank, split.tables, self.bitmap, label)
        yield support
        union = rank.replicated(lambda: union_rows(support.value, split.tables, self.bitmap))
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
