"""How large count sketches have to be, so that nearly all hash seeds keep a relative error on the values at hand.

With one row the relative L2 error of what is read back is sqrt(keys read / columns), as RMS over hash seeds, for any
values. With more rows the median cuts off what large values leave in small ones, so that the error depends on the tail
of the values and no law is known. And around either it scatters from seed to seed, on heavy tails by multiples. So it
is measured on the values themselves: first the size is sought at which the median of some seeds has the error, then it
grows until the error is one that 95 % of all seeds keep, as far as those tried can tell.

How the sketches of several tables share the columns of one message, so that the whole error is least.

Let table t have N values in the union's rows with the sum of squares E, and c columns. What is read back of it has a
squared error of E (N / c)^p: p is 1 for one row, whatever the values; for a median of three rows and more it is near 2
on heavy tails (K. G. Larsen, R. Pagh, J. Tetek, arXiv:2102.02193: a variance of the squared L1 norm over c²). The least
sum over tables at a given sum of columns has c in proportion to (E N^p)^(1 / (p + 1)).

That alone would leave nothing of a table of small gradients, which may need its update as much as the others. So no
table gets less than a part of what it would have by its values alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, exp, floor, frexp, isfinite, log, sqrt
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from s2sim.arrays import Floats, Floats32
from s2sim.codecs.count_sketch import CountSketch
from s2sim.codecs.hashing import MAX_ROWS, HashKind
from s2sim.errors import OptionError, suggest_nearest
from s2sim.gradients.gradient import RowSparse
from s2sim.reducers.shared.row_sparse import BitmapFormat
from s2sim.seeds import named_generator

Preset: TypeAlias = Literal["authors-gnmt", "authors-lstm"]

_MAX_COLUMNS = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class PublishedSettings:
    """The part of the settings that only the authors' code has.

    ``density`` is the sigma that it assumes of every table, ``multiplier`` the rho by which it multiplies the assumed
    non-zeros, and ``seed`` that of its hash functions.
    """

    density: float
    multiplier: float
    seed: int = 42

    def columns(self, tables: Sequence[RowSparse]) -> list[int]:
        """Return the columns of each table's sketch: floor(n m sigma rho), at least 1."""
        return [max(1, floor(table.size * self.density * self.multiplier)) for table in tables]


@dataclass(frozen=True, slots=True)
class SketchSettings:
    """What S2 runs with.

    Attributes
    ----------
    cells : float or None
        Cells of all tables' sketches per non-zero of the union; None where the columns are fixed.
    columns : int or None
        Columns of all of them together, where they were set outright.
    margin : float or None
        Headroom on the last step's union; None where nothing is estimated.
    floor : float or None
        The least that a table gets of its share of the columns by values; None where they are not shared.
    bitmap, hash : str
        Format of the support and family of the hash functions.
    published : Published or None
        The authors' own sizes, in the authors' own order of collectives; None unless a preset was asked for.
    """

    rows: int = 3
    cells: float | None = 2.0
    columns: int | None = None
    margin: float | None = 1.1
    floor: float | None = 0.9
    bitmap: BitmapFormat = "packed"
    hash: HashKind = "mix"
    published: PublishedSettings | None = None

    def shares(self, tables: int) -> bool:
        """Return whether so many tables share the columns otherwise than by their values."""
        return tables > 1 and self.floor is not None and self.floor < 1

    def columns_for(self, union: float) -> int:
        """Return the columns of all tables' sketches together for a union of so many non-zeros."""
        assert self.cells is not None
        return max(1, ceil(self.cells * union / self.rows))


# github.com/GeKeShi/Sparse_Sketch_Reducer at October 2021: sigma and rho from its two configuration files, one row,
# float32 bitmaps, and the bucket hash of each of its two csvec.py.
PRESETS: dict[str, SketchSettings] = {
    "authors-gnmt": SketchSettings(
        1, None, None, None, None, "float32", "modulo", PublishedSettings(density=0.02, multiplier=0.25)
    ),
    "authors-lstm": SketchSettings(
        1, None, None, None, None, "float32", "product", PublishedSettings(density=0.01, multiplier=0.001)
    ),
}


