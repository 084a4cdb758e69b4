"""Collectives and transfers while faults happen, and what each fault did."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.timing.ways import find_routes
from s2sim.errors import OptionError, S2SimWarning
from s2sim.network.transfers import deliver_ps
from s2sim.replay.faults.disturbance import Disturbance
from s2sim.replay.faults.held_back import arrivals_ps
from s2sim.replay.faults.lasting import lasting_effects
from s2sim.study.collective.link_loads import Sent
from s2sim.study.progress import Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import simpy
    from numpy.typing import NDArray

    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.collectives.timing.running import RanRound
    from s2sim.network.changing import ChangingNetwork
    from s2sim.network.fluid import OnLoads
    from s2sim.replay.faults.fault import Effect, Fault
    from s2sim.study.progress import Progress
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.fabric import Fabric
    from s2sim.topology.routes import Routes


@dataclass(frozen=True, slots=True, eq=False)
class Disturbed:
    """What a simulation with faults gave.

    Attributes
    ----------
    ends_ps : int64 array
        When each rank's last message, or each transfer, was delivered.
    effects : list of Effect
        What the faults did that do not last from the start on.
    sent : Sent
        What the network carried, background traffic and detours included.
    """

    ends_ps: NDArray[np.int64]
    effects: list[Effect]
    sent: Sent

    @property
    def duration_ps(self) -> int:
        """When all was over."""
        return int(self.ends_ps.max(initial=0))


def check_fluid(faults: Sequence[Fault], network: str, *, cross_check: bool) -> None:
    """Refuse packets together with faults that act while messages are in flight."""
    moving = [fault.text for fault in faults if not fault.lasting]
    if moving and (cross_check or network != "fluid"):
        raise OptionError(
            f"{moving[0]} needs the fluid network, and packets were asked for: links that are slow or have failed from "
            "the start on are all that packets know of faults"
        )


def draws(faults: Sequence[Fault]) -> bool:
    """Return whether a seed decides anything of the faults."""
    return any(fault.draws for fault in faults)


def effects_json(effects: Sequence[Effect]) -> dict[str, list[str]]:
    """Return what a result says of its faults: their option strings, and what each did; nothing without faults."""
    if not effects:
        return {}
    return {"faults": [effect.fault for effect in effects], "fault_effects": [effect.did for effect in effects]}


def in_order(effects: Sequence[Effect], faults: Sequence[Fault]) -> tuple[Effect, ...]:
    """Return the effects in the order of the faults."""
    place = {fault.text: index for index, fault in enumerate(faults)}
    return tuple(sorted(effects, key=lambda effect: place[effect.fault]))


def warn_of_idle_faults(effects: Sequence[Effect]) -> None:
    """Warn of every fault that did nothing."""
    for effect in effects:
        if effect.nothing:
            warnings.warn(f"--fault {effect.fault} changes nothing here: {effect.did}", S2SimWarning, stacklevel=3)


def disturb_collective(
    schedule: Schedule,
    cluster: Cluster,
    faults: Sequence[Fault],
    on_round: Callable[[RanRound], None] | None = None,
    on_loads: OnLoads | None = None,
) -> Disturbed:
    """Run a collective in the fluid network, message by message, while faults happen.

    Parameters
    ----------
    schedule : Schedule
        What runs; it starts when the last rank has come.
    cluster : Cluster
        Where, with those faults that last from the start on.
    faults : sequence of Fault
        All of them.
    on_round : callable, optional
        Told of every round when all of it has been delivered.
    on_loads : callable, optional
        Told of the loads of all links whenever they change.
    """
    import simpy

    env = simpy.Environment(initial_time=0)
    late_ps = arrivals_ps(faults, cluster.workers, "a collective")
    disturbance = Disturbance(env, cluster, faults, cluster.seed, on_loads)
    ends_ps = late_ps[: schedule.places].copy()
    over = env.event()

    def note(ran: RanRound) -> None:
        for side in (ran.round.pattern.src, ran.round.pattern.dst):
            np.maximum.at(ends_ps, side, ran.end_ps)
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


def disturb_flows(
    cluster: Cluster,
    faults: Sequence[Fault],
    start_ps: NDArray[np.int64],
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]],
    sizes_bytes: NDArray[np.float64],
    progress: Progress | None = None,
) -> Disturbed:
    """Send transfers through the fluid network while faults happen.

    Parameters
    ----------
    cluster : Cluster
        Where, with those faults that last from the start on.
    faults : sequence of Fault
        All of them.
    start_ps : int64 array, shape (n,)
        When each would start; those of a rank that comes late start later.
    pairs : two int64 arrays, shape (n,)
        Ranks from which and to which.
    sizes_bytes : float64 array, shape (n,)
        Bytes of each.
    progress : Progress, optional
        Told of deliveries.
    """
    late_ps = arrivals_ps(faults, cluster.workers, "a transfer")[pairs[0]]
    made: list[Disturbance] = []
    watcher = progress or Silent()
    watcher.start(len(start_ps), "delivering")

    def network(env: simpy.Environment, _: Fabric) -> ChangingNetwork:
        made.append(Disturbance(env, cluster, faults, cluster.seed))
        # The transfers' routes are the first that the network is given.
        made[0].network.join(np.arange(len(start_ps)), *pairs)
        return made[0].network

    def on_delivered(count: int) -> None:
        for _ in range(count):
            watcher.advance()

    routes = cluster.routes(*pairs)
    ends_ps = deliver_ps(cluster.fabric, routes, start_ps + late_ps, sizes_bytes, on_delivered, network)
    watcher.stop()
    ends_ps = ends_ps + made[0].late_ps(0, 0, 0, len(ends_ps))
    slow = [fault.effect_on_transfers(pairs[0]) for fault in faults]
    effects = [*made[0].effects(), *(effect for effect in slow if effect is not None)]
    return Disturbed(ends_ps, effects, Sent(*made[0].network.sent()))


def lasting_collective(schedule: Schedule, healthy: Cluster, cluster: Cluster, faults: Sequence[Fault]) -> list[Effect]:
    """Return what those faults did to a collective that last from the start on."""
    return lasting_effects(faults, healthy, sent_both_ways(schedule, healthy, cluster))


def sent_both_ways(schedule: Schedule, healthy: Cluster, cluster: Cluster) -> Iterator[tuple[Routes, Routes, int]]:
    """Yield the routes of a schedule's messages on a healthy cluster and on a damaged one, and how often they go."""
    for pattern, steps in groupby(schedule.steps, key=lambda step: step.round.pattern):
        if pattern.messages:
            yield find_routes(healthy, pattern), find_routes(cluster, pattern), sum(step.times for step in steps)
