"""Where a reducer and dense take the same time, found by replaying the scripts at other rates."""

from __future__ import annotations

from itertools import pairwise
from math import inf, sqrt
from typing import TYPE_CHECKING

from s2sim.study.break_even.root import find_root
from s2sim.study.measuring.verdict_row import Crossing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Bytes per second: 10 Mbps to 3.2 Tbps, what networks between nodes and links inside them have had and will have.
LOWEST_BPS = 1.25e6
HIGHEST_BPS = 4e11
# A factor of 3.1 between points: a reducer that pays in less than that is not told by it.
_POINTS = 12
_PRECISION = 1e-3
# Times are rounded up, round by round.
_ROUNDING = 1e-6


def scanned_rates(highest_Bps: float = HIGHEST_BPS) -> list[float]:
    """Return the rates that are tried first, in bytes per second, evenly spaced in their logarithm."""
    step = (highest_Bps / LOWEST_BPS) ** (1 / (_POINTS - 1))
    return [LOWEST_BPS * step**i for i in range(_POINTS)]


def find_crossings(
    reducers: Sequence[str],
    dense_at: Callable[[float], int],
    time_at: Callable[[float, str], int],
    field: str,
    rates: Sequence[float],
    on_reducer: Callable[[], None] = lambda: None,
) -> tuple[tuple[Crossing, ...], dict[str, tuple[bool, bool]]]:
    """Return all crossings, and for each reducer whether it pays at the lowest and at the highest rate.

    Parameters
    ----------
    reducers : sequence of str
        Option strings.
    dense_at : callable
        Given a rate in bytes per second, returns dense's time in picoseconds.
    time_at : callable
        Given a rate and an option string, returns that reducer's.
    field : str
        The topology field that the rate is given to.
    rates : sequence of float
        What is tried first, in bytes per second, increasing.
    on_reducer : callable
        Called after each reducer, for progress.

    Notes
    -----
    Between two scanned rates with different signs the crossing is refined by Brent's method on the inverse rate, in
    which replayed times are nearly piecewise linear.
    """
    crossings = []
    ends = {}
    for reducer in reducers:

        def gain_at(rate_Bps: float, reducer: str = reducer) -> float:
            return float(dense_at(rate_Bps) - time_at(rate_Bps, reducer))

        def own_at(place: int, reducer: str = reducer) -> int:
            return time_at(rates[place], reducer)

        signs = _signs(rates, [dense_at(rate) for rate in rates], own_at)
        signed = [(rate, sign) for rate, sign in zip(rates, signs, strict=True) if sign]
        ends[reducer] = (bool(signed) and signed[0][1] > 0, bool(signed) and signed[-1][1] > 0)
        for (low, sign_low), (high, sign_high) in pairwise(signed):
            if sign_low == sign_high:
                continue
            crossing_Bps = _sign_change(gain_at, low, high)
            crossings.append(Crossing(reducer, field, "below" if sign_low > 0 else "above", crossing_Bps))
        on_reducer()
    return tuple(crossings), ends


def _sign_change(gain_at: Callable[[float], float], low: float, high: float) -> float:
    """Return the rate between two at which a gain is 0."""
    ends = [(1 / rate, gain_at(rate)) for rate in (high, low)]
    return 1 / find_root(lambda inverse: gain_at(1 / inverse), *ends, xtol=_PRECISION / high, rtol=_PRECISION)


def _signs(rates: Sequence[float], dense: Sequence[int], own_at: Callable[[int], int]) -> list[int]:
    """Return 1 where a reducer is faster than dense, -1 where it is slower, 0 where neither is.

    On a network that is k times as fast a phase takes no longer, and at least the k-th part. Where this tells who is
    faster, nothing is replayed; where it does not, first where it is least certain, as around a crossing.

    Parameters
    ----------
    rates : sequence of float
        Increasing.
    dense : sequence of int
        Dense's times at these rates.
    own_at : callable
        Returns the reducer's time at one of them, by its place.
    """
    own: dict[int, int] = {}
    signs = [0] * len(rates)
    place: int | None = len(rates) - 1
    while place is not None:
        own[place] = own_at(place)
        open_places: dict[int, float] = {}
        for each, dense_ps in enumerate(dense):
            if each in own:
                # Its own time counts, also where those at other rates would allow only others.
                signs[each] = (dense_ps > own[each]) - (dense_ps < own[each])
                continue
            shortest, longest = _bounds(rates, own, each)
            longest, shortest = longest * (1 + _ROUNDING), shortest * (1 - _ROUNDING)
            signs[each] = (dense_ps > longest) - (dense_ps < shortest)
            if not signs[each]:
                # How far dense is from what is most likely.
                open_places[each] = abs(dense_ps - sqrt(shortest * longest)) / max(dense_ps, 1)
        place = min(open_places, key=lambda each: open_places[each], default=None)
    return signs


def _bounds(rates: Sequence[float], own: Mapping[int, int], place: int) -> tuple[float, float]:
    """Return the shortest and the longest time at one of the rates that those at others allow."""
    shortest, longest = 0.0, inf
    for other, other_ps in own.items():
        scaled_ps = other_ps * (rates[other] / rates[place])
        shortest = max(shortest, min(other_ps, scaled_ps))
        longest = min(longest, max(other_ps, scaled_ps))
    return shortest, longest
