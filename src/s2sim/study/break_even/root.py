"""Where a function changes its sign, by Brent's method (Algorithms for Minimization Without Derivatives, 1973, ch. 4).

SciPy has it too, and the tests compare them; to import it takes longer than all of a small run's search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Point = tuple[float, float]  # where, and the function there


def find_root(function: Callable[[float], float], first: Point, second: Point, *, xtol: float, rtol: float) -> float:
    """Return where the function is 0, to ``xtol`` and ``rtol`` times the root together.

    Parameters
    ----------
    function : callable
        Continuous, or nearly.
    first, second : (float, float)
        Two places, and the function there, of which one is above 0 and the other below, or one of them 0.
    """
    before, best = first, second
    if before[1] == 0:
        return before[0]
    # The root lies between the best place and the one opposite, where the function has the other sign.
    opposite = before
    step_before = step = best[0] - before[0]
    while best[1] != 0:
        if (before[1] < 0) != (best[1] < 0):
            opposite = before
            step_before = step = best[0] - before[0]
        if abs(opposite[1]) < abs(best[1]):
            before, best, opposite = best, opposite, best
        tolerance = (xtol + rtol * abs(best[0])) / 2
        half = (opposite[0] - best[0]) / 2
        if abs(half) < tolerance:
            break
        tried = half
        if abs(step_before) > tolerance and abs(best[1]) < abs(before[1]):
            tried = _interpolated(before, best, opposite)
        # A step that shrinks too slowly is worth less than halving.
        if tried != half and 2 * abs(tried) < min(abs(step_before), 3 * abs(half) - tolerance):
            step_before, step = step, tried
        else:
            step_before = step = half
        before = best
        least = tolerance if half > 0 else -tolerance
        place = best[0] + (step if abs(step) > tolerance else least)
        best = place, function(place)
    return best[0]


def _interpolated(before: Point, best: Point, opposite: Point) -> float:
    """Return the step from the best place to the root of the line through two places, or of the inverse parabola."""
    if before[0] == opposite[0]:
        return -best[1] * (best[0] - before[0]) / (best[1] - before[1])
    slope_before = (before[1] - best[1]) / (before[0] - best[0])
    slope_opposite = (opposite[1] - best[1]) / (opposite[0] - best[0])
    numerator = opposite[1] * slope_opposite - before[1] * slope_before
    return -best[1] * numerator / (slope_opposite * slope_before * (opposite[1] - before[1]))
