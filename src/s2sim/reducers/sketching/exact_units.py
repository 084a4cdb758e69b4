"""The fixed-point units of an exact sketch from step to step: carried over, and which keys they did not serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.codecs.fixed_point import HEADROOM, error_bound, exponents_for, maxima_from_parts, overflowed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Floats, Ints, Ints16, Mask
    from s2sim.codecs.exact_sketch import ExactSketch

_COARSE_BITS = HEADROOM + 1
"""Bits by which units may be coarser than the step itself would have chosen them: one more than the headroom takes."""


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """The ranks' common knowledge of a table from its last step.

    ``union`` counts the rows that any rank held; ``maxima``, float64 of shape (groups,), bound the magnitude of sums
    over ranks in each group, None if there are none to rely on.
    """

    union: int
    maxima: Floats | None


def carried_exponents(maxima: Floats, sketch: ExactSketch) -> Ints16:
    """Return the exponents that ``sketch`` encodes with, from the bounds of an earlier step's groups."""
    return exponents_for(regrouped(maxima, sketch.groups), sketch.dtype, HEADROOM)


def regrouped(maxima: Floats, groups: int) -> Floats:
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
    bounds: Floats = np.maximum.reduceat(padded, np.column_stack((starts, stops)).ravel())[::2]
    return bounds


def unserved(parts: NDArray[Any], exponents: Ints16) -> Mask:
    """Return the groups whose keys must be sent again: sums did not fit, or units were far too coarse.

    Rounding counts where the table as a whole suffers: if it leaves more than 2^`_COARSE_BITS` times the noise that
    units of this step's own would have left, all groups with units that much too coarse are sent again. One that a
    single large value has left is not. The parts of a range that ranks send are whole numbers, at least one a rank
    that has values: with more than two thousand ranks a decline may go unseen.

    ``parts``, int32 or int64 of shape (groups,), are the sum over ranks of `s2sim.codecs.fixed_point.range_parts`, and
    ``exponents``, int16 of that shape, what they encoded with.
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


def carry(
    union: Sequence[Ints],
    maxima: Sequence[Floats],
    exponents: Sequence[Ints16 | None],
    flags: Sequence[Mask] | None,
    parts: Sequence[NDArray[Any]],
) -> tuple[list[Carried], list[float] | None]:
    """Return what the next step needs of each table, and how far any element of this mean can be from the exact one.

    Bounds that did not serve, or of no value at all, are exchanged again. For float32 cells there are none.

    Parameters
    ----------
    union : sequence of int64 array
        Rows of each table that any rank held.
    maxima : sequence of float64 array
        Bounds on the sums in each group, where units are the step's own.
    exponents : sequence of int16 array or None
        The units.
    flags, parts : sequence of bool array or None, sequence of array
        Where units were carried over: groups that they did not serve, and how much of the range was used.
    """
    units = [powers for powers in exponents if powers is not None]
    if not units:
        return [Carried(len(rows), None) for rows in union], None
    if flags is not None:
        maxima = [maxima_from_parts(*pair) for pair in zip(parts, units, strict=True)]
    # Half a unit a rank in the sum is half a unit in the mean.
    errors = [
        float(error_bound(powers, 1).max()) if bound.any() else 0.0 for powers, bound in zip(units, maxima, strict=True)
    ]
    served = [True] * len(union) if flags is None else [not flagged.any() for flagged in flags]
    bounds = [bound if good and bound.any() else None for bound, good in zip(maxima, served, strict=True)]
    return [Carried(len(rows), bound) for rows, bound in zip(union, bounds, strict=True)], errors