def make_settings(preset: str | None, given: dict[str, Any]) -> SketchSettings:
    """Return the settings of the options that were given, by name.

    `OptionError` for a value out of range, and for an option that would change nothing beside the others.
    """
    if preset is not None:
        if preset not in PRESETS:
            raise OptionError(f"s2 has no preset {preset!r}{suggest_nearest(preset, PRESETS)}")
        if given:
            raise OptionError(f"s2: preset={preset} fixes {', '.join(given)}: leave out the preset or the option")
        return PRESETS[preset]
    if "columns" in given:
        for key in ("cells", "margin", "floor"):
            if key in given:
                raise OptionError(
                    f"s2: columns={given['columns']} sets the size outright, so {key} changes nothing: give one"
                )
        given = {**given, "cells": None, "margin": None, "floor": None}
    settings = SketchSettings(**given)
    _check(settings)
    return settings


def _check(settings: SketchSettings) -> None:
    if not 1 <= settings.rows <= MAX_ROWS:
        raise OptionError(f"s2: rows={settings.rows} is not between 1 and {MAX_ROWS}")
    if settings.columns is not None and not 1 <= settings.columns <= _MAX_COLUMNS:
        raise OptionError(f"s2: columns={settings.columns} is not between 1 and 2^32 - 1")
    for key, value in (("cells", settings.cells), ("margin", settings.margin)):
        if value is not None and not (value > 0 and isfinite(value)):
            raise OptionError(f"s2: {key}={value} is not a number above 0")
    if settings.floor is not None and not 0 <= settings.floor <= 1:
        raise OptionError(f"s2: floor={settings.floor} is not between 0 and 1")


def shared_columns(
    total: int, values: ArrayLike, energies: ArrayLike | None = None, *, rows: int = 1, floor: float = 1.0
) -> list[int]:
    """Return the columns of each table's sketch, at least one, ``total`` together unless that is too few for that.

    Parameters
    ----------
    total : int
        Columns of all tables together.
    values : array of shape (tables,)
        Values in the union's rows of each table, about.
    energies : array of shape (tables,), optional
        Sum of their squares, or what is in proportion to it; where nothing is known, columns are shared by values.
    rows : int
        Rows of the sketches.
    floor : float
        The least that a table gets, as a part of its share by values; 0 to 1.

    Examples
    --------
    >>> shared_columns(1000, [300, 700])
    [300, 700]
    >>> shared_columns(1000, [500, 500], [1, 9], rows=1, floor=0.2)
    [251, 749]
    """
    parts = _shares(np.asarray(values, np.float64), energies, 1 if rows < 3 else 2, floor)
    # Every table has one column, and the others are shared; rounding the partial sums keeps their number.
    ends = np.rint(np.cumsum(parts) * max(0, total - len(parts))).astype(np.int64)
    columns: list[int] = (1 + np.diff(ends, prepend=0)).tolist()
    return columns


def _shares(values: Floats, energies: ArrayLike | None, power: int, floor: float) -> Floats:
    """Return the share of each table, float64, 1 together."""
    by_values = values / values.sum() if values.any() else np.full(len(values), 1 / len(values))
    if energies is None or floor == 1:
        return by_values
    wish = (np.asarray(energies, np.float64) * values**power) ** (1 / (power + 1))
    if not wish.any():
        return by_values
    least = floor * by_values
    at_least = np.zeros(len(values), np.bool_)
    while True:
        free = 1 - least[at_least].sum()
        shares = np.where(at_least, least, wish * (free / wish[~at_least].sum()))
        too_few = ~at_least & (shares < least)
        if not too_few.any():
            return shares
        at_least |= too_few


ROW_CHOICES = (1, 3, 5)
"""Rows that are tried: an odd number, because an even one has two middle estimates."""

