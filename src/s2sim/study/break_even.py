"""Where a reducer and dense take the same time, found by replaying the scripts at other rates."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from s2sim.study.result import Crossing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Bytes per second: 10 Mbps to 3.2 Tbps, what networks between nodes and links inside them have had and will have.
LOWEST_BPS = 1.25e6
HIGHEST_BPS = 4e11
# A factor of 3.1 between points: a reducer that pays in less than that is not told by it.
_POINTS = 12
_PRECISION = 1e-3


def scanned_rates(highest_Bps: float = HIGHEST_BPS) -> list[float]:
    """Return the rates that are tried first, in bytes per second, evenly spaced in their logarithm."""
    step = (highest_Bps / LOWEST_BPS) ** (1 / (_POINTS - 1))
    return [LOWEST_BPS * step**i for i in range(_POINTS)]


def find_crossings(
    reducers: Sequence[str],
    times_at: Callable[[float, str], tuple[int, int]],
    field: str,
    rates: Sequence[float],
    on_rate: Callable[[], None] = lambda: None,
) -> tuple[tuple[Crossing, ...], dict[str, tuple[bool, bool]]]:
    """Return all crossings, and for each reducer whether it pays at the lowest and at the highest rate.

    Parameters
    ----------
    reducers : sequence of str
        Option strings.
    times_at : callable
        Given a rate in bytes per second and an option string, returns (dense, reducer) times in picoseconds.
    field : str
        The topology field that the rate is given to.
    rates : sequence of float
        What is tried first, in bytes per second, increasing.
    on_rate : callable
        Called after each scanned rate, for progress.

    Notes
    -----
    Between two scanned rates with different signs the crossing is refined by Brent's method on the inverse rate, in
    which replayed times are nearly piecewise linear.
    """
    from scipy.optimize import brentq

    gains: dict[str, list[int]] = {reducer: [] for reducer in reducers}
    for rate in rates:
        for reducer in reducers:
            dense, own = times_at(rate, reducer)
            gains[reducer].append(dense - own)
        on_rate()
    crossings = []
    ends = {}
    for reducer in reducers:
        signed = [(rate, gain) for rate, gain in zip(rates, gains[reducer], strict=True) if gain != 0]
        ends[reducer] = (bool(signed) and signed[0][1] > 0, bool(signed) and signed[-1][1] > 0)
        for (low, gain_low), (high, gain_high) in pairwise(signed):
            if (gain_low > 0) == (gain_high > 0):
                continue

            def gain_at(inverse: float, reducer: str = reducer) -> float:
                dense, own = times_at(1 / inverse, reducer)
                return float(dense - own)

            at = 1 / brentq(gain_at, 1 / high, 1 / low, xtol=_PRECISION / high, rtol=_PRECISION)
            crossings.append(Crossing(reducer, field, "below" if gain_low > 0 else "above", at))
    return tuple(crossings), ends
