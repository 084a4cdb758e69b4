"""Where a reducer pays, by replays of its scripts at other rates or mini-batches.

Whether it pays is decided by `s2sim.experiment.choice`, as in the verdict of a run there. Roots by Brent's method
(Algorithms for Minimization Without Derivatives, 1973, ch. 4). SciPy has it too, and the tests compare them; its import
takes longer than all of a small run's search.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from math import sqrt

from s2sim.experiment.choice import rejected, required_dense
from s2sim.experiment.prediction import Prediction
from s2sim.experiment.progress import ProgressWatcher, watched
from s2sim.experiment.rate_curve import RateReplays, limiting_rate, rate_of
from s2sim.experiment.row_parts import Crossing
from s2sim.experiment.rows import Row
from s2sim.experiment.run_extrapolation import RunExtrapolation
from s2sim.experiment.scenario.reducers import ReducerScenario

Point = tuple[float, float]  # where, and the function there


def find_root(function: Callable[[float], float], first: Point, second: Point, *, xtol: float, rtol: float) -> float:
    """Return a function's root, to ``xtol`` + ``rtol`` times it, from (x, value) of opposite sign, or one of 0."""
    before, best = first, second
    if before[1] == 0:
        return before[0]
    while best[1] != 0:
        if (before[1] < 0) != (best[1] < 0):
            # The root lies between the best place and the one opposite, where the function has the other sign.
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
LOWEST_BPS, HIGHEST_BPS = 1.25e6, 4e11
_PRECISION = 1e-3
# Times are rounded up, round by round.
_ROUNDING = 1e-6
# Loads that are no further apart than this factor are not searched for more than one change between them.
_RESOLUTION = 1.3

# At a load: dense's time, and the least time of dense with which the reducer pays, in picoseconds
Times = tuple[float, float]


def search_loads(
    times_at: Callable[[float], Times],
    lowest: float,
    highest: float,
    middle: Callable[[float, float], float | None] = lambda low, high: sqrt(low * high),
    choice_at: Callable[[float], object] = lambda _: None,
) -> dict[float, Times]:
    """Return the times at as many loads as it takes to know between which the reducer pays.

    A load is what makes times longer, such as a mini-batch or the inverse of a rate: with k times the load nothing is
    faster, and nothing takes more than k times as long, as long as ``choice_at`` a load with known times is the same:
    what a library chooses by estimates may be slower at less load. Neighbours are less than a factor of 1.3 apart, or
    have the same answer and this leaves no other between them. ``middle`` returns a load between two, None if there is
    none.
    """
    known = {lowest: times_at(lowest), highest: times_at(highest)}
    open_intervals = [(lowest, highest)]
    while open_intervals:
        low, high = open_intervals.pop()
        between = middle(low, high)
        if between is None or high <= low * _RESOLUTION:
            continue
        if choice_at(low) == choice_at(high) and _is_certain((low, known[low]), (high, known[high])):
            continue
        known[between] = times_at(between)
        open_intervals += [(low, between), (between, high)]
    return dict(sorted(known.items()))


def pays(times: Times) -> bool:
    """Return whether a reducer pays."""
    dense, required = times
    return dense >= required and dense > 0


def _is_certain(low: tuple[float, Times], high: tuple[float, Times]) -> bool:
    """Return whether the answers at two loads are the same and no load between them can have another."""
    (first, (dense_low, own_low)), (last, (dense_high, own_high)) = low, high
    if pays(low[1]) != pays(high[1]):
        return False
    if pays(low[1]):
        less, more = (dense_low, dense_high), (own_low, own_high)
    else:
        less, more = (own_low, own_high), (dense_low, dense_high)
    # Where the bounds of both bend, their ratio is least.
    bend = [first, last, last * less[0] / less[1] if less[1] else first, first * more[1] / more[0] if more[0] else last]
    return all(
        max(less[0], less[1] * load / last) * (1 - _ROUNDING) >= min(more[1], more[0] * load / first) * (1 + _ROUNDING)
        for load in bend
        if first <= load <= last
    )


