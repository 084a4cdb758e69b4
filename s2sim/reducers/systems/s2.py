"""S2 Reducer: a count sketch of the values and a bitmap of the support, both all-reduced, in flight together.

Sketches add up, so that the sum of all ranks' sketches is the sketch of their sum; the merged bitmap says which rows to
read from it. Neither message waits for the other and, once the size of the union is known, none waits for a host: that
is the case for S2. What it costs is accuracy. With one row the recovered sum is off by sqrt(keys read / columns) in
relative L2, whatever the values.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any

from s2sim.codecs.count_sketch import rms_relative_error, tail_probability
from s2sim.codecs.hashing import HashKind
from s2sim.errors import OptionError, S2SimWarning
from s2sim.gradients.gradient import Gradient
from s2sim.options import option
from s2sim.reducers.rank import ErrorBound, Pending, Program, Rank, Reduced, Traits, wait_all
from s2sim.reducers.shared import sketch_tables as sketched
from s2sim.reducers.shared.row_sparse import BitmapFormat, post_support, union_rows
from s2sim.reducers.shared.sketch_settings import (
    ROW_CHOICES,
    Preset,
    SketchSettings,
    SketchSize,
    make_settings,
    size_for_error,
)
from s2sim.reducers.shared.sparse_split import Layers, SplitGradient, compressed_layers, split_layers
from s2sim.reducers.systems.exact_rows import Sparse


@dataclass(slots=True)
class S2(Sparse):
    """A count sketch of each compressed layer, read where the merged bitmap says; one round, lossy.

    None stands for "not given": options that another one fixes or makes idle are refused.
    """

    rows: int | None = option(None, "Rows of the sketches, of which decoding takes the median; 3 unless given.")
    cells: float | None = option(
        None,
        "Cells of all sketches, all rows together, per non-zero of the union; 2 unless given. A step takes the last "
        "one's union times ``margin``; the first exchanges an estimate of its own.",
    )
    columns: int | None = option(
        None,
        "Columns of all sketches together, set outright; then nothing is estimated, and tables share them by size.",
    )
    bitmap: BitmapFormat | None = option(
        None, "How the support travels, see `s2sim.reducers.shared.row_sparse`; packed unless given."
    )
    hash: HashKind | None = option(None, "Family of hash functions, see `s2sim.codecs.hashing`; mix unless given.")
    layers: Layers = "sparse"
    margin: float | None = option(None, "Headroom on the last step's union; 1.1 unless given.")
    floor: float | None = option(
        None,
        "The least that a table gets of its share of the cells by values; 0.9 unless given. The rest goes where it "
        "lessens the error of the whole most, see `s2sim.reducers.shared.sketch_settings`.",
    )
    preset: Preset | None = option(
        None,
        "The settings and the order of collectives of the authors' published code. It zeroes its table before each "
        "step and uses the result, as that code was meant to.",
    )
    error: float | None = option(
        None,
        "Relative L2 error that 95 % of hash seeds keep on the sums of the gradients at hand: the sketches are "
        "sized so, see `s2sim.reducers.shared.sketch_settings`. Rows too are chosen, unless they are given.",
    )

    settings: SketchSettings = field(init=False, repr=False, metadata={"fitted": True})
    known: sketched.UnionStatistics | None = field(init=False, repr=False, default=None)
    """What all ranks know from the last step, of each table."""
    last_columns: list[int] | None = field(init=False, repr=False, default=None)  # Columns of the last step's sketches
    sizing: SketchSize | None = field(init=False, repr=False, default=None, metadata={"fitted": True})
    """How ``error`` was turned into a size."""

    about = Traits(
        name="s2",
        summary="a count sketch of each table and a bitmap of the support, all-reduced together: one round, lossy",
        source="Ge et al., S2 Reducer, arXiv:2110.02140; github.com/GeKeShi/Sparse_Sketch_Reducer",
        granularity="element, with a bit of a bitmap for each row",
        feedback="needed",
        formula="2(P-1)/P (4 cells + rows/8)",
        certainty="code read",
        adds_up=False,
    )

    def __post_init__(self) -> None:
        Sparse.__post_init__(self)
        if self.error is not None:
            for key in ("cells", "columns", "preset"):
                if getattr(self, key) is not None:
                    raise OptionError(f"s2: error={self.error} chooses the size, so {key} changes nothing: give one")
            if not 0 < self.error < 1:
                raise OptionError(f"s2: error={self.error} is not between 0 and 1")
        options = {key: getattr(self, key) for key in ("rows", "cells", "columns", "margin", "floor", "bitmap", "hash")}
        self.settings = make_settings(self.preset, {key: value for key, value in options.items() if value is not None})

    def reduce_split(self, rank: Rank, split: SplitGradient) -> Program:
        """Sketch, sum the sketches and merge the supports at once, read the sum where the support says."""
        if self.error is not None and self.sizing is None:
            raise OptionError(f"s2: error={self.error} is sized on gradients first: see Reducer.fitted")
        tables, settings = split.filled, self.settings
        if self.floor is not None and len(tables) == 1 and rank.index == 0 and rank.step == 0:
            text = f"s2: floor={self.floor:g} changes nothing: there is one table, and it gets all cells"
            warnings.warn(text, S2SimWarning, stacklevel=2)
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
        support = post_support(rank, tables, settings.bitmap)
        if one_by_one:
            yield support
        dense = split.post_dense(rank)
        yield cells & support

        union = rank.replicated(lambda: union_rows(support.value, tables, settings.bitmap))
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

    def learn(self, rank: Rank, gradient: Gradient) -> Generator[Pending, None, None]:
        """Merge the supports: later steps are sized by the union, and by the tables' energies as a first step is."""
        tables = split_layers(rank, gradient, self.layers).filled
        if tables:
            support = post_support(rank, tables, self.settings.bitmap)
            energies = yield from sketched.exchange_energies(rank, tables, self.settings, support)
            union = rank.replicated(lambda: union_rows(support.value, tables, self.settings.bitmap))
            self.known = sketched.UnionStatistics(sketched.count_values(map(len, union), tables), energies)

    @property
    def traits(self) -> Traits:
        """The size of the union is carried over unless the columns are fixed."""
        return replace(self.about, carries=self.settings.margin is not None)

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> S2:
        """Return the sketch that has the error asked for on the sum of these gradients."""
        if self.error is None:
            return self
        tables = sketched.union_sums(gradients, compressed_layers(gradients[0], self.layers))
        settings, sized = self.settings, self.fresh()
        sized.sizing = SketchSize(settings.rows, settings.cells or 1.0, self.error)
        if any(table.any() for table in tables):
            rows = ROW_CHOICES if self.rows is None else (self.rows,)
            sized.sizing = size_for_error(tables, self.error, rows=rows, floor=settings.floor or 0.0, seed=seed)
            sized.settings = replace(settings, rows=sized.sizing.rows, cells=sized.sizing.cells)
        return sized

    def notes(self) -> tuple[str, ...]:
        """Return what a size was chosen for."""
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
        """Return every option with the value it has in effect."""
        effective = {
            key: getattr(self.settings, key) for key in ("rows", "cells", "columns", "floor", "bitmap", "hash")
        }
        chosen = {"layers": self.layers, "margin": self.settings.margin, "preset": self.preset, "error": self.error}
        return effective | chosen


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
    laws = tuple(rms_relative_error(*pair) for pair in zip(keys, columns, strict=True))
    return ErrorBound(
        element=element,
        relative=True,
        share=1 - tail_probability(rows, columns[0], element[0]),
        relative_l2=laws if rows == 1 else None,
        source="Charikar, Chen and Farach-Colton, ICALP 2002; for one row the variance of its estimates",
    )
