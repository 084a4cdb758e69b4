"""How large a count sketch has to be for a relative error: a law for one row, a measured curve for more.

With one row the relative L2 error of what is read back is sqrt(keys read / columns), as RMS over hash seeds, for any
values. With more rows the median cuts off what large values leave in small ones, so that the error depends on the tail
of the values and no law is known: it is measured on the values themselves, for several hash seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, exp, log, sqrt
from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.count_sketch import CountSketch
from s2sim.errors import OptionError
from s2sim.seeds import named_generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Floats, Floats32


ROW_CHOICES = (1, 3, 5)
"""Rows that are tried: an odd number, because an even one has two middle estimates."""

SEEDS = 9
"""Hash seeds that a band is measured over."""

_SEARCH_SEEDS = 5
_MOST_KEYS = 1 << 20
"""Values that a curve is measured on; of more, so many are drawn. With heavy tails the few largest decide: a fourth of
the values of a language model's gradient are off by 15 %."""

_FEWEST_CELLS, _MOST_CELLS = 0.05, 4096.0
_STRIDE = 1.0
_PRECISION = 0.01
"""Of the logarithm of the cells."""

_NO_ERROR = 1e-12


@dataclass(frozen=True, slots=True)
class Sizing:
    """A size, and the error that it is expected to have.

    Attributes
    ----------
    rows, cells : int, float
        Rows of the sketch, and cells of all rows together per key read.
    expected : float
        Relative L2 error: for one row the law's, for more the median over hash seeds.
    low, high : float
        Smallest and largest of the seeds that were tried: heavy tails scatter.
    """

    rows: int
    cells: float
    expected: float
    low: float
    high: float


def measured_errors(values: Floats32, rows: int, cells: float, seed: int, *, seeds: int = SEEDS) -> Floats:
    """Return the relative L2 errors of all ``values``, float32 of shape (k,), read back, float64 of shape (seeds,).

    The sketch has so many ``cells`` a value, of all rows; ``seed`` is the root of the hash seeds.
    """
    keys = np.arange(len(values), dtype=np.uint32)
    columns = max(1, ceil(cells * len(values) / rows))
    norm = _norm(values.astype(np.float64))
    hash_seeds = named_generator(seed, "sketch sizing").integers(2**62, size=seeds)
    errors = []
    for hash_seed in hash_seeds.tolist():
        sketch = CountSketch(rows, columns, hash_seed)
        read = sketch.decode_keys(sketch.encode_keys(keys, values), keys)
        errors.append(_norm(read.astype(np.float64) - values) / norm)
    return np.array(errors)


def _norm(values: Floats) -> float:
    """Return the L2 norm, without a BLAS: its threads would spin for longer than they compute."""
    return sqrt(float(np.square(values).sum()))


def size_for_error(values: Floats32, target: float, *, rows: Sequence[int] = ROW_CHOICES, seed: int = 0) -> Sizing:
    """Return the smallest sketch whose expected relative L2 error is ``target``, above 0 and below 1.

    ``values`` are those of the sum that is read back which are not zero, float32 of shape (k,), at least one; ``rows``
    are to be chosen among. `OptionError` for a target that no sketch of sensible size reaches.
    """
    if not 0 < target < 1:
        raise OptionError(f"a relative error of {target} was asked for: it must be above 0 and below 1")
    if len(values) > _MOST_KEYS:
        chosen = named_generator(seed, "values for sizing").choice(len(values), _MOST_KEYS, replace=False)
        values = values[np.sort(chosen)]
    found = [_size_with(values, target, count, seed) for count in rows]
    best = min((each for each in found if each is not None), key=lambda each: each.cells, default=None)
    if best is None:
        raise OptionError(
            f"a relative error of {target} was asked for: it takes more than {_MOST_CELLS:.0f} cells a value; "
            "send the union exactly instead (union)"
        )
    return best


def _size_with(values: Floats32, target: float, rows: int, seed: int) -> Sizing | None:
    """Return the size with so many rows, None where it is beyond reason."""
    from scipy.optimize import brentq

    if rows == 1:
        cells = 1 / target**2
        if cells > _MOST_CELLS:
            return None
        errors = measured_errors(values, 1, cells, seed)
        return Sizing(1, cells, target, float(errors.min()), float(errors.max()))

    @cache
    def excess(log_cells: float) -> float:
        """Return by what factor the error is too large, as a logarithm; errors are nearly a power of the cells."""
        median = float(np.median(measured_errors(values, rows, exp(log_cells), seed, seeds=_SEARCH_SEEDS)))
        return log(max(median, _NO_ERROR) / target)

    low, high, guess = log(_FEWEST_CELLS), log(_MOST_CELLS), -log(target)
    if excess(guess) > 0:
        low = guess
        while excess(guess) > 0:
            low, guess = guess, guess + _STRIDE
            if guess > high:
                return None
        high = guess
    else:
        high = guess
        while guess > low and excess(guess) <= 0:
            high, guess = guess, max(low, guess - _STRIDE)
        low = guess
    found = high if excess(low) <= 0 else brentq(excess, low, high, xtol=_PRECISION, rtol=_PRECISION)
    errors = measured_errors(values, rows, exp(found), seed)
    return Sizing(rows, exp(found), float(np.median(errors)), float(errors.min()), float(errors.max()))
