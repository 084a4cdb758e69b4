"""The recorded scripts of one run, replayed on the same cluster at other rates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.study.measuring.executed import Executed
from s2sim.study.measuring.record import baseline_of
from s2sim.topology.shape import with_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.collectives.timing.timer import Timer
    from s2sim.study.measuring.record import Recorded
    from s2sim.study.scenario.reducers import ReducerScenario
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.shape import ClusterShape


def limiting_rate(cluster: Cluster) -> str | None:
    """Return the rate whose break-even people ask for: of the network, or inside the only node."""
    if cluster.workers == 1:
        return None
    if int(cluster.node_of_rank.max()) > 0:
        return "nic.rate"
    return "nvlink.rate" if cluster.shape.nvlink is not None else "pcie.rate"


def rate_of(shape: ClusterShape, field: str) -> float:
    """Return the value, in bytes per second, of what `limiting_rate` names."""
    link = {"nic.rate": shape.nic, "nvlink.rate": shape.nvlink, "pcie.rate": shape.pcie}[field]
    assert link is not None
    return link.rate_Bps


class RateReplays:
    """Times by which reducers are compared on the same cluster at another rate, each computed once.

    Parameters
    ----------
    scenario : ReducerScenario
        Where and with what they ran.
    recorded : sequence of Recorded
        ``dense`` among them.
    varied : str
        The topology field that the rate is given to.
    """

    def __init__(self, scenario: ReducerScenario, recorded: Sequence[Recorded], varied: str) -> None:
        self._scenario = scenario
        self._workers = recorded[0].recording.workers
        self._recorded = {item.option_string: item for item in recorded}
        self._algorithms = {item.option_string: item.reducer.runs_by for item in recorded}
        self._dense = baseline_of(recorded).option_string
        self._varied = varied
        self._scenarios: dict[float, ReducerScenario] = {}
        self._timers: dict[tuple[float, str | None], Timer] = {}
        self._ways = scenario.ways(self._workers)
        self._totals: dict[tuple[float, str], int] = {}

    def dense_at(self, rate_Bps: float) -> int:
        """Return dense's time in picoseconds."""
        return self.time_at(rate_Bps, self._dense)

    def time_at(self, rate_Bps: float, reducer: str) -> int:
        """Return a reducer's time in picoseconds."""
        if rate_Bps not in self._scenarios:
            shape = with_rate(self._scenario.shape, self._varied, rate_Bps)
            self._scenarios[rate_Bps] = replace(self._scenario, shape=shape)
        timed = (rate_Bps, self._algorithms[reducer])
        if timed not in self._timers:
            scenario = self._scenarios[rate_Bps].running(self._algorithms[reducer])
            self._timers[timed] = scenario.timer(self._workers, self._ways)
        key = (rate_Bps, reducer)
        if key not in self._totals:
            item = self._recorded[reducer]
            executed = Executed(item.recording, self._scenario, self._timers[timed], item.exchange)
            self._totals[key] = executed.judged_ps
        return self._totals[key]
