"""How long a collective takes alone on a cluster, which algorithm is fastest, and what its links carry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.registry import ALGORITHMS, make_algorithm
from s2sim.collectives.rounds import RoundTimes, schedule_ps
from s2sim.units import PS_PER_S, format_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.collectives.schedule import Demand, Schedule
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.routes import Routes

AUTO = "auto"


@dataclass(frozen=True, slots=True, eq=False)
class Timed:
    """A schedule and how it runs alone.

    Attributes
    ----------
    schedule : Schedule
        What runs.
    routes : Routes
        Of the schedule's pairs.
    duration_ps : int
        From a common start until the last rank is done.
    why : str
        Why this algorithm, for people.
    """

    schedule: Schedule
    routes: Routes
    duration_ps: int
    why: str


def link_bytes(schedule: Schedule, cluster: Cluster, routes: Routes) -> NDArray[np.float64]:
    """Return the bytes that every link carries, float64 of shape (links,)."""
    per_crossing = np.repeat(schedule.pair_bytes, np.diff(routes.offsets)) * routes.weights
    return np.bincount(routes.links, per_crossing, len(cluster.fabric.rate_Bps)).astype(np.float64)


class Timer:
    """Times collectives alone on one cluster, each distinct one once.

    Parameters
    ----------
    cluster : Cluster
        Where they run.
    algorithm : str
        Option string of an algorithm, or ``auto`` for the fastest of all that run the kind. An algorithm that does not
        run a kind leaves that kind to ``auto``.
    """

    def __init__(self, cluster: Cluster, algorithm: str = AUTO) -> None:
        self.cluster = cluster
        self._algorithm = algorithm
        self._known: dict[Demand, Timed] = {}

    def time(self, demand: Demand) -> Timed:
        """Return the schedule for this demand and how it runs alone."""
        if demand not in self._known:
            self._known[demand] = self._choose(demand)
        return self._known[demand]

    def _choose(self, demand: Demand) -> Timed:
        if self._algorithm != AUTO and demand.kind in ALGORITHMS.get(self._algorithm.partition(":")[0]).kinds:
            return self._run(self._algorithm, demand, "asked for")
        able = [name for name in ALGORITHMS.names() if demand.kind in ALGORITHMS.get(name).kinds]
        if demand.ranks == 1:
            return self._run(able[0], demand, "one rank has nothing to send")
        if len(able) == 1:
            return self._run(able[0], demand, f"the only algorithm for {demand.kind}")
        candidates = []
        for name in able:
            schedule = make_algorithm(name, demand.kind).schedule(demand, self.cluster)
            routes = self.cluster.routes(schedule.src, schedule.dst)
            times = RoundTimes(self.cluster.fabric, routes)
            candidates.append((schedule_ps(schedule, times.at_least_ps), schedule, routes, times))
        candidates.sort(key=lambda candidate: candidate[0])
        found: list[Timed] = []
        others: list[str] = []
        for at_least_ps, schedule, routes, times in candidates:
            if found and at_least_ps >= found[0].duration_ps:
                others.append(f"at least {format_seconds(at_least_ps / PS_PER_S)} by {schedule.algorithm}")
                continue
            found.append(Timed(schedule, routes, schedule_ps(schedule, times.time_ps), ""))
            found.sort(key=lambda timed: timed.duration_ps)
        best, *slower = found
        others += [f"{format_seconds(item.duration_ps / PS_PER_S)} by {item.schedule.algorithm}" for item in slower]
        why = f"fastest: {format_seconds(best.duration_ps / PS_PER_S)} against {', '.join(others)}"
        return replace(best, why=why)

    def _run(self, algorithm: str, demand: Demand, why: str) -> Timed:
        schedule = make_algorithm(algorithm, demand.kind).schedule(demand, self.cluster)
        routes = self.cluster.routes(schedule.src, schedule.dst)
        return Timed(schedule, routes, schedule_ps(schedule, RoundTimes(self.cluster.fabric, routes).time_ps), why)
