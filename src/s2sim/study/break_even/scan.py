"""Break-even over a rate of the topology: the recorded scripts, replayed on the same cluster at other rates."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.study.break_even.crossings import HIGHEST_BPS, find_crossings, scanned_rates
from s2sim.study.break_even.rate_replays import RateReplays, limiting_rate
from s2sim.study.measuring.record import baseline_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.measuring.record import Recorded
    from s2sim.study.measuring.verdict_row import Crossing
    from s2sim.study.progress import Progress
    from s2sim.study.scenario.reducers import ReducerScenario


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan found.

    Attributes
    ----------
    field : str or None
        The topology field that was varied; None where nothing crosses a link.
    crossings : tuple of Crossing
        Where a reducer and dense take the same time.
    pays_at_ends : dict of str to (bool, bool)
        For each reducer, whether it is faster than dense at the lowest and at the highest rate.
    highest_Bps : float
        Highest rate that was tried, in bytes per second; beyond it nothing changes, or no network goes.
    """

    field: str | None
    crossings: tuple[Crossing, ...] = ()
    pays_at_ends: dict[str, tuple[bool, bool]] = dataclasses.field(default_factory=dict)
    highest_Bps: float = HIGHEST_BPS


def scan_rates(scenario: ReducerScenario, recorded: Sequence[Recorded], progress: Progress) -> Scan:
    """Return where each recorded reducer breaks even with dense over the rate that limits this cluster."""
    cluster = scenario.healthy(recorded[0].recording.workers)
    varied = limiting_rate(cluster)
    others = [item.option_string for item in recorded if item is not baseline_of(recorded)]
    if varied is None or not others:
        return Scan(None)
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
    return Scan(varied, crossings, ends, highest_Bps)
