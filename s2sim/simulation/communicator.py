"""Communicators in simulated time: what ranks post is launched as the library would."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.schedules.schedule import Pattern, Round, Schedule
from s2sim.collectives.timing.collective_run import CollectiveRun, CompletedRound, IdleNetwork
from s2sim.collectives.timing.timer import TimedSchedule, Timer
from s2sim.libraries.lowering import SIZE_EXCHANGE, LaunchStep, LocalWork, merge_into_launch
from s2sim.network.base import at_end_of_timestep, call_after
from s2sim.network.fluid import FluidNetwork
from s2sim.simulation.faults.disturbance import FaultyNetwork
from s2sim.simulation.plan import Plan, Watcher, local_work_ps
from s2sim.topology.hardware import Gpu

if TYPE_CHECKING:
    import simpy


@dataclass(frozen=True, slots=True)
class Launch:
    """What went onto the network at once."""

    parts: tuple[tuple[int, LaunchStep], ...]  # Which of the recording's calls, and which step of each
    timed: TimedSchedule  # The schedule that ran for all of them, and its time alone
    ranks: tuple[int, ...]  # Who took part, as the schedule numbers them; empty for all
    # start_ps, end_ps: from when the last rank took part until the last rank was done
    start_ps: int
    end_ps: int


@dataclass(frozen=True, slots=True)
class CompletedCalls:
    """Calls of the recording that were executed together."""

    calls: tuple[int, ...]
    start_ps: int
    end_ps: int


@dataclass(frozen=True, slots=True)
class _GroupProgram:
    calls: tuple[int, ...]
    ranks: tuple[int, ...]
    posted_ps: int
    priority: int


class Communicators:
    """Executes a call when its last rank has posted it: its kernels on all ranks need each other.

    Every group of ranks has a communicator of its own. Calls that are posted on it at the same instant and lower to
    launches of the same kinds go together where the library groups, as in a group call of NCCL: bytes add, latency is
    paid once. At most ``in_flight`` of a plan run on it at once, in the order in which they became ready; launches of
    different groups do not wait for each other. A launch that nothing can disturb runs as it runs alone, which the
    timer knows; others share the network. Work between launches is that of the busiest rank, and takes no time from
    what the ranks' own programs do meanwhile.

    ``quiet()`` returns whether nothing will come from any rank before a collective ends. ``watcher`` is called with
    every message; ``disturbance`` changes the network; ``slowest`` scales local work. ``priorities`` has a number per
    call, of which the smallest goes first. ``on_launch(timed, ranks)`` is called when a launch begins and returns the
    callback for its end.
    """

    def __init__(
        self,
        env: simpy.Environment,
        plan: Plan,
        ranks: int,
        timer: Timer,
        gpu: Gpu,
        quiet: Callable[[], bool],
        *,
        watcher: Watcher | None = None,
        disturbance: FaultyNetwork | None = None,
        slowest: float = 1.0,
        priorities: Sequence[int] | None = None,
        on_launch: Callable[[TimedSchedule, tuple[int, ...]], Callable[[], None]] | None = None,
    ) -> None:
        self._watcher = watcher
        self._env = env
        self._plan = plan
        self._timer = timer
        self._gpu = gpu
        self._quiet = quiet
        self._disturbance = disturbance
        self._slowest = slowest
        self._priorities = priorities or [0] * len(plan.lowered)
        self._on_launch = on_launch
        self.done = [env.event() for _ in plan.lowered]
        self.released = [env.event() if lowered.blocks_host else None for lowered in plan.lowered]
        self.ended_ps: dict[int, int] = {}
        self.launches: list[Launch] = []
        self.completed: list[CompletedCalls] = []
        self.missing = [len(lowered.ranks) or ranks for lowered in plan.lowered]
        self._ready: list[int] = []
        self._queues: dict[tuple[int, ...], deque[_GroupProgram]] = {each.ranks: deque() for each in plan.lowered}
        self._running = dict.fromkeys(self._queues, 0)
        self._network: FluidNetwork | None = None

    def post(self, call: int, ranks: int) -> None:
        """Count ``ranks`` more ranks that have posted ``call``; it is ready with the last of them."""
        self.missing[call] -= ranks
        if self.missing[call] == 0:
            self._ready.append(call)
            if len(self._ready) == 1:
                at_end_of_timestep(self._env, self._take_ready)

    def _take_ready(self) -> None:
        ready, self._ready = self._ready, []
        together_by: dict[tuple[tuple[int, ...], int, Hashable], list[int]] = {}
        for call in ready:
            lowered = self._plan.lowered[call]
            key: Hashable = lowered.kinds if self._plan.groups else call
            together_by.setdefault((lowered.ranks, self._priorities[call], key), []).append(call)
        for (ranks, priority, _), calls in together_by.items():
            self._queues[ranks].append(_GroupProgram(tuple(calls), ranks, int(self._env.now), priority))
        for ranks in dict.fromkeys(ranks for ranks, _, _ in together_by):
            self._start_next(ranks)

    def _start_next(self, ranks: tuple[int, ...]) -> None:
        limit, queue = self._plan.in_flight, self._queues[ranks]
        while queue and (limit is None or self._running[ranks] < limit):
            self._running[ranks] += 1
            first = min(queue, key=lambda program: program.priority)
            queue.remove(first)
            self._env.process(self._execute(first))

    def _execute(self, program: _GroupProgram) -> Generator[simpy.Event, None, None]:
        lowered = [self._plan.lowered[call] for call in program.calls]
        for steps in zip(*(each.steps for each in lowered), strict=True):
            yield from self._work([step.before for step in steps])
            if steps[0].what != SIZE_EXCHANGE:
                for call in program.calls:
                    released = self.released[call]
                    if released is not None:
                        released.succeed()
                        self.released[call] = None
            yield self._launched(program, steps)
        yield from self._work([each.after for each in lowered])
        self._running[program.ranks] -= 1
        self.completed.append(CompletedCalls(program.calls, program.posted_ps, int(self._env.now)))
        for call in program.calls:
            self.ended_ps[call] = int(self._env.now)
            self.done[call].succeed()
        self._start_next(program.ranks)

    def _work(self, local: Sequence[LocalWork]) -> Generator[simpy.Event, None, None]:
        duration = ceil(
            local_work_ps(sum(local, LocalWork()), self._gpu, self._timer.cluster.shape.pcie) * self._slowest
        )
        if duration:
            yield self._env.timeout(duration)

    def _launched(self, program: _GroupProgram, steps: Sequence[LaunchStep]) -> simpy.Event:
        """Return the event of the launch's end; how it runs is decided when all else of this instant has happened."""
        ended = self._env.event()
        ranks = program.ranks
        timed = self._timer.within(ranks).time(merge_into_launch([demand for step in steps for demand in step.demands]))
        start_ps = int(self._env.now)
        ends = None if self._on_launch is None else self._on_launch(timed, ranks)

        def end() -> None:
            if ends is not None:
                ends()
            parts = tuple(zip(program.calls, steps, strict=True))
            self.launches.append(Launch(parts, timed, ranks, start_ps, int(self._env.now)))
            ended.succeed()

        what = f"{timed.schedule.demand.kind} {steps[0].what}".rstrip()
        at_end_of_timestep(self._env, partial(self._start, timed, ranks, what, end))
        return ended

    def _start(self, timed: TimedSchedule, ranks: tuple[int, ...], what: str, end: Callable[[], None]) -> None:
        cluster, members = self._timer.within(ranks).cluster, self._timer.members_of(ranks)
        on_round = (
            None if self._watcher is None else partial(_report_round, self._watcher, members, timed.schedule, what)
        )
        one_after_another = self._plan.in_flight == 1 and len(self._queues) == 1
        alone = sum(self._running.values()) == 1 and (one_after_another or self._quiet())
        if self._disturbance is not None:
            routes = timed.times.routes if alone else None
            self._disturbance.running(timed.schedule, end, on_round, tuple(members.tolist()), alone=routes).start()
            return
        if self._watcher is not None:
            self._network = self._network or FluidNetwork(self._env, cluster.fabric, self._watcher.add_loads)
            CollectiveRun(self._network, timed.schedule, cluster, end, on_round=on_round).start()
            return
        if alone:
            call_after(self._env, timed.duration_ps, end)
            return
        self._network = self._network or FluidNetwork(self._env, cluster.fabric)
        passing = IdleNetwork(self._network, timed.times)
        CollectiveRun(self._network, timed.schedule, cluster, end, passing=passing).start()


def _report_round(watcher: Watcher, members: Ints, schedule: Schedule, what: str, ran: CompletedRound) -> None:
    """Tell a watcher of a round by the ranks' own numbers; of groups beside each other of the first."""
    if schedule.concurrent:
        ran = _first_group_messages(ran, schedule.places - schedule.concurrent)
    if len(members):
        pattern = ran.round.pattern
        named = replace(pattern, src=members[pattern.src], dst=members[pattern.dst])
        ran = replace(ran, round=replace(ran.round, pattern=named))
    watcher.add_round(ran, what)


def _first_group_messages(ran: CompletedRound, ranks: int) -> CompletedRound:
    pattern = ran.round.pattern
    own = np.flatnonzero(pattern.src < ranks)
    sent = np.zeros(min(len(own), 1), np.int64) if pattern.through_switch else own
    named = Pattern(pattern.src[own], pattern.dst[own], through_switch=pattern.through_switch)
    return replace(ran, round=Round(named, ran.round.bytes[sent]), end_ps=ran.end_ps[sent], sent_ps=ran.sent_ps[sent])