_SEARCH_SEEDS = 5
_MAX_SEEDS = 59
"""If one seed in 20 were above the error, so many would show one with a probability of 95 %."""
_MIN_SEEDS = 9
_MAX_HASHES = 1 << 24
"""For all seeds together, above the fewest: with many values the error scatters little."""

_MAX_KEYS = 1 << 20
"""Values that errors are measured on; of more, so many are drawn. With heavy tails the few largest decide: a fourth of
the values of a language model's gradient are off by 15 %."""

_SHORT = 0.97
"""What a first step's estimate of the union may leave of the cells: two standard errors less."""

_MIN_CELLS, _MAX_CELLS = 0.05, 4096.0
_STRIDE = 1.0
_PRECISION = 0.03
"""Of the logarithm of the cells."""
_SLOWEST, _FASTEST = 1.03, 1.25
"""Growth from one size that is tried to the next."""

_NORMAL_95 = 1.6449


@dataclass(frozen=True, slots=True)
class SketchSize:
    """A size, and what is known of its error.

    Attributes
    ----------
    rows, cells : int, float
        Rows of the sketches, and cells of all rows together per key read.
    error : float
        Relative L2 error of all values together that 95 % of all hash seeds keep.
    low, median, high : float
        Of the seeds that were tried.
    seeds : int
        How many they were.
    median_cells : float
        Cells at which half of the seeds keep the error.
    """

    rows: int
    cells: float
    error: float
    low: float = 0.0
    median: float = 0.0
    high: float = 0.0
    seeds: int = 0
    median_cells: float = 0.0

    def note(self) -> str:
        """Return all of it in words."""
        shape = f"{self.rows} row{'s' if self.rows > 1 else ''} and {self.cells:.3g} cells a value"
        return (
            f"sized to {shape}: 95 % of hash seeds keep an error of {self.error:g} on what is compressed ({self.seeds} "
            f"gave {self.low:.3g} to {self.high:.3g}, half of them up to {self.median:.3g}); for half of the seeds to "
            f"keep it, {self.median_cells:.3g} would do"
        )


def measured_errors(
    tables: Sequence[Floats32], rows: int, cells: float, seed: int, *, seeds: int, floor: float = 1.0
) -> Floats:
    """Return the relative L2 errors of all values of all tables together, read back, float64 of shape (seeds,).

    Each of ``tables`` is float32 of shape (k,), read from a sketch of its own; all have so many ``cells`` a value, of
    all rows, which they share down to ``floor`` (see `s2sim.reducers.shared.sketch_settings`). ``seed`` is the root of
    the
    hash seeds.
    """
    values = [len(table) for table in tables]
    energies = [_squared_norm(table.astype(np.float64)) for table in tables]
    columns = shared_columns(max(1, ceil(cells * sum(values) / rows)), values, energies, rows=rows, floor=floor)
    errors = []
    for hash_seed in named_generator(seed, "sketch sizing").integers(2**62, size=seeds).tolist():
        square = 0.0
        for table, count in zip(tables, columns, strict=True):
            keys = np.arange(len(table), dtype=np.uint32)
            sketch = CountSketch(rows, count, hash_seed)
            read = sketch.decode_keys(sketch.encode_keys(keys, table), keys)
            square += _squared_norm(read.astype(np.float64) - table)
        errors.append(sqrt(square / sum(energies)))
    return np.array(errors)


def _squared_norm(values: Floats) -> float:
    """Return the sum of the squares, without a BLAS: its threads would spin for longer than they compute."""
    return float(np.square(values).sum())


