"""How large count sketches have to be, so that nearly all hash seeds keep a relative error on the values at hand.

With one row the relative L2 error of what is read back is sqrt(keys read / columns), as RMS over hash seeds, for any
values. With more rows the median cuts off what large values leave in small ones, so that the error depends on the tail
of the values and no law is known. And around either it scatters from seed to seed, on heavy tails by multiples. So it
is measured on the values themselves: first the size is sought at which the median of some seeds has the error, then it
grows until the error is one that 95 % of all seeds keep, as far as those tried can tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, exp, frexp, log, sqrt
from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.count_sketch import CountSketch
from s2sim.errors import OptionError
from s2sim.reducers.sketching.shares import shared_columns
from s2sim.seeds import named_generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Floats, Floats32


ROW_CHOICES = (1, 3, 5)
"""Rows that are tried: an odd number, because an even one has two middle estimates."""

_SEARCH_SEEDS = 5
_MOST_SEEDS = 59
"""If one seed in 20 were above the error, so many would show one with a probability of 95 %."""
_FEWEST_SEEDS = 9
_MOST_HASHES = 1 << 24
"""For all seeds together, above the fewest: with many values the error scatters little."""

_MOST_KEYS = 1 << 20
"""Values that errors are measured on; of more, so many are drawn. With heavy tails the few largest decide: a fourth of
the values of a language model's gradient are off by 15 %."""

_SHORT = 0.97
"""What a first step's estimate of the union may leave of the cells: two standard errors less."""

_FEWEST_CELLS, _MOST_CELLS = 0.05, 4096.0
_STRIDE = 1.0
_PRECISION = 0.03
"""Of the logarithm of the cells."""
_SLOWEST, _FASTEST = 1.03, 1.25
"""Growth from one size that is tried to the next."""

_NORMAL_95 = 1.6449


@dataclass(frozen=True, slots=True)
class Sizing:
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
    all rows, which they share down to ``floor`` (see `s2sim.reducers.sketching.shares`). ``seed`` is the root of the
    hash seeds.
    """
    values = [len(table) for table in tables]
    energies = [_square(table.astype(np.float64)) for table in tables]
    columns = shared_columns(max(1, ceil(cells * sum(values) / rows)), values, energies, rows=rows, floor=floor)
    errors = []
    for hash_seed in named_generator(seed, "sketch sizing").integers(2**62, size=seeds).tolist():
        square = 0.0
        for table, count in zip(tables, columns, strict=True):
            keys = np.arange(len(table), dtype=np.uint32)
            sketch = CountSketch(rows, count, hash_seed)
            read = sketch.decode_keys(sketch.encode_keys(keys, table), keys)
            square += _square(read.astype(np.float64) - table)
        errors.append(sqrt(square / sum(energies)))
    return np.array(errors)


def _square(values: Floats) -> float:
    """Return the sum of the squares, without a BLAS: its threads would spin for longer than they compute."""
    return float(np.square(values).sum())


def size_for_error(
    tables: Sequence[Floats32], target: float, *, rows: Sequence[int] = ROW_CHOICES, floor: float = 1.0, seed: int = 0
) -> Sizing:
    """Return the smallest sketches whose relative L2 error 95 % of all hash seeds keep below ``target``.

    ``tables`` are the values of the sums that are read back, float32 of shape (k,), not all of them zero; ``target`` is
    above 0 and below 1, ``rows`` are to be chosen among, and ``floor`` is what each table gets at least. `OptionError`
    for a target that no sketch of sensible size reaches.
    """
    if not 0 < target < 1:
        raise OptionError(f"a relative error of {target} was asked for: it must be above 0 and below 1")
    search = _Search(_drawn(tables, seed), target, floor, seed)
    halves = {count: cells for count in rows if (cells := search.median_cells(count)) is not None}
    best: Sizing | None = None
    for count, cells in sorted(halves.items(), key=lambda item: item[1]):
        best = search.grown(count, cells, _MOST_CELLS if best is None else best.cells) or best
    if best is None:
        raise OptionError(
            f"a relative error of {target} was asked for: it takes more than {_MOST_CELLS:.0f} cells a value; "
            "send the union exactly instead (union)"
        )
    return best


def _drawn(tables: Sequence[Floats32], seed: int) -> list[Floats32]:
    """Return as many values of each table as errors can be measured on, at most 1 so that no sum of them overflows."""
    largest = max(float(np.abs(table).max(initial=0.0)) for table in tables)
    tables = [np.ldexp(table, -frexp(largest)[1]) for table in tables]
    total = sum(map(len, tables))
    if total <= _MOST_KEYS:
        return tables
    generator = named_generator(seed, "values for sizing")
    return [
        table[np.sort(generator.choice(len(table), ceil(len(table) * _MOST_KEYS / total), replace=False))]
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
            if high > log(_MOST_CELLS):
                return None
        while not too_few(low) and low > log(_FEWEST_CELLS):
            low, high = low - _STRIDE, low
        while high - low > _PRECISION:
            middle = (low + high) / 2
            low, high = (middle, high) if too_few(middle) else (low, middle)
        return exp(high)

    def grown(self, rows: int, median_cells: float, most_cells: float) -> Sizing | None:
        """Return the size from there on that 95 % of all seeds keep the error with, None if it is ``most_cells``."""
        keys = sum(map(len, self.tables))
        seeds = min(_MOST_SEEDS, max(_FEWEST_SEEDS, _MOST_HASHES // (rows * keys)))
        cells = median_cells
        while cells / _SHORT < most_cells:
            errors = self.errors(rows, cells, seeds)
            over = _kept_by_95_percent(errors) / self.target
            if over <= 1:
                low, median, high = np.quantile(errors, [0, 0.5, 1]).tolist()
                return Sizing(rows, cells / _SHORT, self.target, low, median, high, seeds, median_cells)
            # One row errs by the root of the cells, more on heavy tails by nearly the cells.
            cells *= min(_FASTEST, max(_SLOWEST, over**2 if rows < 3 else over))
        return None


def _kept_by_95_percent(errors: Floats) -> float:
    """Return an error that 95 % of all seeds keep, with a confidence of about 95 %, from those of some.

    All of them must, and so must a normal distribution with their mean and deviation (M. G. Natrella, "Experimental
    Statistics", NBS Handbook 91, 1963, section 2-2.3), which is what counts where seeds are few.
    """
    count, square = len(errors), _NORMAL_95**2
    a, b = 1 - square / (2 * (count - 1)), square - square / count
    factor = (_NORMAL_95 + sqrt(square - a * b)) / a
    return max(float(errors.max()), float(errors.mean() + factor * errors.std(ddof=1)))
