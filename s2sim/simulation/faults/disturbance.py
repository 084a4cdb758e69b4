"""Faults in simulated time, on one network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.schedules.schedule import Pattern, Schedule
from s2sim.collectives.timing.by_message import MessageLevelRun
from s2sim.collectives.timing.collective_run import CompletedRound
from s2sim.collectives.timing.critical_path import CriticalPath, UncontendedRun, critical_path
from s2sim.network.fluid import OnLoads
from s2sim.network.time_varying import TimeVaryingNetwork
from s2sim.simulation.faults.fault import Effect, Fault
from s2sim.topology.cluster import Cluster
from s2sim.topology.graph import Routes

if TYPE_CHECKING:
    import simpy


class FaultyNetwork:
    """A network with the transient faults.

    Background traffic never ends, so that the simulation has to be stopped. The cluster already has the permanent
    faults; ``seed`` is the root of random samples, and ``on_loads`` is called whenever loads of links change.
    """

    def __init__(
        self,
        env: simpy.Environment,
        cluster: Cluster,
        faults: Sequence[Fault],
        seed: int,
        on_loads: OnLoads | None = None,
    ) -> None:
        self._cluster = cluster
        self.network = TimeVaryingNetwork(env, cluster, on_loads)
        begun = [fault.act(self.network, cluster, seed) for fault in faults if not fault.permanent]
        self._acting = [each for each in begun if each is not None]
        self._delays = [each.late_ps for each in self._acting if each.late_ps is not None]
        self._delays_alone = on_loads is None and len(self._delays) == len(self._acting)
        self._started = 0

    def running(
        self,
        schedule: Schedule,
        on_complete: Callable[[], None],
        on_round: Callable[[CompletedRound], None] | None = None,
        ranks: Sequence[int] = (),
        on_rank_done: Callable[[int], None] | None = None,
        alone: Callable[[Pattern], Routes] | None = None,
    ) -> MessageLevelRun | UncontendedRun:
        """Return a collective of some ranks, or all, ready to post; ``alone`` has routes if nothing else is sent."""
        number = self._started
        self._started += 1
        members = np.asarray(ranks, np.int64)

        def join(numbers: Ints, src: Ints, dst: Ints) -> None:
            self.network.join(numbers, members[src] if len(members) else src, members[dst] if len(members) else dst)

        late_ps = partial(self.late_ps, number) if self._delays else None
        cluster = self._cluster.within(ranks) if ranks else self._cluster
        if alone is not None and on_round is None and self._delays_alone:
            passage = critical_path(schedule, cluster, alone)
            if passage is not None:
                self._pass_by(schedule, passage, join)
                env = self.network.env
                return UncontendedRun(env, schedule, passage, on_complete, on_rank_done=on_rank_done, late_ps=late_ps)
        return MessageLevelRun(
            self.network,
            schedule,
            cluster,
            on_complete,
            on_rank_done=on_rank_done,
            on_round=on_round,
            late_ps=late_ps,
            on_routes=join,
        )

    def _pass_by(self, schedule: Schedule, passage: CriticalPath, join: Callable[[Ints, Ints, Ints], None]) -> None:
        numbers: dict[bytes, Ints] = {}
        for step in schedule.steps:
            pattern = step.round.pattern
            if pattern.messages and pattern.key not in numbers:
                added = numbers[pattern.key] = self.network.add_routes(passage.routes[pattern.key])
                join(added, pattern.src[: len(added)], pattern.dst[: len(added)])
            if pattern.messages:
                self.network.record_unsent(numbers[pattern.key], step.times * step.round.bytes)

    def late_ps(self, collective: int, step: int, time: int, messages: int) -> Ints:
        """Return the delay of each message of a round, int64 picoseconds, independent of the order of events."""
        total_ps = np.zeros(messages, np.int64)
        for late_ps in self._delays:
            total_ps += late_ps(collective, step, time, messages)
        return total_ps

    def effects(self) -> list[Effect]:
        """Return the effect of every fault until now."""
        return [acting.effect() for acting in self._acting]


def has_transient_faults(faults: Sequence[Fault]) -> bool:
    """Return whether any fault changes a network while it runs."""
    return any(fault.on_network and not fault.permanent for fault in faults)
