"""The simulated cluster's clock beside a training: what every step's scripts take there, and the bytes they send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.replay.plan import make_plan
from s2sim.replay.run import replay
from s2sim.study.measuring.wire import ring_traffic, schedule_traffic
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from s2sim.collectives.timing.timer import Timer
    from s2sim.reducers.rank import Reducer
    from s2sim.reducers.scripts.script import Recording
    from s2sim.study.scenario.cluster import Scenario
    from s2sim.study.scenario.machines import Machines


@dataclass(frozen=True, slots=True)
class Tick:
    """One step on the cluster: all of its time in seconds, and the bytes that the busiest rank sends."""

    time_s: float
    sent_bytes: int


class Clock:
    """Times steps of one reducer; those with the scripts of an earlier one are not replayed again."""

    def __init__(self, where: Scenario, machines: Machines, reducer: Reducer, workers: int, compute_ps: int) -> None:
        self._where = where.running(reducer.runs_by)
        self._timer: Timer = self._where.timer(workers)
        self._machines = machines
        self._compute_ps = compute_ps
        self._known: dict[Recording, Tick] = {}

    def tick(self, recording: Recording) -> Tick:
        """Return what a step takes."""
        if recording not in self._known:
            self._known[recording] = self._replayed(recording)
        return self._known[recording]

    def _replayed(self, recording: Recording) -> Tick:
        plan = make_plan(recording, self._machines.library)
        found = replay(
            recording,
            self._timer,
            self._machines.gpu,
            plan,
            compute_ps=self._compute_ps,
            faults=self._where.faults,
        )
        ranks = recording.workers
        by_ring = self._where.counts_as_ring
        sent = ring_traffic(plan.lowered, ranks)[0] if by_ring else schedule_traffic(found, ranks)[0]
        return Tick((self._compute_ps + found.total_ps) / PS_PER_S, int(sent.max(initial=0)))