def find_crossings(
    reducer: str, field: str, times_at: Callable[[float], Times], rates: Sequence[float]
) -> list[Crossing]:
    """Return the rates at which a reducer begins or ceases to pay, refined by Brent's method on the inverse rate.

    ``times_at`` returns the times at a rate in bytes per second, ``rates`` the increasing rates of `search_loads`.
    Replayed times are nearly piecewise linear in the inverse rate.
    """

    def gain_at(inverse: float) -> float:
        dense, required = times_at(1 / inverse)
        return dense - required

    crossings = []
    for low, high in pairwise(rates):
        below = pays(times_at(low))
        if below != pays(times_at(high)):
            ends = [(1 / rate, gain_at(1 / rate)) for rate in (high, low)]
            root = find_root(gain_at, *ends, xtol=_PRECISION / high, rtol=_PRECISION)
            crossings.append(Crossing(reducer, field, "below" if below else "above", 1 / root))
    return crossings


@dataclass(frozen=True, slots=True)
class BreakEvenScan:
    """The result of a search for break-even."""

    field: str | None  # The topology field that was varied; None where no such rate limits anything
    crossings: tuple[Crossing, ...] = ()  # Where a reducer begins or ceases to pay
    # For each reducer, whether it pays at the lowest and at the highest rate
    pays_at_ends: dict[str, tuple[bool, bool]] = dataclasses.field(default_factory=dict)
    # Highest rate that was tried, in bytes per second; beyond it nothing changes, or no network goes
    highest_Bps: float = HIGHEST_BPS
    # Why reducers pay at no rate, whatever their time
    rejected: dict[str, str] = dataclasses.field(default_factory=dict)
    ceiling: tuple[float, str] | None = None  # Rate above which something else limits communication, and what
    same_buckets: bool = False  # Whether a run at another rate would make other buckets than these


def scan_rates(
    scenario: ReducerScenario,
    predictions: Sequence[Prediction],
    max_error: float | None,
    progress: ProgressWatcher,
    extrapolation: RunExtrapolation | None = None,
) -> BreakEvenScan:
    """Return where each predicted reducer pays over the limiting rate, with errors to ``max_error`` (relative L2)."""
    recorded = [each.recorded for each in predictions]
    cluster = scenario.healthy(recorded[0].recording.workers)
    varied = limiting_rate(cluster)
    others = [each.row for each in predictions if not each.row.baseline]
    if varied is None or not others:
        return BreakEvenScan(None)
    # Interfaces faster than the cables they are plugged into change nothing.
    given = any(item.field == "fabric.link.rate" for item in cluster.shape.quantities)
    capped = varied == "nic.rate" and given and cluster.shape.host_cable
    highest_Bps = min(HIGHEST_BPS, cluster.shape.link.rate_Bps) if capped else HIGHEST_BPS
    ways, own_Bps = predictions[0].executed.timer.ways if scenario.groups is None else None, rate_of(cluster, varied)
    replays = RateReplays(scenario, recorded, varied, ways)
    replays.known |= {(own_Bps, each.recorded.option_string): each.executed for each in predictions}
    if scenario.faults:
        highest_Bps = replays.highest_possible(own_Bps, highest_Bps)
    crossings, ends, reasons = [], {}, {}
    for row in watched(progress, f"looking for break-even over {varied}", others):
        if (reason := rejected(row, max_error)) is not None:
            reasons[row.reducer], ends[row.reducer] = reason, (False, False)
        else:

            @cache
            def times_at(rate_Bps: float, row: Row = row) -> Times:
                dense, own = replays.dense_at(rate_Bps), replays.time_at(rate_Bps, row.reducer)
                if extrapolation is None or row.extrapolated is None or own >= dense:
                    return dense, required_dense(own, row)
                doubt = row.extrapolated.doubt
                if rate_Bps != own_Bps:
                    doubt = extrapolation.time_doubt(row.reducer, partial(replays.plain_timer, rate_Bps))
                return dense, required_dense(own, row, doubt, replays.phase_at(rate_Bps, row.reducer))

            choice_at = partial(replays.choices_at, row.reducer)
            loads = 1 / highest_Bps, 1 / LOWEST_BPS
            known = search_loads(lambda load: times_at(1 / load), *loads, choice_at=choice_at)
            # The run's own verdict is one of those that a sentence foretells.
            rates = sorted({*(1 / load for load in known), *([own_Bps] if LOWEST_BPS < own_Bps < highest_Bps else [])})
            crossings += find_crossings(row.reducer, varied, times_at, rates)
            ends[row.reducer] = (pays(known[1 / LOWEST_BPS]), pays(known[1 / highest_Bps]))
    ceiling = replays.ceiling(LOWEST_BPS, highest_Bps)
    same_buckets = scenario.training is not None and scenario.training.discipline.by_times
    return BreakEvenScan(varied, tuple(crossings), ends, highest_Bps, reasons, ceiling, same_buckets)
