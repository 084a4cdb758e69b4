"""The speed-ups of a run's reducers over the rate that limits the cluster, for every number of workers."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log
from typing import TYPE_CHECKING

from s2sim.study.break_even.rate_curve import curves_of
from s2sim.study.break_even.rate_replays import limiting_rate, rate_of
from s2sim.study.break_even.scan import scan_rates

if TYPE_CHECKING:
    from s2sim.study.break_even.rate_curve import RateCurves
    from s2sim.study.break_even.scan import Scan
    from s2sim.study.compare.found import Found
    from s2sim.study.progress import Progress
    from s2sim.study.scenario.reducers import ReducerScenario

# Bytes per second: 1 Gbps, the slowest network that people still train over.
_LOWEST_BPS = 1.25e8
# Between neighbouring points: what lies between is straight enough on logarithmic axes.
_FACTOR = 1.5


def vary_rate(scenario: ReducerScenario, found: Found, progress: Progress) -> dict[int, RateCurves]:
    """Return the curves of each number of workers; of one worker, whom no rate limits, and of dense alone none."""
    curves = {}
    for count, predictions in found.predictions.items():
        recorded = found.recorded(count)
        cluster = scenario.healthy(scenario.ranks_of(count))
        field = limiting_rate(cluster)
        if field is None or len(recorded) == 1:
            continue
        # The verdict may have looked at some alone.
        known = count == found.largest and len(found.scan.pays_at_ends) == len(recorded) - 1
        scan = found.scan if known else scan_rates(scenario, recorded, progress)
        rates_Bps = _drawn_rates(scan, rate_of(cluster.shape, field))
        progress.start(len(rates_Bps), f"drawing speed-ups over {field}")
        drawn = curves_of(scenario, recorded, rates_Bps, progress.advance)
        beyond = any(each.row.extrapolated is not None for each in predictions)
        curves[count] = replace(drawn, crossings=scan.crossings, extrapolated=beyond)
    return curves


def _drawn_rates(scan: Scan, own_Bps: float) -> list[float]:
    """Return rates around the cluster's own and all crossings, evenly spaced in their logarithm."""
    low = min(_LOWEST_BPS, own_Bps / 10, *(0.7 * crossing.at_Bps for crossing in scan.crossings))
    high = max(scan.highest_Bps, own_Bps)
    steps = ceil(log(high / low) / log(_FACTOR))
    return [low * (high / low) ** (step / steps) for step in range(steps + 1)]
