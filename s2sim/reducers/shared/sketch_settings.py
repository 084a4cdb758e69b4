"""Options of S2, the columns that each table's count sketch gets, and sizes for a given error."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, exp, frexp, log, sqrt
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from s2sim.arrays import Floats, Floats32
from s2sim.codecs import count_sketch, hashing
from s2sim.errors import OptionError, suggest_nearest
from s2sim.options import check_intervals
from s2sim.reducers.shared.row_sparse import BitmapFormat
from s2sim.seeds import named_generator

Preset: TypeAlias = Literal["authors-gnmt", "authors-lstm"]

_MAX_COLUMNS = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class SketchSettings:
    """Options of S2 with their values in effect."""

    rows: int = 3
    cells: float | None = 2.0  # Of all tables' sketches per non-zero of the union; None for fixed columns
    columns: int | None = None  # Of all tables together, if fixed
    margin: float | None = 1.1  # Headroom on the last step's union; None if nothing is estimated
    floor: float | None = 0.9  # Least part of a table's share of the columns by values; None if they are not shared
    bitmap: BitmapFormat = "packed"
    hash: hashing.HashKind = "mix"
    # Sizes of the authors' code, with its order of collectives: sigma, the density that is assumed of every table, and
    # rho, columns for each of the assumed non-zeros
    published: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        sizes = {"rows": f"[1, {hashing.MAX_ROWS}]", "columns": f"[1, {_MAX_COLUMNS}]"}
        check_intervals(self, "s2", sizes | {"cells": "(0, inf)", "margin": "(0, inf)", "floor": "[0, 1]"})

    def shares(self, tables: int) -> bool:
        """Return whether the columns are shared by the tables' energies too, not by their values alone."""
        return tables > 1 and self.floor is not None and self.floor < 1


# github.com/GeKeShi/Sparse_Sketch_Reducer at October 2021: sigma and rho from its two configuration files, one row,
# float32 bitmaps, and the bucket hash of each of its two csvec.py.
PUBLISHED_SEED = 42
PRESETS: dict[str, SketchSettings] = {
    "authors-gnmt": SketchSettings(1, None, None, None, None, "float32", "modulo", (0.02, 0.25)),
    "authors-lstm": SketchSettings(1, None, None, None, None, "float32", "product", (0.01, 0.001)),
}


def make_settings(preset: str | None, given: dict[str, Any]) -> SketchSettings:
    """Return the settings of the ``given`` options, by name.

    `OptionError` for a value out of range, and for an option that has no effect with the others.
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
                text = f"s2: columns={given['columns']} sets the size outright, so {key} changes nothing: give one"
                raise OptionError(text)
        given = {**given, "cells": None, "margin": None, "floor": None}
    return SketchSettings(**given)


def shared_columns(
    total: int, values: ArrayLike, energies: ArrayLike | None = None, *, rows: int = 1, floor: float = 1.0
) -> list[int]:
    """Return the columns of each table's sketch, at least one, together ``total`` if that suffices.

    With c columns, N ``values`` in the union's rows and the sum of squares E, a table is read back with a squared error
    of E (N / c)^p: p is 1 for one row; for a median of three rows and more it is near 2 on heavy tails (K. G. Larsen,
    R. Pagh, J. Tetek, arXiv:2102.02193). The sum over tables is least for c in proportion to (E N^p)^(1 / (p + 1)). So
    that tables of small gradients keep columns, no table gets less than ``floor`` (0 to 1) times its share by values.
    N and E, of shape (tables,), may have a common factor; without ``energies`` columns are shared by values.

    >>> shared_columns(1000, [300, 700])
    [300, 700]
    >>> shared_columns(1000, [500, 500], [1, 9], rows=1, floor=0.2)
    [251, 749]
    """
    parts = _shares(np.asarray(values, np.float64), energies, 1 if rows < 3 else 2, floor)
    # Each table has one column, and the others are shared; rounding the partial sums keeps their number.
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
"""Rows that are tried; odd, because an even number has two middle estimates."""

_SEARCH_SEEDS = 5
_MAX_SEEDS = 59  # If one seed in 20 is above the error, 59 seeds contain such a one with a probability of 95 %
_MIN_SEEDS = 9
_MAX_HASHES = 1 << 24
"""Of all seeds together, if they are more than the minimum: with many values the error varies little."""

_MAX_KEYS = 1 << 20
"""Maximum of values that errors are measured on; more are sampled. Heavy tails depend on their few largest values: for
a sampled fourth of a language model's gradient the error differs by 15 %."""

_SHORT = 0.97  # Cells in the first step, as a share: its estimate of the union may be two standard errors low

_MIN_CELLS, _MAX_CELLS = 0.05, 4096.0
_STRIDE = 1.0
_PRECISION = 0.03  # In the logarithm of the cells
_SLOWEST, _FASTEST = 1.03, 1.25  # Growth between sizes that are tried

_NORMAL_95 = 1.6449

_Errors: TypeAlias = "Callable[[int, float, int], Floats]"
"""Errors for a number of rows, cells per value and number of seeds."""


