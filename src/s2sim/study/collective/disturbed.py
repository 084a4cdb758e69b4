"""A collective while faults happen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

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

    It starts when the last rank has come, on a cluster with those faults that last from the start on. ``on_round`` is
    told of every round when all of it has been delivered, ``on_loads`` of the loads of all links whenever they change.
    """
    import simpy

    env = simpy.Environment(initial_time=0)
    late_ps = arrivals_ps(faults, cluster.workers, "a collective")
    disturbance = Disturbance(env, cluster, faults, cluster.seed, on_loads)
    ends_ps = late_ps[: schedule.places].copy()
    over = env.event()

    def note(ran: RanRound) -> None:
        for side in (ran.round.pattern.src, ran.round.pattern.dst):
            # What passes a switch is for all of its group.
            np.maximum.at(ends_ps, side, np.resize(ran.end_ps, len(side)))
        if on_round is not None:
            on_round(ran)

    def finish() -> None:
        over.succeed()

    def start() -> Generator[simpy.Event, None, None]:
        yield env.timeout(int(late_ps.max()))
        disturbance.running(schedule, finish, note).start()

    env.process(start())
    env.run(until=over)
    slow = [fault.effect_on_collective(late_ps) for fault in faults]
    effects = [*disturbance.effects(), *(effect for effect in slow if effect is not None)]
    return Disturbed(ends_ps, effects, Sent(*disturbance.network.sent()))
