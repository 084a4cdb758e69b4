"""The fixed-point units of an exact sketch from step to step: carried over, and which keys they did not serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.codecs.fixed_point import HEADROOM, exponents_for, maxima_from_parts, overflowed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.codecs.exact_sketch import ExactSketch

_COARSE_BITS = HEADROOM + 1
"""Bits by which units may be coarser than the step itself would have chosen them: one more than the headroom takes."""


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """The ranks' common knowledge of a table from its last step.

    Attributes
    ----------
    union : int
        Rows that any rank held.
    maxima : float64 array, shape (groups,), or None
        Bound on the magnitude of sums over ranks in each group; None if there is none to rely on.
    """

    union: int
    maxima: NDArray[np.float64] | None


def carried_exponents(maxima: NDArray[np.float64], sketch: ExactSketch) -> NDArray[np.int16]:
    """Return the exponents that ``sketch`` encodes with, from the bounds of an earlier step's groups."""
    return exponents_for(regrouped(maxima, sketch.groups), sketch.dtype, HEADROOM)


def regrouped(maxima: NDArray[np.float64], groups: int) -> NDArray[np.float64]:
    """Return bounds for another number of groups, each the largest of those whose part of the hash space it meets.

    >>> regrouped(np.array([1.0, 5.0, 2.0]), 2).tolist()
    [5.0, 5.0]
    """
    found = len(maxima)
    if found == groups:
        return maxima
    part = np.arange(groups)
    starts, stops = part * found // groups, -(-(part + 1) * found // groups)
    # Neighbours may meet the same group of before: pairs of (start, stop), of which every second range counts.
    padded = np.append(maxima, 0.0)
    bounds: NDArray[np.float64] = np.maximum.reduceat(padded, np.column_stack((starts, stops)).ravel())[::2]
    return bounds


def unserved(parts: NDArray[Any], exponents: NDArray[np.int16]) -> NDArray[np.bool_]:
    """Return the groups whose keys must be sent again: sums did not fit, or units were far too coarse.

    Rounding counts where the table as a whole suffers: if it leaves more than 2^`_COARSE_BITS` times the noise that
    units of this step's own would have left, all groups with units that much too coarse are sent again. One that a
    single large value has left is not. The parts of a range that ranks send are whole numbers, at least one a rank
    that has values: with more than two thousand ranks a decline may go unseen.

    Parameters
    ----------
    parts : int32 or int64 array, shape (groups,)
        Sum over ranks of `s2sim.codecs.fixed_point.range_parts`.
    exponents : int16 array, shape (groups,)
        What they encoded with.
    """
    over = overflowed(parts)
    judged = ~over & (parts > 0)
    if not judged.any():
        return over
    fresh = exponents_for(maxima_from_parts(parts, exponents), parts.dtype)
    # Groups have about as many keys each, because they are parts of a hash space.
    noise, fresh_noise = (np.ldexp(1.0, -2 * powers[judged].astype(np.int64)).sum() for powers in (exponents, fresh))
    if noise <= 4.0**_COARSE_BITS * fresh_noise:
        return over
    return over | (judged & (fresh - exponents > _COARSE_BITS))
