"""A collective while faults happen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.timing.ways import find_routes
from s2sim.replay.faults.disturbance import Disturbance
from s2sim.replay.faults.held_back import arrivals_ps
from s2sim.study.collective.link_loads import Sent

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import simpy

    from s2sim.arrays import Ints
    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.collectives.timing.running import RanRound
    from s2sim.network.fluid import OnLoads
    from s2sim.replay.faults.fault import Effect, Fault
    from s2sim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True, eq=False)
class Disturbed:
    """What a simulation with faults gave."""

    ends_ps: Ints
    effects: list[Effect]
    sent: Sent

    @property
    def duration_ps(self) -> int:
        """When all was over."""
        return int(self.ends_ps.max(initial=0))


def disturb_collective(
    schedule: Schedule,
    cluster: Cluster,
    faults: Sequence[Fault],
    on_round: Callable[[RanRound], None] | None = None,
    on_loads: OnLoads | None = None,
) -> Disturbed:
    """Run a collective in the fluid network, message by message, while faults happen.

    Each rank takes part from when it has come, on a cluster with those faults that last from the start on. What one
    does that holds a rank back is told by what the others come to without it. ``on_round`` is told of every round when
    all of it has been delivered, ``on_loads`` of the loads of all links whenever they change.
    """
    ends_ps, disturbance = _run(schedule, cluster, faults, on_round, on_loads)
    effects = disturbance.effects()
    for fault in faults:
        if not fault.on_network:
            without_ps, _ = _run(schedule, cluster, [other for other in faults if other is not fault])
            effect = fault.effect_on_collective(ends_ps, without_ps)
            effects += [] if effect is None else [effect]
    return Disturbed(ends_ps, effects, Sent(*disturbance.network.sent()))


def _run(
    schedule: Schedule,
    cluster: Cluster,
    faults: Sequence[Fault],
    on_round: Callable[[RanRound], None] | None = None,
    on_loads: OnLoads | None = None,
) -> tuple[Ints, Disturbance]:
    """Return when each rank's part is done, int64 picoseconds of shape (places,), and what it ran on."""
    import simpy

    env = simpy.Environment(initial_time=0)
    late_ps = arrivals_ps(faults, cluster.workers, "a collective")[: schedule.places]
    disturbance = Disturbance(env, cluster, faults, cluster.seed, on_loads)
    ends_ps = np.zeros(schedule.places, np.int64)
    over = env.event()

    def end(rank: int) -> None:
        ends_ps[rank] = env.now

    def finish() -> None:
        over.succeed()

    running = disturbance.running(schedule, finish, on_round, on_rank_done=end, alone=partial(find_routes, cluster))

    def arrive() -> Generator[simpy.Event, None, None]:
        for moment_ps in np.unique(late_ps).tolist():
            yield env.timeout(moment_ps - int(env.now))
            running.post(np.flatnonzero(late_ps == moment_ps).tolist())

    env.process(arrive())
    env.run(until=over)
    return ends_ps, disturbance
