"""Exact S2: a sketch that is peeled and a bitmap of the support, all-reduced together; exact in norm, by rounding.

Rows are keys. Each is added to three cells of a table with about 1.3 cells for each row of the union; the merged bitmap
says which rows there are, and peeling reads all of their sums (H. Li et al., arXiv:2402.07529). Cells are fixed-point
numbers, whose sums are the same bits in any order. An element is off by at most half a unit, not by a share of itself:
beside one 1e9 times as large, int32 reads a fifth of normal elements as 0, and int64 none.

Ranks must agree on the size of the table and on the units before they encode. On a first step a small message does
that: an estimate of the union, and the largest magnitudes. Later steps carry both over and send with the cells how much
of the range was needed. Rows that could not be read, whose sums did not fit, or whose units turn out far too coarse are
known to all ranks alike, and go in a second message, as `s2sim.reducers.systems.exact_rows` sends all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from s2sim.arrays import Floats, Floats32
from s2sim.codecs.exact_sketch import CellType, ExactSketch
from s2sim.codecs.peeling import CELLS_PER_KEY, PeelTable
from s2sim.codecs.quantize import HEADROOM, range_usage
from s2sim.gradients.gradient import Gradient, RowSparse, to_dense
from s2sim.reducers.rank import ErrorBound, Program, Rank, Reduced, Waits, wait_all
from s2sim.reducers.shared import exact_sketch as exact
from s2sim.reducers.shared import row_sparse, sketch_tables, sparse_split
from s2sim.reducers.systems.exact_rows import Sparse

_Agreed = tuple[list[ExactSketch], list[Floats], exact.Exponents, bool]
"""The sketch of each table, bounds on the sums in each group, the exponents of its units, and whether these are the
step's own; if they are not, the bounds are on the rank's own values."""

_MAX_VALUES = 1 << 27  # Values whose magnitudes a first step tells apart: 4,096 groups, 32 kB


@dataclass(slots=True)
class S2Exact(Sparse):
    """A table of each compressed layer, peeled where the merged bitmap says; one round and, if need be, a second."""

    intervals: ClassVar = {"margin": "(0, inf)"}
    cells: float = CELLS_PER_KEY
    dtype: CellType = "int32"
    margin: float = 1.1
    bitmap: row_sparse.BitmapFormat = "packed"
    layers: sparse_split.Layers = "sparse"

    carried: list[exact.TableState] | None = field(init=False, repr=False, default=None)
    """What all ranks know from the last step, of each table."""
    last_error_bounds: list[float] | None = field(init=False, repr=False, default=None)
    """How far any element of the last mean can be from the exact one in each table, float32's own rounding aside;
    None for float32 cells, of which no bound is known."""
    last_again: int = field(init=False, repr=False, default=0)  # Rows that the last step sent again

    def __post_init__(self) -> None:
        Sparse.__post_init__(self)
        PeelTable.for_keys(0, cells_per_key=self.cells)

    def reduce_split(self, rank: Rank, split: sparse_split.SplitGradient) -> Program:
        tables = split.filled
        estimated = self.carried is None
        agree = self._agree_cold if estimated else self._agree_warm
        sketches, maxima, exponents, fresh = yield from agree(rank, tables)

        # The bitmap leaves while the cells are encoded. These are handed over at once: those of all ranks need not be
        # alive together.
        rank.work(row_sparse.mark_bitmap_cost(tables, self.bitmap))
        support = row_sparse.post_support(rank, tables, self.bitmap)
        rank.work(exact.encode_exact_cost(tables, sketches, carried=not fresh))
        units = [powers for powers in exponents if powers is not None]
        parts = () if fresh else tuple(range_usage(*pair, self.dtype) for pair in zip(maxima, units, strict=True))
        # Cells may wrap around, as long as the sum of each row fits: see `s2sim.codecs.quantize`.
        cells = rank.all_reduce(
            (exact.encode_tables(sketches, tables, exponents), parts),
            label="cells",
            size_from_data=estimated,
            wraps=True,
        )
        dense = split.post_dense(rank)

        # Which row is read where depends on the bitmap alone; the cells may still be on their way.
        yield support
        union = rank.replicated(lambda: row_sparse.union_rows(support.value, tables, self.bitmap))
        rounds = rank.replicated(lambda: max(map(exact.peel_rounds, sketches, union)))
        rank.work(exact.peel_order_cost(tables, sketches, self.bitmap, union, rounds))
        yield cells
        summed, parts = cells.value
        decoded = rank.replicated(lambda: exact.decode_tables(sketches, summed, union, exponents))
        rank.work(exact.read_peeled_cost(sketches, decoded, rounds))
        flags = None if fresh else rank.replicated(lambda: list(map(exact.groups_to_resend, parts, units)))
        again = rank.replicated(lambda: exact.rows_to_resend(sketches, union, decoded, flags))
        self.last_again = sum(map(len, again))
        self.carried, self.last_error_bounds = exact.next_table_state(union, maxima, exponents, flags, parts)

        # Whether rows are missing only the data tell: the host waits for that, also if there are none.
        resent: tuple[Floats32, ...] | None = None
        if not any(map(len, again)):
            rank.synchronise()
        else:
            packing, placing = exact.resent_costs(tables, again)
            rank.work(packing)
            packed = tuple(table.keep(rows) for table, rows in zip(tables, again, strict=True))
            resent = yield from rank.all_reduce(packed, label="rows sent again", size_from_data=True)
            rank.work(placing)
        yield from wait_all(dense)

        def mean() -> Gradient:
            sums = exact.replace_resent(tables, union, decoded, again, resent)
            return split.mean(split.with_empty(sums), dense, rank.size)

        def sent() -> Gradient:
            own_rows = [table.rows for table in tables]
            own_cells = [to_dense(cells) for cells in exact.encode_tables(sketches, tables, exponents)]
            own = exact.decode_tables(sketches, own_cells, own_rows, exponents)
            rank.work(exact.decode_own_exact_cost(tables, sketches, own))
            # What a rank cannot read of its own rows, it cannot read of all rows either.
            exact_rows = [np.intersect1d(rows, table.rows) for rows, table in zip(again, tables, strict=True)]
            exact_values = [table.keep(rows).to_dense() for table, rows in zip(tables, exact_rows, strict=True)]
            kept = exact.replace_resent(tables, own_rows, own, exact_rows, exact_values)
            return split.join(split.with_empty(kept), split.dense)

        return Reduced(rank.replicated(mean), sent)

    def learn(self, rank: Rank, gradient: Gradient) -> Waits[None]:
        """Merge the supports and exchange magnitudes: on a first step nothing else is carried over."""
        if tables := sparse_split.split_layers(rank, gradient, self.layers).filled:
            _, maxima, exponents, _ = yield from self._agree_cold(rank, tables)
            support = yield from row_sparse.post_support(rank, tables, self.bitmap)
            union = rank.replicated(lambda: row_sparse.union_rows(support, tables, self.bitmap))
            self.carried, self.last_error_bounds = exact.next_table_state(union, maxima, exponents, None, ())

    def notes(self) -> tuple[str, ...]:
        """Return, after a step, what rounding may have taken from its elements."""
        if (bound := self.error_bound()) is None:
            return ()
        most = max(bound.element, default=0.0)
        text = f"rounded to {self.dtype} units: elements are off by at most {most:.2g}, float32's rounding aside"
        return (f"{text}; smaller ones may come back as 0",)

    def error_bound(self) -> ErrorBound | None:
        """Return half a unit of the coarsest group.

        None for float32 cells, and where rows were sent again: those are float32 sums, of which no bound is known.
        """
        if self.last_error_bounds is None or self.last_again:
            return None
        return ErrorBound(
            element=tuple(self.last_error_bounds),
            relative=False,
            share=1.0,
            relative_l2=None,
            source="rounding to fixed-point units: half a unit a rank",
        )

    def _agree_cold(self, rank: Rank, tables: Sequence[RowSparse]) -> Waits[_Agreed]:
        """Exchange an estimate of the union and the largest magnitudes, at once.

        Magnitudes are those of as many groups as there could be; how many there will be is not known yet.
        """
        own: list[Floats] = []
        most = [min(table.shape[0], _MAX_VALUES / table.width) for table in tables]
        widest = rank.replicated(lambda: self._sketches(most, tables, rank.seed))
        if self.dtype != "float32":
            rank.work(exact.maxima_cost(tables, widest))
            own = exact.table_maxima(tables, widest)
        registers = sketch_tables.post_union_size(rank, tables)
        total = rank.all_reduce(tuple(own), label="largest magnitudes") if own else None
        yield from wait_all(registers, total)
        counts = sketch_tables.read_union_size(rank, registers, tables)

        def agreed() -> _Agreed:
            sketches = self._sketches(self._with_margin(counts, tables), tables, rank.seed)
            if total is None:
                return sketches, [], [None] * len(tables), True
            maxima = [exact.regroup_maxima(own, each.groups) for own, each in zip(total.value, sketches, strict=True)]
            return sketches, maxima, exact.table_exponents(maxima, self.dtype), True

        return rank.replicated(agreed)

    def _agree_warm(self, rank: Rank, tables: Sequence[RowSparse]) -> Waits[_Agreed]:
        """Take sizes and units from the last step; exchange magnitudes where its units did not serve."""
        assert self.carried is not None
        counts = self._with_margin([last.union for last in self.carried], tables)
        sketches = rank.replicated(lambda: self._sketches(counts, tables, rank.seed))
        if self.dtype == "float32":
            return sketches, [], [None] * len(tables), True
        own = exact.table_maxima(tables, sketches)
        known = [last.maxima for last in self.carried if last.maxima is not None]
        if len(known) == len(tables):
            bounds = [exact.regroup_maxima(last, sketch.groups) for last, sketch in zip(known, sketches, strict=True)]
            return sketches, own, rank.replicated(lambda: exact.table_exponents(bounds, self.dtype, HEADROOM)), False
        rank.work(exact.maxima_cost(tables, sketches))
        total = yield from rank.all_reduce(tuple(own), label="largest magnitudes")
        return sketches, list(total), exact.table_exponents(total, self.dtype), True

    def _with_margin(self, counts: Sequence[float], tables: Sequence[RowSparse]) -> list[float]:
        return [min(count * self.margin, table.shape[0]) for count, table in zip(counts, tables, strict=True)]

    def _sketches(self, keys: Sequence[float], tables: Sequence[RowSparse], seed: int) -> list[ExactSketch]:
        return [
            ExactSketch.for_keys(count, table.width, self.dtype, cells_per_key=self.cells, seed=seed)
            for count, table in zip(keys, tables, strict=True)
        ]
