"""How long a collective takes alone on a cluster, which algorithm is fastest, and what its links carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.recurrence import private_times_ps, shares_links
from s2sim.collectives.registry import ALGORITHMS, make_algorithm
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
    finish_ps : int64 array, shape (ranks,)
        When each rank is done, from a common start.
    why : str
        Why this algorithm, for people.
    """

    schedule: Schedule
    routes: Routes
    finish_ps: NDArray[np.int64]
    why: str

    @property
    def duration_ps(self) -> int:
        """When the last rank is done."""
        return int(self.finish_ps.max())


def simulate(schedule: Schedule, cluster: Cluster, routes: Routes) -> NDArray[np.int64]:
    """Return when each rank is done, by the fluid network alone, int64 picoseconds of shape (ranks,)."""
    import simpy

    from s2sim.collectives.running import Running
    from s2sim.network.fluid import FluidNetwork

    env = simpy.Environment(initial_time=0)
    running = Running(env, FluidNetwork(env, cluster.fabric), schedule, routes, lambda: None)
    running.start()
    env.run()
    return running.finish_ps


def link_bytes(schedule: Schedule, cluster: Cluster, routes: Routes) -> NDArray[np.float64]:
    """Return the bytes that every link carries, float64 of shape (links,)."""
    per_crossing = np.repeat(schedule.pair_bytes(), np.diff(routes.offsets)) * routes.weights
    return np.bincount(routes.links, per_crossing, len(cluster.fabric.rate_Bps))


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
        if len(able) == 1 or demand.ranks == 1:
            return self._run(able[0], demand, f"the only algorithm for {demand.kind}")
        best: Timed | None = None
        others: list[str] = []
        for name in able:
            schedule = make_algorithm(name, demand.kind).schedule(demand, self.cluster)
            routes = self.cluster.routes(schedule.src, schedule.dst)
            if best is not None and self._at_least_ps(schedule, routes) >= best.duration_ps:
                others.append(f"{name} at least {format_seconds(self._at_least_ps(schedule, routes) / PS_PER_S)}")
                continue
            timed = self._timed(schedule, routes, "")
            if best is None or timed.duration_ps < best.duration_ps:
                best, timed = timed, best or timed
            if timed is not best:
                others.append(f"{timed.schedule.algorithm} {format_seconds(timed.duration_ps / PS_PER_S)}")
        assert best is not None
        why = f"fastest: {format_seconds(best.duration_ps / PS_PER_S)} against {', '.join(others)}"
        return Timed(best.schedule, best.routes, best.finish_ps, why)

    def _at_least_ps(self, schedule: Schedule, routes: Routes) -> float:
        """Return a time that the schedule cannot beat: its busiest link's bytes over that link's rate."""
        busy = link_bytes(schedule, self.cluster, routes) / self.cluster.fabric.rate_Bps
        return float(busy.max()) * PS_PER_S

    def _run(self, algorithm: str, demand: Demand, why: str) -> Timed:
        schedule = make_algorithm(algorithm, demand.kind).schedule(demand, self.cluster)
        return self._timed(schedule, self.cluster.routes(schedule.src, schedule.dst), why)

    def _timed(self, schedule: Schedule, routes: Routes, why: str) -> Timed:
        finish = (
            simulate(schedule, self.cluster, routes)
            if shares_links(routes)
            else private_times_ps(schedule, self.cluster.fabric, routes)
        )
        return Timed(schedule, routes, finish, why)
