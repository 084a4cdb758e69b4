"""S2 Reducer: a count sketch of the values and a bitmap of the support, both all-reduced, in flight together.

Sketches add up, so that the sum of all ranks' sketches is the sketch of their sum; the merged bitmap says which rows to
read from it. Neither message waits for the other and, once the size of the union is known, none waits for a host: that
is the case for S2. What it costs is accuracy. With one row the recovered sum is off by sqrt(keys read / columns) in
relative L2, whatever the values.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any, ClassVar, Self

from s2sim.codecs import count_sketch, hashing
from s2sim.errors import OptionError, warn
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.rank import ErrorBound, Program, Rank, Reduced, Traits, Waits, wait_all
from s2sim.reducers.shared import row_sparse, sketch_settings, sparse_split
from s2sim.reducers.shared import sketch_tables as sketched
from s2sim.reducers.systems.exact_rows import Sparse


@dataclass(slots=True)
class S2(Sparse):
    """A count sketch of each compressed layer, read where the merged bitmap says; one round, lossy.

    None stands for "not given": options that another one fixes or makes idle are refused.
    """

    rows: int | None = None
    cells: float | None = None
    columns: int | None = None
    bitmap: row_sparse.BitmapFormat | None = None
    hash: hashing.HashKind | None = None
    intervals: ClassVar = {"error": "(0, 1)"}
    needs: ClassVar = dict.fromkeys(("cells", "columns", "preset"), "error=none")
    layers: sparse_split.Layers = "sparse"
    margin: float | None = None
    floor: float | None = None
    preset: sketch_settings.Preset | None = None
    error: float | None = None

    settings: sketch_settings.SketchSettings = field(init=False, repr=False, metadata={"fitted": True})
    known: sketched.UnionStatistics | None = field(init=False, repr=False, default=None)
    """What all ranks know from the last step, of each table."""
    last_columns: list[int] | None = field(init=False, repr=False, default=None)  # Columns of the last step's sketches
    sizing: sketch_settings.SketchSize | None = field(init=False, repr=False, default=None, metadata={"fitted": True})
    """How ``error`` was turned into a size."""

    def __post_init__(self) -> None:
        Sparse.__post_init__(self)
        options = {key: getattr(self, key) for key in ("rows", "cells", "columns", "margin", "floor", "bitmap", "hash")}
        self.settings = sketch_settings.make_settings(
            self.preset, {key: value for key, value in options.items() if value is not None}
        )

    def reduce_split(self, rank: Rank, split: sparse_split.SplitGradient) -> Program:
        if self.error is not None and self.sizing is None:
            raise OptionError(f"s2: error={self.error} is sized on gradients first: see Reducer.fitted")
        tables, settings = split.filled, self.settings
        if self.floor is not None and len(tables) == 1 and rank.index == 0 and rank.step == 0:
            warn(f"s2: floor={self.floor:g} changes nothing: there is one table, and it gets all cells")
        # Posted at once, cells, support and dense layers are one launch; the authors' code waits for each in turn and
        # decodes while the dense layers travel.
        one_by_one = settings.published is not None
        known, headroom = self.known, settings.margin or 1.0
        estimated = known is None and settings.margin is not None
        if estimated:
            registers = sketched.post_union_size(rank, tables)
            energies = yield from sketched.exchange_energies(rank, tables, settings, registers)
            size = sketched.read_union_size(rank, registers, tables)
            known, headroom = sketched.UnionStatistics(sketched.count_values(size, tables), energies), 1.0
        sketches = sketched.choose_sketches(rank, tables, settings, known, headroom)

        rank.work(sketched.encode_cost(tables, sketches, settings))
        # The cells are handed over at once: those of all ranks need not be alive together.
        cells = rank.all_reduce(sketched.encode_sketches(sketches, tables), label="cells", size_from_data=estimated)
        if one_by_one:
            yield cells
        support = row_sparse.post_support(rank, tables, settings.bitmap)
        if one_by_one:
            yield support
        dense = split.post_dense(rank)
        yield cells & support

        union = rank.replicated(lambda: row_sparse.union_rows(support.value, tables, settings.bitmap))
        rank.work(sketched.decode_cost(tables, union, sketches, settings))
        sums = rank.replicated(lambda: sketched.decode_sketches(sketches, cells.value, tables, union))
        self.last_columns = [sketch.columns for sketch in sketches]
        self.known = sketched.next_statistics(rank, tables, settings, union, cells.value)
        yield from wait_all(dense)

        def sent() -> Gradient:
            rank.work(sketched.decode_own_cost(tables, sketches))
            own_rows = [table.rows for table in tables]
            own = sketched.decode_sketches(sketches, sketched.encode_sketches(sketches, tables), tables, own_rows)
            return split.join(split.with_empty(own), split.dense)

        return Reduced(rank.replicated(lambda: split.mean(split.with_empty(sums), dense, rank.size)), sent)

    def learn(self, rank: Rank, gradient: Gradient) -> Waits[None]:
        """Merge the supports: later steps are sized by the union, and by the tables' energies as a first step is."""
        if tables := sparse_split.split_layers(rank, gradient, self.layers).filled:
            support = row_sparse.post_support(rank, tables, self.settings.bitmap)
            energies = yield from sketched.exchange_energies(rank, tables, self.settings, support)
            union = rank.replicated(lambda: row_sparse.union_rows(support.value, tables, self.settings.bitmap))
            self.known = sketched.UnionStatistics(sketched.count_values(map(len, union), tables), energies)

    @property
    def traits(self) -> Traits:
        """The size of the union is carried over unless the columns are fixed."""
        return replace(self.about, carries=self.settings.margin is not None)

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> Self:
        if self.error is None:
            return self
        tables = sketched.union_sums(gradients, sparse_split.compressed_layers(gradients[0], self.layers))
        settings, sized = self.settings, self.fresh()
        sized.sizing = sketch_settings.SketchSize(settings.rows, settings.cells or 1.0, self.error)
        if any(table.any() for table in tables):
            rows = sketch_settings.ROW_CHOICES if self.rows is None else (self.rows,)
            sized.sizing = sketch_settings.size_for_error(
                tables, self.error, rows=rows, floor=settings.floor or 0.0, seed=seed
            )
            sized.settings = replace(settings, rows=sized.sizing.rows, cells=sized.sizing.cells)
        return sized

    def notes(self) -> tuple[str, ...]:
        return () if self.sizing is None or not self.sizing.seeds else (self.sizing.note(),)

    def error_bound(self) -> ErrorBound | None:
        """Return the theorem of the sketch; None for the authors' hash functions, which do not meet its conditions."""
        if self.known is None or self.last_columns is None or self.settings.hash != "mix":
            return None
        return count_sketch_bound(self.settings.rows, self.last_columns, self.known.values)

    def later_options(self) -> tuple[str, ...]:
        """Return ``margin`` if it was given: a first step estimates the union."""
        return () if self.margin is None else ("margin",)

    def options(self) -> dict[str, Any]:
        used = {key: getattr(self.settings, key) for key in ("rows", "cells", "columns", "floor", "bitmap", "hash")}
        chosen = {"layers": self.layers, "margin": self.settings.margin, "preset": self.preset, "error": self.error}
        return used | chosen


def count_sketch_bound(rows: int, columns: Sequence[int], keys: Iterable[float]) -> ErrorBound:
    """Return what is known of the count sketches of several layers, from which so many ``keys`` of each are read.

    With c = 3/e² columns, an estimate of one row is off by more than e times the L2 norm with probability at most 1/3
    (Charikar, Chen and Farach-Colton, ICALP 2002, lemma 4 in the form that codes use). The median of several rows is
    off by more only if half of them are; rows are taken to be independent, as those of ideal hash functions.

    >>> bound = count_sketch_bound(3, columns=[1200, 300], keys=[2400, 90])
    >>> bound.element, round(bound.share, 3), bound.relative_l2
    ((0.05, 0.1), 0.741, None)
    """
    element = tuple(sqrt(3 / count) for count in columns)
    laws = tuple(count_sketch.rms_relative_error(*pair) for pair in zip(keys, columns, strict=True))
    return ErrorBound(
        element=element,
        relative=True,
        share=1 - count_sketch.tail_probability(rows, columns[0], element[0]),
        relative_l2=laws if rows == 1 else None,
        source="Charikar, Chen and Farach-Colton, ICALP 2002; for one row the variance of its estimates",
    )
