"""Speed-up over dense against the rate that limits a cluster: break-even as a curve."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING

from s2sim.errors import OptionError
from s2sim.gradients.extrapolation.law_ranks import MoreRanks
from s2sim.study.break_even.rate_replays import RateReplays, limiting_rate, rate_of
from s2sim.study.extrapolate.beyond import record_as_asked
from s2sim.study.measuring.record import baseline_of
from s2sim.study.scenario.asked import other_steps
from s2sim.study.scenario.reducers import resolve_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s2sim.study.measuring.record import Recorded
    from s2sim.study.measuring.verdict_row import Crossing
    from s2sim.study.scenario.reducers import ReducerScenario
    from s2sim.study.spec import RunSpec


@dataclass(frozen=True, slots=True)
class RateCurves:
    """Speed-ups over dense at several rates.

    Attributes
    ----------
    field : str
        The topology field that was varied.
    workers : int
        Ranks.
    own_Bps : float
        The value that the cluster has, in bytes per second.
    rates_Bps : tuple of float
        Its values, in bytes per second.
    baseline : str
        Option string of the ``dense`` that all are compared with.
    speedups : dict of str to tuple of float
        By option string, without that: one at each rate; of iterations where compute was given, else of
        communication phases.
    compute : bool
        Whether compute was given.
    extrapolated : bool
        Whether ranks or sizes go beyond what was recorded.
    crossings : tuple of Crossing
        Where a reducer and dense take the same time, as far as they were looked for.
    """

    field: str
    workers: int
    own_Bps: float
    rates_Bps: tuple[float, ...]
    baseline: str
    speedups: dict[str, tuple[float, ...]]
    compute: bool
    extrapolated: bool
    crossings: tuple[Crossing, ...] = ()


def rate_curves(spec: RunSpec, rates_Bps: Sequence[float]) -> RateCurves:
    """Return the speed-up of each reducer over dense at each rate, from scripts that are recorded once.

    Parameters
    ----------
    spec : RunSpec
        As `s2sim.run` takes it; the largest number of workers counts. The rate is that of the network, or of the links
        inside the only node, and replaces the one that the spec gives.
    rates_Bps : sequence of float
        In bytes per second.

    Raises
    ------
    S2SimError
        For anything that cannot be done as asked: a rate that is none, or one worker, whom no rate limits.
    """
    if not rates_Bps or not all(isfinite(rate) and rate > 0 for rate in rates_Bps):
        raise OptionError(f"rates_Bps = {list(rates_Bps)} must be numbers of bytes per second above 0, at least one")
    scenario = resolve_run(spec)
    workers = scenario.ranks_of(max(spec.workers))
    gradients = [scenario.trace.gradient(0, rank) for rank in range(workers)]
    recorded, _ = record_as_asked(scenario, gradients, other_steps(scenario.trace, workers))
    return curves_of(scenario, recorded, rates_Bps)


def curves_of(
    scenario: ReducerScenario,
    recorded: Sequence[Recorded],
    rates_Bps: Sequence[float],
    on_rate: Callable[[], None] = lambda: None,
) -> RateCurves:
    """Return the speed-up of each recorded reducer over dense at each rate; see `rate_curves`."""
    workers = recorded[0].recording.workers
    cluster = scenario.healthy(workers)
    field = limiting_rate(cluster)
    if field is None:
        raise OptionError("a curve over rates was asked for 1 worker, whom no rate limits: take 2 workers or more")
    replays = RateReplays(scenario, recorded, field)

    def speedup(rate_Bps: float, reducer: str) -> float:
        dense_ps, own_ps = replays.dense_at(rate_Bps), replays.time_at(rate_Bps, reducer)
        return dense_ps / own_ps if own_ps else inf

    baseline = baseline_of(recorded)
    others = [item.option_string for item in recorded if item is not baseline]
    at_rates = []
    for rate_Bps in rates_Bps:
        at_rates.append([speedup(rate_Bps, reducer) for reducer in others])
        on_rate()
    return RateCurves(
        field=field,
        workers=workers,
        own_Bps=rate_of(cluster.shape, field),
        rates_Bps=tuple(rates_Bps),
        baseline=baseline.option_string,
        speedups=dict(zip(others, zip(*at_rates, strict=True), strict=True)),
        compute=scenario.compute_ps is not None or scenario.training is not None,
        extrapolated=isinstance(scenario.trace, MoreRanks) or scenario.target is not None,
    )
