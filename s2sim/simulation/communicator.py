"""Communicators in simulated time: calls that ranks post are launched as by the library."""

from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil

import numpy as np
import simpy

from s2sim.arrays import Ints
from s2sim.collectives.schedules.schedule import Pattern, Round, Schedule
from s2sim.collectives.timing.collective_run import CollectiveRun, CompletedRound
from s2sim.collectives.timing.routes import KnownRoutes
from s2sim.collectives.timing.timer import TimedSchedule, Timer
from s2sim.libraries.lowering import SIZE_EXCHANGE, LaunchStep, LocalWork, merge_into_launch
from s2sim.network.base import at_end_of_timestep, call_after
from s2sim.network.fluid import FluidNetwork
from s2sim.reducers.script import Post, Recording, all_alike
from s2sim.simulation.faults.fault import FaultyNetwork
from s2sim.simulation.plan import Plan, Watcher, local_work_ps
from s2sim.topology.hardware import Gpu


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch on the network."""

    parts: tuple[tuple[int, LaunchStep], ...]  # Calls of the recording, and the step of each
    timed: TimedSchedule  # The schedule of all of them, and its time alone
    ranks: tuple[int, ...]  # Participants in the order of the schedule; empty for all
    start_ps: int  # When the last rank took part
    end_ps: int  # When the last rank was done


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


def one_stands_for_all(recording: Recording, plan: Plan, timer: Timer) -> bool:
    """Return whether all ranks do the same at the same times, in groups that take equally long and share no link."""
    lowered = plan.lowered
    groups = {each.ranks: tuple(timer.members_of(each.ranks).tolist()) for each in lowered}
    if plan.in_flight != 1 or () in groups or not all_alike(recording):
        return False
    if timer.ways.sharing_no_link(tuple(groups.values())) != set(groups.values()):
        return False
    timed = [
        [timer.within(each.ranks).time(merge_into_launch(step.demands)).duration_ps for step in each.steps]
        for each in lowered
    ]
    scripts = recording.distinct_scripts
    first, *others = ([timed[step.call] for step in script if isinstance(step, Post)] for script in scripts)
    return all(each == first for each in others)


@dataclass(eq=False)
class Communicators:
    """Executes a call when its last rank has posted it: its kernels on all ranks need each other.

    Every group of ranks has its own communicator. Calls of a bucket that are posted on it at the same time, with
    launches of the same kinds, are one launch if the library groups, as in a group call of NCCL: bytes add, latency is
    paid once. At most ``in_flight`` of a plan run on it concurrently, in the order in which they became ready; launches
    of different groups do not wait for each other. A launch that nothing can disturb, as one of a group that shares no
    link with another, takes the timer's time; others share the network. Work between launches is that of the busiest
    rank, concurrent with the ranks' own programs.

    ``quiet()`` returns whether no rank will post before a collective ends. ``watcher`` is called with every message;
    ``disturbance`` changes the network; ``slowest`` scales local work. ``priorities`` has a number per call, of which
    the smallest is first. ``on_launch(timed, ranks)`` is called when a launch begins and returns the callback for its
    end. If ``one_for_all``, only the calls of the first rank are posted, of whom one stands for each rank.
    """

    env: simpy.Environment
    plan: Plan
    timer: Timer
    gpu: Gpu
    quiet: Callable[[], bool]
    watcher: Watcher | None = None
    disturbance: FaultyNetwork | None = None
    slowest: float = 1.0
    priorities: Sequence[int] | None = None
    on_launch: Callable[[TimedSchedule, tuple[int, ...]], Callable[[], None]] | None = None
    one_for_all: bool = False
    ended_ps: dict[int, int] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    completed: list[CompletedCalls] = field(default_factory=list)
    _ready: list[int] = field(default_factory=list)
    _network: FluidNetwork | None = None
    _known_routes: dict[tuple[int, ...], KnownRoutes] = field(default_factory=dict)  # By group of ranks

    def __post_init__(self) -> None:
        lowered = self.plan.lowered
        self._priorities = self.priorities or [0] * len(lowered)
        self.done = [self.env.event() for _ in lowered]
        self.released = [self.env.event() if each.blocks_host else None for each in lowered]
        self.missing = [(not self.one_for_all and len(each.ranks)) or self.timer.workers for each in lowered]
        self._queues: dict[tuple[int, ...], deque[_GroupProgram]] = {each.ranks: deque() for each in lowered}
        self._running = dict.fromkeys(self._queues, 0)
        members = [tuple(self.timer.members_of(ranks).tolist()) for ranks in self._queues]
        apart = self.timer.ways.sharing_no_link(tuple(members))
        self._apart = {ranks for ranks, own in zip(self._queues, members, strict=True) if own in apart}

    def post(self, call: int, ranks: int) -> None:
        """Count ``ranks`` more ranks that have posted ``call``; it is ready with the last of them."""
        self.missing[call] -= ranks
        if self.missing[call] == 0:
            self._ready.append(call)
            if len(self._ready) == 1:
                at_end_of_timestep(self.env, self._take_ready)

    def _take_ready(self) -> None:
        ready, self._ready = self._ready, []
        together_by: dict[tuple[tuple[int, ...], int, Hashable], list[int]] = {}
        for call in ready:
            key = self.plan.lowered[call].ranks, self._priorities[call], self.plan.launch_key(call)
            together_by.setdefault(key, []).append(call)
        for (ranks, priority, _), calls in together_by.items():
            self._queues[ranks].append(_GroupProgram(tuple(calls), ranks, int(self.env.now), priority))
        for ranks in dict.fromkeys(ranks for ranks, _, _ in together_by):
            self._start_next(ranks)

    def _start_next(self, ranks: tuple[int, ...]) -> None:
        limit, queue = self.plan.in_flight, self._queues[ranks]
        while queue and (limit is None or self._running[ranks] < limit):
            self._running[ranks] += 1
            first = min(queue, key=lambda program: program.priority)
            queue.remove(first)
            self.env.process(self._execute(first))

    def _execute(self, program: _GroupProgram) -> Generator[simpy.Event, None, None]:
        lowered = [self.plan.lowered[call] for call in program.calls]
        for steps in zip(*(each.steps for each in lowered), strict=True):
            yield from self._work([step.before for step in steps])
            if steps[0].what != SIZE_EXCHANGE:
                release_hosts(self.released, program.calls)
            yield self._launched(program, steps)
        yield from self._work([each.after for each in lowered])
        self._running[program.ranks] -= 1
        self.completed.append(CompletedCalls(program.calls, program.posted_ps, int(self.env.now)))
        for call in program.calls:
            self.ended_ps[call] = int(self.env.now)
            self.done[call].succeed(int(self.env.now))
        self._start_next(program.ranks)

    def _work(self, local: Sequence[LocalWork]) -> Generator[simpy.Event, None, None]:
        duration = ceil(local_work_ps(sum(local, LocalWork()), self.gpu, self.timer.cluster.shape.pcie) * self.slowest)
        if duration:
            yield self.env.timeout(duration)

    def _launched(self, program: _GroupProgram, steps: Sequence[LaunchStep]) -> simpy.Event:
        """Return the event of the launch's end; its execution is decided at the end of the timestep."""
        ended = self.env.event()
        ranks = program.ranks
        timed = self.timer.within(ranks).time(merge_into_launch([demand for step in steps for demand in step.demands]))
        start_ps = int(self.env.now)
        on_end = None if self.on_launch is None else self.on_launch(timed, ranks)

        def end() -> None:
            if on_end is not None:
                on_end()
            parts = tuple(zip(program.calls, steps, strict=True))
            self.launches.append(Launch(parts, timed, ranks, start_ps, int(self.env.now)))
            ended.succeed()

        what = f"{timed.schedule.demand.kind} {steps[0].what}".rstrip()
        at_end_of_timestep(self.env, partial(self._start, timed, ranks, what, end))
        return ended

    def _start(self, timed: TimedSchedule, ranks: tuple[int, ...], what: str, end: Callable[[], None]) -> None:
        cluster, members = self.timer.within(ranks).cluster, self.timer.members_of(ranks)
        on_round = None if self.watcher is None else partial(_report_round, self.watcher, members, timed.schedule, what)
        apart = self.plan.in_flight == 1 and ranks in self._apart
        # What became ready in this timestep begins beside it.
        alone = apart or (not self._ready and sum(self._running.values()) == 1 and self.quiet())
        if self.disturbance is not None:
            routes = timed.times.routes if alone else None
            self.disturbance.running(timed.schedule, end, on_round, tuple(members.tolist()), alone=routes).start()
            return
        if alone and self.watcher is None:
            call_after(self.env, timed.duration_ps, end)
            return
        on_loads, passing = (None, timed.times) if self.watcher is None else (self.watcher.add_loads, None)
        network = self._network = self._network or FluidNetwork(self.env, cluster.fabric, on_loads)
        known = self._known_routes.setdefault(ranks, {})
        CollectiveRun(
            network, timed.schedule, cluster, end, on_round=on_round, passing=passing, known_routes=known
        ).start()


def release_hosts(released: list[simpy.Event | None], calls: Sequence[int]) -> None:
    """Let hosts continue that wait for the sizes of calls."""
    for call in calls:
        event, released[call] = released[call], None
        if event is not None:
            event.succeed(int(event.env.now))


def _report_round(watcher: Watcher, members: Ints, schedule: Schedule, what: str, ran: CompletedRound) -> None:
    """Report a round to a watcher by the ranks' own numbers; of concurrent groups the first."""
    if schedule.concurrent:
        pattern = ran.round.pattern
        own = np.flatnonzero(pattern.src < schedule.places - schedule.concurrent)
        sent = np.zeros(min(len(own), 1), np.int64) if pattern.through_switch else own
        named = Pattern(pattern.src[own], pattern.dst[own], through_switch=pattern.through_switch)
        first = Round(named, ran.round.bytes[sent])
        ran = replace(ran, round=first, end_ps=ran.end_ps[sent], sent_ps=ran.sent_ps[sent])
    if len(members):
        pattern = ran.round.pattern
        named = replace(pattern, src=members[pattern.src], dst=members[pattern.dst])
        ran = replace(ran, round=replace(ran.round, pattern=named))
    watcher.add_round(ran, what)
