"""Rates at which a reducer and dense take the same time, by replays of the scripts at other rates.

Roots by Brent's method (Algorithms for Minimization Without Derivatives, 1973, ch. 4). SciPy has it too, and the tests
compare them; its import takes longer than all of a small run's search.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt

from s2sim.experiment.progress import ProgressWatcher
from s2sim.experiment.rate_curve import RateReplays, limiting_rate
from s2sim.experiment.record import RecordedReducer, baseline_of
from s2sim.experiment.row_parts import Crossing
from s2sim.experiment.scenario.reducers import ReducerScenario

Point = tuple[float, float]  # where, and the function there


def find_root(function: Callable[[float], float], first: Point, second: Point, *, xtol: float, rtol: float) -> float:
    """Return the root of a nearly continuous function, to ``xtol`` plus ``rtol`` times the root.

    ``first`` and ``second`` are (x, value) with values of opposite sign, or one of them 0.
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
            tried = _interpolation_step(before, best, opposite)
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


def _interpolation_step(before: Point, best: Point, opposite: Point) -> float:
    """Return the step to the root of the line through two points, or of the inverse parabola through three."""
    if before[0] == opposite[0]:
        return -best[1] * (best[0] - before[0]) / (best[1] - before[1])
    slope_before = (before[1] - best[1]) / (before[0] - best[0])
    slope_opposite = (opposite[1] - best[1]) / (opposite[0] - best[0])
    numerator = opposite[1] * slope_opposite - before[1] * slope_before
    return -best[1] * numerator / (slope_opposite * slope_before * (opposite[1] - before[1]))


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

    ``dense_at`` returns dense's time in picoseconds at a rate in bytes per second, ``time_at`` that of a reducer by
    its option string. ``field`` is the topology field of the rate, ``rates`` the rates that are tried first,
    increasing. Between two scanned rates with different signs the crossing is refined by Brent's method on the
    inverse rate, in which replayed times are nearly piecewise linear.
    """
    crossings = []
    ends = {}
    for reducer in reducers:

        def gain_at(rate_Bps: float, reducer: str = reducer) -> float:
            return float(dense_at(rate_Bps) - time_at(rate_Bps, reducer))

        def own_at(place: int, reducer: str = reducer) -> int:
            return time_at(rates[place], reducer)

        signs = _compare_with_dense(rates, [dense_at(rate) for rate in rates], own_at)
        signed = [(rate, sign) for rate, sign in zip(rates, signs, strict=True) if sign]
        ends[reducer] = (bool(signed) and signed[0][1] > 0, bool(signed) and signed[-1][1] > 0)
        for (low, sign_low), (high, sign_high) in pairwise(signed):
            if sign_low == sign_high:
                continue
            crossing_Bps = _crossing_rate(gain_at, low, high)
            crossings.append(Crossing(reducer, field, "below" if sign_low > 0 else "above", crossing_Bps))
        on_reducer()
    return tuple(crossings), ends


def _crossing_rate(gain_at: Callable[[float], float], low: float, high: float) -> float:
    ends = [(1 / rate, gain_at(rate)) for rate in (high, low)]
    return 1 / find_root(lambda inverse: gain_at(1 / inverse), *ends, xtol=_PRECISION / high, rtol=_PRECISION)


def _compare_with_dense(rates: Sequence[float], dense: Sequence[int], own_at: Callable[[int], int]) -> list[int]:
    """Return per rate 1 where a reducer is faster than dense, -1 where it is slower, 0 where neither is.

    On a network that is k times as fast a phase takes no longer, and at least the k-th part. Rates (increasing) at
    which these bounds decide are not replayed; the others are, the least certain first. ``own_at`` returns the
    reducer's time at an index.
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
            shortest, longest = _time_bounds(rates, own, each)
            longest, shortest = longest * (1 + _ROUNDING), shortest * (1 - _ROUNDING)
            signs[each] = (dense_ps > longest) - (dense_ps < shortest)
            if not signs[each]:
                # How far dense is from what is most likely.
                open_places[each] = abs(dense_ps - sqrt(shortest * longest)) / max(dense_ps, 1)
        place = min(open_places, key=lambda each: open_places[each], default=None)
    return signs


def _time_bounds(rates: Sequence[float], own: Mapping[int, int], place: int) -> tuple[float, float]:
    """Return the shortest and the longest time at an index that the times at other rates allow."""
    shortest, longest = 0.0, inf
    for other, other_ps in own.items():
        scaled_ps = other_ps * (rates[other] / rates[place])
        shortest = max(shortest, min(other_ps, scaled_ps))
        longest = min(longest, max(other_ps, scaled_ps))
    return shortest, longest


@dataclass(frozen=True, slots=True)
class BreakEvenScan:
    """The result of a search for break-even."""

    field: str | None  # The topology field that was varied; None where nothing crosses a link
    crossings: tuple[Crossing, ...] = ()  # Where a reducer and dense take the same time
    # For each reducer, whether it is faster than dense at the lowest and at the highest rate
    pays_at_ends: dict[str, tuple[bool, bool]] = dataclasses.field(default_factory=dict)
    # Highest rate that was tried, in bytes per second; beyond it nothing changes, or no network goes
    highest_Bps: float = HIGHEST_BPS


def scan_rates(
    scenario: ReducerScenario, recorded: Sequence[RecordedReducer], progress: ProgressWatcher
) -> BreakEvenScan:
    """Return where each recorded reducer breaks even with dense over the rate that limits this cluster."""
    cluster = scenario.healthy(recorded[0].recording.workers)
    varied = limiting_rate(cluster)
    others = [item.option_string for item in recorded if item is not baseline_of(recorded)]
    if varied is None or not others:
        return BreakEvenScan(None)
    # Interfaces faster than the cables they are plugged into change nothing.
    given = any(item.field == "fabric.link.rate" for item in cluster.shape.quantities)
    capped = varied == "nic.rate" and given and cluster.shape.host_cable
    highest_Bps = min(HIGHEST_BPS, cluster.shape.link.rate_Bps) if capped else HIGHEST_BPS
    rates = scanned_rates(highest_Bps)
    progress.start(len(others), f"looking for break-even over {varied}")
    replays = RateReplays(scenario, recorded, varied)
    crossings, ends = find_crossings(
        others, replays.dense_at, replays.time_at, varied, rates, on_reducer=progress.advance
    )
    return BreakEvenScan(varied, crossings, ends, highest_Bps)
