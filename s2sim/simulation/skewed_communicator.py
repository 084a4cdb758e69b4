"""A communicator in simulated time for ranks that post at different times and continue when their own part is done."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.schedules.schedule import Schedule
from s2sim.collectives.timing.critical_path import CriticalPath, UncontendedRun
from s2sim.collectives.timing.timer import TimedSchedule, Timer
from s2sim.libraries.lowering import SIZE_EXCHANGE, LaunchStep, LocalWork, merge_into_launch
from s2sim.network.base import at_end_of_timestep, call_after
from s2sim.simulation.communicator import CompletedCalls, Launch, release_hosts
from s2sim.simulation.plan import Plan, local_work_ps
from s2sim.topology.hardware import Gpu

if TYPE_CHECKING:
    import simpy


def lockstep_path(timed: TimedSchedule, ranks: int) -> CriticalPath | None:
    """Return each rank's path through a schedule of all ranks; None if its rounds are not its critical path.

    The last rank ends with the schedule. If individual times of messages do not add up to that, as while a pipeline
    fills, each takes its round's time.
    """
    schedule = timed.schedule
    if not schedule.stage.chain or schedule.places != ranks:
        return None
    times, none = timed.times, np.zeros(0, np.int64)
    steps, rounds = list(schedule.steps), [step.round for step in schedule.steps]
    for whole_rounds in (False, True):
        if whole_rounds:
            flights_ps = [np.full(sent.pattern.messages, times.time_ps(sent)) for sent in rounds]
        else:
            flights_ps = [times.message_ps(sent)[1] if sent.pattern.messages else none for sent in rounds]
        passage = CriticalPath(steps, flights_ps.__getitem__)
        if passage.ends_ps(np.full(ranks, schedule.launch_ps)).max() == timed.duration_ps:
            return passage
    return None


_MAX_MESSAGES = 1 << 25  # about a minute


def can_skew(plan: Plan, timer: Timer) -> bool:
    """Return whether ranks can proceed separately: one group, one call in flight, not too many messages."""
    if plan.in_flight != 1 or any(lowered.ranks for lowered in plan.lowered):
        return False
    messages, messages_of = 0, dict[int, int]()
    for step in (step for lowered in plan.lowered for step in lowered.steps):
        schedule = timer.time(merge_into_launch(step.demands)).schedule
        if id(schedule) not in messages_of:
            messages_of[id(schedule)] = sum(each.times * each.round.pattern.messages for each in schedule.steps)
        messages += messages_of[id(schedule)]
    return messages <= _MAX_MESSAGES


@dataclass(eq=False)
class SkewedCommunicator:
    """Executes calls sequentially on one communicator, on every rank as early as possible.

    A rank takes part in a launch when it has posted all of its calls and is done with the previous launch; a message
    begins once both of its ranks take part, and a rank continues when its own messages are done. All ranks execute
    launches in one order: the first rank that is free selects the next of its posted calls. If the times of messages
    depend on concurrent ones, a launch begins with its last rank and ends on all ranks together.

    ``plan`` has calls of all ranks, one in flight at a time; ``factors`` scale the ranks' work; ``priorities`` has
    a number per call, of which the smallest is first. ``on_launch(timed, rank)`` is called when a rank takes part and
    returns the callback for its end. Ranks post at ``of_rank``; ``launches`` start when their last rank takes part.
    """

    env: simpy.Environment
    plan: Plan
    timer: Timer
    gpu: Gpu
    factors: Sequence[float]
    priorities: Sequence[int]
    on_launch: Callable[[TimedSchedule, int], Callable[[], None]]
    order: list[SharedProgram] = field(default_factory=list)
    ordered: set[int] = field(default_factory=set)
    launches: list[Launch] = field(default_factory=list)
    completed: list[CompletedCalls] = field(default_factory=list)
    _passages: dict[int, tuple[Schedule, CriticalPath | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.posted_ps = [0] * len(self.plan.lowered)
        self.of_rank = [RankCommunicator(self, rank, factor) for rank, factor in enumerate(self.factors)]

    def next_is(self, calls: tuple[int, ...]) -> None:
        """Make calls the next launch for all ranks."""
        lowered = [self.plan.lowered[call] for call in calls]
        self.ordered.update(calls)
        steps = list(zip(*(each.steps for each in lowered), strict=True))
        before_ps = [self._local_ps(step.before for step in together) for together in steps]
        self.order.append(SharedProgram(calls, steps, before_ps, self._local_ps(each.after for each in lowered)))

    def _local_ps(self, local: Iterable[LocalWork]) -> int:
        return local_work_ps(sum(local, LocalWork()), self.gpu, self.timer.cluster.shape.pcie)

    def running(self, shared: SharedProgram, number: int) -> SkewedLaunch:
        """Return one of the launches of some calls, begun with the first rank that takes part."""
        if number not in shared.running:
            steps = shared.steps[number]
            timed = self.timer.time(merge_into_launch([demand for step in steps for demand in step.demands]))
            shared.running[number] = running = SkewedLaunch(timed, tuple(zip(shared.calls, steps, strict=True)))

            def on_complete() -> None:
                del shared.running[number]
                now = int(self.env.now)
                self.launches.append(Launch(running.parts, running.timed, (), running.last_ps, now))

            schedule, done = timed.schedule, running.rank_done
            if id(schedule) not in self._passages:
                self._passages[id(schedule)] = schedule, lockstep_path(timed, len(self.of_rank))
            passage = self._passages[id(schedule)][1]
            if passage is None:
                running.run = _BarrierLaunch(self.env, timed.duration_ps, len(self.of_rank), on_complete, done)
            else:
                running.run = UncontendedRun(self.env, schedule, passage, on_complete, on_rank_done=done)
        return shared.running[number]


@dataclass(slots=True, eq=False)
class SkewedLaunch:
    """A launch in flight, and when each rank that takes part is done."""

    timed: TimedSchedule
    parts: tuple[tuple[int, LaunchStep], ...]
    run: UncontendedRun | _BarrierLaunch = field(init=False)
    done: dict[int, simpy.Event] = field(default_factory=dict)
    last_ps: int = 0

    def rank_done(self, rank: int) -> None:
        """Let a rank continue."""
        self.done.pop(rank).succeed()


@dataclass(slots=True, eq=False)
class SharedProgram:
    """Calls that execute their steps together."""

    calls: tuple[int, ...]
    steps: list[tuple[LaunchStep, ...]]
    before_ps: list[int]
    after_ps: int
    running: dict[int, SkewedLaunch] = field(default_factory=dict)
    ranks_done: int = 0


@dataclass(eq=False)
class RankCommunicator:
    """The communicator of one rank: ``done``, ``released`` (the host waits for it) and ``ended_ps`` of each call."""

    shared: SkewedCommunicator
    rank: int
    factor: float
    ended_ps: dict[int, int] = field(default_factory=dict)
    _ready: list[int] = field(default_factory=list)
    _posted: set[int] = field(default_factory=set)
    _queue: list[list[int]] = field(default_factory=list)
    _place: int = 0
    _busy: bool = False

    def __post_init__(self) -> None:
        env, lowered = self.shared.env, self.shared.plan.lowered
        self.done = [env.event() for _ in lowered]
        self.released = [env.event() if each.blocks_host else None for each in lowered]

    def post(self, call: int, _ranks: int) -> None:
        """Post a call on this rank."""
        self.shared.posted_ps[call] = int(self.shared.env.now)
        self._ready.append(call)
        if len(self._ready) == 1:
            at_end_of_timestep(self.shared.env, self._take_ready)

    def _take_ready(self) -> None:
        ready, self._ready = self._ready, []
        self._posted.update(ready)
        plan, priorities = self.shared.plan, self.shared.priorities
        together_by: dict[Hashable, list[int]] = {}
        for call in ready:
            kinds: Hashable = plan.lowered[call].kinds if plan.groups else call
            together_by.setdefault((priorities[call], kinds), []).append(call)
        self._queue += together_by.values()
        self._start_next()

    def _start_next(self) -> None:
        """Take part in the next launch if this rank can; select it if no other rank has."""
        shared = self.shared
        if self._busy:
            return
        if self._place == len(shared.order):
            left = [[call for call in calls if call not in shared.ordered] for calls in self._queue]
            self._queue = [calls for calls in left if calls]
            if not self._queue:
                return
            first = min(self._queue, key=lambda calls: shared.priorities[calls[0]])
            shared.next_is(tuple(first))
        following = shared.order[self._place]
        if self._posted.issuperset(following.calls):
            self._place += 1
            self._busy = True
            shared.env.process(self._execute(following))

    def _execute(self, shared: SharedProgram) -> Generator[simpy.Event, None, None]:
        env = self.shared.env
        for number, steps in enumerate(shared.steps):
            yield from self._work(shared.before_ps[number])
            if steps[0].what != SIZE_EXCHANGE:
                release_hosts(self.released, shared.calls)
            running = self.shared.running(shared, number)
            over = self.shared.on_launch(running.timed, self.rank)
            running.last_ps = int(env.now)
            ended = running.done[self.rank] = env.event()
            running.run.post((self.rank,))
            yield ended
            over()
        yield from self._work(shared.after_ps)
        self._busy = False
        now = int(env.now)
        shared.ranks_done += 1
        if shared.ranks_done == len(self.shared.of_rank):
            start_ps = max(self.shared.posted_ps[call] for call in shared.calls)
            self.shared.completed.append(CompletedCalls(shared.calls, start_ps, now))
        for call in shared.calls:
            self.ended_ps[call] = now
            self.done[call].succeed()
        self._start_next()

    def _work(self, work_ps: int) -> Generator[simpy.Event, None, None]:
        if work_ps:
            yield self.shared.env.timeout(ceil(work_ps * self.factor))


@dataclass(slots=True)
class _BarrierLaunch:
    """A launch that begins with its last rank and ends on all ranks together."""

    env: simpy.Environment
    duration_ps: int
    ranks: int
    on_complete: Callable[[], None]
    on_rank_done: Callable[[int], None]
    posted: int = 0

    def post(self, ranks: Sequence[int]) -> None:
        self.posted += len(ranks)
        if self.posted == self.ranks:
            call_after(self.env, self.duration_ps, self._end)

    def _end(self) -> None:
        for rank in range(self.ranks):
            self.on_rank_done(rank)
        self.on_complete()