@dataclass(frozen=True, slots=True)
class SketchSize:
    """A size of sketches and the statistics of its error."""

    rows: int
    cells: float  # Of all rows together per key read
    error: float  # Relative L2 error of all values together that 95 % of all hash seeds keep
    low: float = 0.0  # Errors over the seeds that were tried
    median: float = 0.0
    high: float = 0.0
    seeds: int = 0
    median_cells: float = 0.0  # Cells at which half of the seeds keep the error

    def note(self) -> str:
        """Return the size and its error as a sentence."""
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

    Each of ``tables``, float32 of shape (k,), has its own sketch; they share ``cells`` per value, of all rows, as in
    `shared_columns`. ``seed`` is the root of the hash seeds.
    """
    values = [len(table) for table in tables]
    # Squares are summed without a BLAS, whose threads would spin for longer than they compute.
    energies = [float(np.square(table.astype(np.float64)).sum()) for table in tables]
    columns = shared_columns(max(1, ceil(cells * sum(values) / rows)), values, energies, rows=rows, floor=floor)
    errors = []
    for hash_seed in named_generator(seed, "sketch sizing").integers(2**62, size=seeds).tolist():
        square = 0.0
        for table, count in zip(tables, columns, strict=True):
            keys = np.arange(len(table), dtype=np.uint32)
            sketch = count_sketch.CountSketch(rows, count, hash_seed)
            read = sketch.decode_keys(sketch.encode_keys(keys, table), keys)
            square += float(np.square(read.astype(np.float64) - table).sum())
        errors.append(sqrt(square / sum(energies)))
    return np.array(errors)


def size_for_error(
    tables: Sequence[Floats32], target: float, *, rows: Sequence[int] = ROW_CHOICES, floor: float = 1.0, seed: int = 0
) -> SketchSize:
    """Return the smallest sketches whose relative L2 error 95 % of all hash seeds keep below ``target``.

    With one row the RMS error over hash seeds is sqrt(keys read / columns) for any values; with more rows the error
    depends on the tail of the values. In both cases it varies from seed to seed, on heavy tails by multiples. So it is
    measured: the size at which the median of some seeds has the error is searched first, then it grows.

    ``tables``, float32 of shape (k,), are the values of the sums that are read back, not all of them zero; ``rows`` are
    candidates. `OptionError` unless the target is between 0 and 1 and a sketch of sensible size reaches it.
    """
    if not 0 < target < 1:
        raise OptionError(f"a relative error of {target} was asked for: it must be above 0 and below 1")
    sampled = _sample_tables(tables, seed)
    keys = sum(map(len, sampled))

    def errors(count: int, cells: float, seeds: int) -> Floats:
        return measured_errors(sampled, count, cells, seed, seeds=seeds, floor=floor)

    halves = {count: cells for count in rows if (cells := _median_cells(errors, count, target)) is not None}
    best: SketchSize | None = None
    for count, cells in sorted(halves.items(), key=lambda item: item[1]):
        best = _grow(errors, count, cells, target, keys, _MAX_CELLS if best is None else best.cells) or best
    if best is None:
        raise OptionError(
            f"a relative error of {target} was asked for: it takes more than {_MAX_CELLS:.0f} cells a value; "
            "send the union exactly instead (union)"
        )
    return best


def _sample_tables(tables: Sequence[Floats32], seed: int) -> list[Floats32]:
    """Return at most `_MAX_KEYS` values of the tables, scaled to at most 1 so that no sum of them overflows."""
    largest = max(float(np.abs(table).max(initial=0.0)) for table in tables)
    tables = [np.ldexp(table, -frexp(largest)[1]) for table in tables]
    if (total := sum(map(len, tables))) <= _MAX_KEYS:
        return tables
    generator = named_generator(seed, "values for sizing")
    return [
        table[np.sort(generator.choice(len(table), ceil(len(table) * _MAX_KEYS / total), replace=False))]
        for table in tables
    ]


def _median_cells(errors: _Errors, rows: int, target: float) -> float | None:
    """Return the cells at which half of the seeds keep the error, None if they are more than is sensible."""

    @cache
    def too_few(log_cells: float) -> bool:
        return float(np.median(errors(rows, exp(log_cells), _SEARCH_SEEDS))) > target

    # Errors are nearly a power of the cells.
    low = high = -log(target)
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


def _grow(errors: _Errors, rows: int, median_cells: float, target: float, keys: int, most: float) -> SketchSize | None:
    """Return the first size from ``median_cells`` on with which 95 % of all seeds keep the error, None if too large."""
    seeds = min(_MAX_SEEDS, max(_MIN_SEEDS, _MAX_HASHES // (rows * keys)))
    cells = median_cells
    while cells / _SHORT < most:
        measured = errors(rows, cells, seeds)
        over = _error_quantile_95(measured) / target
        if over <= 1:
            low, median, high = np.quantile(measured, [0, 0.5, 1]).tolist()
            return SketchSize(rows, cells / _SHORT, target, low, median, high, seeds, median_cells)
        # Errors fall with the root of the cells for one row, nearly with the cells for more rows on heavy tails.
        cells *= min(_FASTEST, max(_SLOWEST, over**2 if rows < 3 else over))
    return None


def _error_quantile_95(errors: Floats) -> float:
    """Return an error that 95 % of all seeds keep, with a confidence of about 95 %, from a sample of seeds.

    The largest one, or the tolerance limit of a normal distribution if that is larger, which it is for few seeds (M. G.
    Natrella, "Experimental Statistics", NBS Handbook 91, 1963, section 2-2.3).
    """
    count, square = len(errors), _NORMAL_95**2
    a, b = 1 - square / (2 * (count - 1)), square - square / count
    factor = (_NORMAL_95 + sqrt(square - a * b)) / a
    return max(float(errors.max()), float(errors.mean() + factor * errors.std(ddof=1)))