def size_for_error(
    tables: Sequence[Floats32], target: float, *, rows: Sequence[int] = ROW_CHOICES, floor: float = 1.0, seed: int = 0
) -> SketchSize:
    """Return the smallest sketches whose relative L2 error 95 % of all hash seeds keep below ``target``.

    ``tables`` are the values of the sums that are read back, float32 of shape (k,), not all of them zero; ``target`` is
    above 0 and below 1, ``rows`` are to be chosen among, and ``floor`` is what each table gets at least. `OptionError`
    for a target that no sketch of sensible size reaches.
    """
    if not 0 < target < 1:
        raise OptionError(f"a relative error of {target} was asked for: it must be above 0 and below 1")
    search = _Search(_sample_tables(tables, seed), target, floor, seed)
    halves = {count: cells for count in rows if (cells := search.median_cells(count)) is not None}
    best: SketchSize | None = None
    for count, cells in sorted(halves.items(), key=lambda item: item[1]):
        best = search.grown(count, cells, _MAX_CELLS if best is None else best.cells) or best
    if best is None:
        raise OptionError(
            f"a relative error of {target} was asked for: it takes more than {_MAX_CELLS:.0f} cells a value; "
            "send the union exactly instead (union)"
        )
    return best


def _sample_tables(tables: Sequence[Floats32], seed: int) -> list[Floats32]:
    """Return as many values of each table as errors can be measured on, at most 1 so that no sum of them overflows."""
    largest = max(float(np.abs(table).max(initial=0.0)) for table in tables)
    tables = [np.ldexp(table, -frexp(largest)[1]) for table in tables]
    total = sum(map(len, tables))
    if total <= _MAX_KEYS:
        return tables
    generator = named_generator(seed, "values for sizing")
    return [
        table[np.sort(generator.choice(len(table), ceil(len(table) * _MAX_KEYS / total), replace=False))]
        for table in tables
    ]


@dataclass(frozen=True, slots=True)
class _Search:
    """Where the error of some tables is the one asked for."""

    tables: list[Floats32]
    target: float
    floor: float
    seed: int

    def errors(self, rows: int, cells: float, seeds: int) -> Floats:
        return measured_errors(self.tables, rows, cells, self.seed, seeds=seeds, floor=self.floor)

    def median_cells(self, rows: int) -> float | None:
        """Return the cells at which half of the seeds keep the error, None where that is beyond reason."""

        @cache
        def too_few(log_cells: float) -> bool:
            return float(np.median(self.errors(rows, exp(log_cells), _SEARCH_SEEDS))) > self.target

        # Errors are nearly a power of the cells.
        low = high = -log(self.target)
        while too_few(high):
            low, high = high, high + _STRIDE
            if high > log(_MAX_CELLS):
                return None
        while not too_few(low) and low > log(_MIN_CELLS):
            low, high = low - _STRIDE, low
        while high - low > _PRECISION:
            middle = (low + high) / 2
            low, high = (middle, high) if too_few(middle) else (low, middle)
        return exp(high)

    def grown(self, rows: int, median_cells: float, most_cells: float) -> SketchSize | None:
        """Return the size from there on that 95 % of all seeds keep the error with, None if it is ``most_cells``."""
        keys = sum(map(len, self.tables))
        seeds = min(_MAX_SEEDS, max(_MIN_SEEDS, _MAX_HASHES // (rows * keys)))
        cells = median_cells
        while cells / _SHORT < most_cells:
            errors = self.errors(rows, cells, seeds)
            over = _error_quantile_95(errors) / self.target
            if over <= 1:
                low, median, high = np.quantile(errors, [0, 0.5, 1]).tolist()
                return SketchSize(rows, cells / _SHORT, self.target, low, median, high, seeds, median_cells)
            # One row errs by the root of the cells, more on heavy tails by nearly the cells.
            cells *= min(_FASTEST, max(_SLOWEST, over**2 if rows < 3 else over))
        return None


def _error_quantile_95(errors: Floats) -> float:
    """Return an error that 95 % of all seeds keep, with a confidence of about 95 %, from those of some.

    All of them must, and so must a normal distribution with their mean and deviation (M. G. Natrella, "Experimental
    Statistics", NBS Handbook 91, 1963, section 2-2.3), which is what counts where seeds are few.
    """
    count, square = len(errors), _NORMAL_95**2
    a, b = 1 - square / (2 * (count - 1)), square - square / count
    factor = (_NORMAL_95 + sqrt(square - a * b)) / a
    return max(float(errors.max()), float(errors.mean() + factor * errors.std(ddof=1)))
