"""How large a count sketch has to be for a relative error: a law for one row, a measured curve for more.

With one row the relative L2 error of what is read back is sqrt(keys read / columns), as RMS over hash seeds, for any
values. With more rows the median cuts off what large values leave in small ones, so that the error depends on the tail
of the values and no law is known: it is measured on the values themselves, for several hash seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.count_sketch import CountSketch
from s2sim.errors import OptionError
from s2sim.gradients.seeds import named_generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ROW_CHOICES = (1, 3, 5)
"""Rows that are tried: an odd number, because an even one has two middle estimates."""

_SEEDS = 9
_MOST_KEYS = 1 << 18
"""Values that a curve is measured on; of more, so many are drawn."""

_FEWEST_CELLS, _MOST_CELLS = 0.05, 4096.0
_PRECISION = 0.01


@dataclass(frozen=True, slots=True)
class Sizing:
    """A size, and the error that it is expected to have.

    Attributes
    ----------
    rows : int
        Rows of the sketch.
    cells : float
        Cells of all rows together per key read.
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


def law_error(keys: int, columns: int) -> float:
    """Return the relative L2 error of one row: sqrt(keys read / columns), as RMS over hash seeds."""
    return sqrt(keys / columns)


def measured_errors(values: NDArray[np.float32], rows: int, cells: float, seed: int) -> NDArray[np.float64]:
    """Return the relative L2 errors of all values read back, float64 of shape (seeds,).

    Parameters
    ----------
    values : float32 array, shape (k,)
        What the keys have.
    rows : int
        Rows of the sketch.
    cells : float
        Cells of all rows per key.
    seed : int
        Root of the hash seeds.
    """
    keys = np.arange(len(values), dtype=np.uint32)
    columns = max(1, ceil(cells * len(values) / rows))
    norm = _norm(values.astype(np.float64))
    hash_seeds = named_generator(seed, "sketch sizing").integers(2**62, size=_SEEDS)
    errors = []
    for hash_seed in hash_seeds.tolist():
        sketch = CountSketch(rows, columns, hash_seed)
        read = sketch.decode_keys(sketch.encode_keys(keys, values), keys)
        errors.append(_norm(read.astype(np.float64) - values) / norm)
    return np.array(errors)


def _norm(values: NDArray[np.float64]) -> float:
    """Return the L2 norm, without a BLAS: its threads would spin for longer than they compute."""
    return sqrt(float(np.square(values).sum()))


def size_for_error(
    values: NDArray[np.float32], target: float, *, rows: Sequence[int] = ROW_CHOICES, seed: int = 0
) -> Sizing:
    """Return the smallest sketch whose expected relative L2 error is ``target``.

    Parameters
    ----------
    values : float32 array, shape (k,)
        Non-zero values of the sum that is read back, at least one.
    target : float
        Relative L2 error, above 0 and below 1.
    rows : sequence of int
        Rows to choose among.
    seed : int
        Root of what is drawn.

    Raises
    ------
    OptionError
        For a target that no sketch of sensible size reaches.
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


def _size_with(values: NDArray[np.float32], target: float, rows: int, seed: int) -> Sizing | None:
    """Return the size with so many rows, None where it is beyond reason."""
    if rows == 1:
        cells = 1 / target**2
        if cells > _MOST_CELLS:
            return None
        errors = measured_errors(values, 1, cells, seed)
        return Sizing(1, cells, target, float(errors.min()), float(errors.max()))
    low, high = _FEWEST_CELLS, _FEWEST_CELLS
    while np.median(measured_errors(values, rows, high, seed)) > target:
        low, high = high, 2 * high
        if high > _MOST_CELLS:
            return None
    while high / low > 1 + _PRECISION and high > _FEWEST_CELLS:
        middle = sqrt(low * high)
        if np.median(measured_errors(values, rows, middle, seed)) > target:
            low = middle
        else:
            high = middle
    errors = measured_errors(values, rows, high, seed)
    return Sizing(rows, high, float(np.median(errors)), float(errors.min()), float(errors.max()))
