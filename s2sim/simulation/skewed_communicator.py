"""A communicator in simulated time for ranks that post at different times and continue when their own part is done."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from math import ceil

import numpy as np
import simpy

from s2sim.collectives.timing.critical_path import CriticalPath
from s2sim.collectives.timing.timer import TimedSchedule, Timer
from s2sim.libraries.lowering import SIZE_EXCHANGE, LocalWork, merge_into_launch
from s2sim.network.base import at_end_of_timestep, call_now_or_after
from s2sim.simulation.communicator import CompletedCalls, Launch, release_hosts
from s2sim.simulation.plan import Plan, local_work_ps
from s2sim.topology.hardware import Gpu


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
    launched = (merge_into_launch(step.demands) for lowered in plan.lowered for step in lowered.steps)
    messages = sum(
        count * sum(step.times * step.round.pattern.messages for step in timer.time(demand).schedule.steps)
        for demand, count in Counter(launched).items()
    )
    return messages <= _MAX_MESSAGES


@dataclass(eq=False)
class SkewedCommunicator:
    """Executes calls sequentially on one communicator, on every rank as early as possible.

    A rank takes part in a launch when it has posted all of its calls and is done with the previous launch; a message
    begins once both of its ranks take part, and a rank continues when its own messages are done. All ranks execute
    launches in one order: the first rank that is free selects the next of its posted calls, of ranks that are free at
    the same time that of the smallest number. If the times of messages depend on concurrent ones, a launch begins with
    its last rank and ends on all ranks together.

    Ranks have nothing but launches in common, so each is simulated alone, in an environment of its own, until it takes
    part in the next one; when all do, that gives each rank's end.

    ``plan`` has calls of all ranks, one in flight at a time; ``factors`` scale the ranks' work; ``priorities`` has
    a number per call, of which the smallest is first. ``on_launch(timed, rank)`` is called when a rank takes part and
    returns the callback for its end. Ranks post at ``of_rank``; ``launches`` start when their last rank takes part.
    """

    plan: Plan
    timer: Timer
    gpu: Gpu
    factors: Sequence[float]
    priorities: Sequence[int]
    on_launch: Callable[[TimedSchedule, int], Callable[[], None]]
    ordered: set[int] = field(default_factory=set)
    launches: list[Launch] = field(default_factory=list)
    completed: list[CompletedCalls] = field(default_factory=list)
    idle_until_ps: int = 0  # The last end of a time in which no launch was in flight

    def __post_init__(self) -> None:
        self.of_rank = [RankCommunicator(self, rank) for rank in range(len(self.factors))]
        self._path_of = cache(partial(lockstep_path, ranks=len(self.factors)))

    def run(self) -> None:
        """Simulate all ranks until none has anything left to do, or all wait for what others never post."""
        while able := [rank for rank in self.of_rank if rank.reaches(())]:
            calls = min(able, key=lambda rank: int(rank.env.now)).chosen
            if sum(rank.reaches(calls) for rank in self.of_rank) < len(self.of_rank):
                return
            self.ordered.update(calls)
            self._execute(calls)

    def _execute(self, calls: tuple[int, ...]) -> None:
        """Let all ranks take part in the launches of some calls now, each at its own time."""
        lowered = [self.plan.lowered[call] for call in calls]
        free_ps = [int(rank.env.now) for rank in self.of_rank]
        if not self.completed or max(free_ps) > self.completed[-1].end_ps:
            self.idle_until_ps = max(free_ps)
        # What is queued behind a launch that waits for its last rank is not in flight yet.
        posted_ps = max(self.idle_until_ps, *(rank.posted_ps.pop(call) for rank in self.of_rank for call in calls))
        parts: list[tuple[TimedSchedule, bool, list[int], list[int]]] = []
        for steps in zip(*(each.steps for each in lowered), strict=True):
            start_ps = self._after_work_ps(free_ps, (step.before for step in steps))
            timed = self.timer.time(merge_into_launch([demand for step in steps for demand in step.demands]))
            free_ps = self._ends_ps(timed, start_ps)
            launch_parts = tuple(zip(calls, steps, strict=True))
            self.launches.append(Launch(launch_parts, timed, (), max(start_ps), max(free_ps)))
            parts.append((timed, steps[0].what != SIZE_EXCHANGE, start_ps, free_ps))
        over_ps = self._after_work_ps(free_ps, (each.after for each in lowered))
        self.completed.append(CompletedCalls(calls, posted_ps, max(over_ps)))
        for number, rank in enumerate(self.of_rank):
            own = [(timed, releases, start_ps[number], end_ps[number]) for timed, releases, start_ps, end_ps in parts]
            rank.take_part(calls, own, over_ps[number])

    def _after_work_ps(self, free_ps: list[int], local: Iterable[LocalWork]) -> list[int]:
        work_ps = local_work_ps(sum(local, LocalWork()), self.gpu, self.timer.cluster.shape.pcie)
        if not work_ps:
            return free_ps
        return [now_ps + ceil(work_ps * factor) for now_ps, factor in zip(free_ps, self.factors, strict=True)]

    def _ends_ps(self, timed: TimedSchedule, start_ps: list[int]) -> list[int]:
        """Return when each rank is done with a launch in which it takes part at a given time."""
        if (passage := self._path_of(timed)) is None:
            return [max(start_ps) + timed.duration_ps] * len(start_ps)
        ends_ps: list[int] = passage.ends_ps(np.array(start_ps) + timed.schedule.launch_ps).tolist()
        return ends_ps


@dataclass(eq=False)
class RankCommunicator:
    """The communicator of one rank: ``done``, ``released`` (the host waits for it) and ``ended_ps`` of each call.

    Where it can take part in a launch, it has ``chosen`` the next calls.
    """

    shared: SkewedCommunicator
    rank: int
    env: simpy.Environment = field(default_factory=simpy.Environment)
    ended_ps: dict[int, int] = field(default_factory=dict)
    posted_ps: dict[int, int] = field(default_factory=dict)
    chosen: tuple[int, ...] = ()
    _ready: list[int] = field(default_factory=list)
    _queue: list[list[int]] = field(default_factory=list)
    _busy: bool = False
    _on_end: Callable[[], None] = field(init=False)

    def __post_init__(self) -> None:
        lowered = self.shared.plan.lowered
        self.done = [self.env.event() for _ in lowered]
        self.released = [self.env.event() if each.blocks_host else None for each in lowered]

    def post(self, call: int, _ranks: int) -> None:
        """Post a call on this rank."""
        self._ready.append(call)
        if len(self._ready) == 1:
            at_end_of_timestep(self.env, self._take_ready)

    def _take_ready(self) -> None:
        ready, self._ready = self._ready, []
        self.posted_ps.update(dict.fromkeys(ready, int(self.env.now)))
        plan, priorities = self.shared.plan, self.shared.priorities
        together_by: dict[Hashable, list[int]] = {}
        for call in ready:
            together_by.setdefault((priorities[call], plan.launch_key(call)), []).append(call)
        self._queue += together_by.values()
        self._choose()

    def _choose(self) -> None:
        """Choose the next of the posted calls if this rank is free."""
        if self._busy:
            return
        ordered = self.shared.ordered
        left = [[call for call in calls if call not in ordered] for calls in self._queue]
        self._queue = [calls for calls in left if calls]
        if self._queue:
            first = min(self._queue, key=lambda calls: self.shared.priorities[calls[0]])
            self.chosen = tuple(first)

    def reaches(self, calls: tuple[int, ...]) -> bool:
        """Simulate this rank until it has posted ``calls`` and is free; () is for any calls, which it then chooses."""
        step = self.env.step
        with suppress(simpy.core.EmptySchedule):
            while not self.chosen:
                step()
            while not self.posted_ps.keys() >= set(calls):
                step()
            return True
        return False

    def take_part(
        self, calls: tuple[int, ...], launches: Iterable[tuple[TimedSchedule, bool, int, int]], over_ps: int
    ) -> None:
        """Take part in launches, which may release the host, from one time to another each; calls then are over."""
        self._busy, self.chosen = True, ()
        due: dict[int, list[Callable[[], None]]] = {}
        for timed, releases, start_ps, end_ps in launches:
            due.setdefault(start_ps, []).append(partial(self._begin, timed, calls if releases else ()))
            due.setdefault(end_ps, []).append(self._end)
        due.setdefault(over_ps, []).append(partial(self._leave, calls))
        for at_ps, actions in due.items():
            call_now_or_after(self.env, at_ps - int(self.env.now), partial(_call_each, actions))

    def _begin(self, timed: TimedSchedule, calls: tuple[int, ...]) -> None:
        release_hosts(self.released, calls)
        self._on_end = self.shared.on_launch(timed, self.rank)

    def _end(self) -> None:
        self._on_end()

    def _leave(self, calls: tuple[int, ...]) -> None:
        self._busy = False
        for call in calls:
            self.ended_ps[call] = int(self.env.now)
            self.done[call].succeed()
        self._choose()


def _call_each(actions: Sequence[Callable[[], None]]) -> None:
    for action in actions:
        action()
