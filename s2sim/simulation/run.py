"""Replays recorded scripts on a cluster in simulated time."""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from operator import add
from typing import Any, NamedTuple, Protocol

import numpy as np
import simpy

from s2sim.arrays import as_intervals, is_covered
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import S2SimError
from s2sim.reducers import script as scripts
from s2sim.simulation.communicator import Communicators, CompletedCalls, Launch
from s2sim.simulation.faults import fault
from s2sim.simulation.plan import Plan, Watcher, make_plan, work_ps
from s2sim.simulation.skewed_communicator import RankCommunicator
from s2sim.topology.hardware import Gpu
from s2sim.topology.shape import LinkSpec

Passing = Generator[simpy.Event, None, None]
Waits = Iterable[simpy.Event]


class _Runner(Protocol):
    """Ranks that run a script."""

    @property
    def ranks(self) -> int: ...
    def wait(self, events: Sequence[simpy.Event]) -> Waits: ...
    def work(self, work: scripts.Work) -> Waits: ...
    def synchronise(self) -> Waits: ...
    def await_gradient(self) -> Waits: ...
    def reach(self, call: int) -> Waits: ...


def run_script(
    script: scripts.Script,
    calls: Sequence[scripts.Call],
    communicators: Communicators | RankCommunicator,
    runner: _Runner,
    first_call: int = 0,
) -> Passing:
    """Run a script with calls numbered from ``first_call``; a size known only from data first waits for the GPU."""
    for step in script:
        if isinstance(step, scripts.Work):
            yield from runner.work(step)
        elif isinstance(step, scripts.Post):
            if calls[step.call].size_from_data:
                yield from runner.synchronise()
            call = first_call + step.call
            released = communicators.released[call]
            yield from runner.reach(call)
            communicators.post(call, runner.ranks)
            if released is not None:
                yield from runner.wait([released])
        elif isinstance(step, scripts.HostSync):
            yield from runner.synchronise()
        elif isinstance(step, scripts.AwaitGradient):
            yield from runner.await_gradient()
        else:
            yield from runner.wait([communicators.done[first_call + call] for call in step.calls])


def wait_for_all(env: simpy.Environment, events: Sequence[simpy.Event]) -> simpy.Event | None:
    """Return an event that occurs with the last of some; None if all have occurred."""
    left = [event for event in events if not event.processed]
    return None if not left else left[0] if len(left) == 1 else env.all_of(left)


def run_until(env: simpy.Environment, over: simpy.Event) -> bool:
    """Simulate until an event, as some faults never end; return whether it came."""
    with suppress(simpy.core.EmptySchedule):
        while not over.processed:
            env.step()
    return over.processed


class RankWork(NamedTuple):
    """What equal ranks did: their script, and phase, start and end in picoseconds of each piece of work."""

    script: scripts.Script
    spent: tuple[tuple[scripts.Phase, int, int], ...]

    def work_ps(self, phase: scripts.Phase) -> int:
        """Return all work of a phase, hidden or not."""
        return sum(end_ps - start_ps for other, start_ps, end_ps in self.spent if other == phase)

    def exposed_ps(self, phase: scripts.Phase, completed: Sequence[CompletedCalls]) -> int:
        """Return the work of a phase at positive times during which none of the ranks' collectives was in flight."""
        work = as_intervals([(max(start, 0), end) for other, start, end in self.spent if other == phase])
        if not len(work):
            return 0
        posted = {step.call for step in self.script if isinstance(step, scripts.Post)}
        own = as_intervals([(each.start_ps, each.end_ps) for each in completed if posted.intersection(each.calls)])
        points = np.unique(np.concatenate([work, own]))
        return int(np.diff(points)[is_covered(work, points) & ~is_covered(own, points)].sum())


@dataclass(frozen=True)
class Replay:
    """One communication phase in simulated time, which begins when the gradients are complete.

    Work that needs the batch alone has started before, at negative times. Of a recording of several steps, total and
    work are means over these.
    """

    total_ps: int  # Of the slowest rank
    launches: tuple[Launch, ...]  # In the order of starts
    completed: tuple[CompletedCalls, ...]  # In the order of posting
    effects: tuple[fault.Effect, ...]  # Of transient faults
    steps: int
    slowest: tuple[RankWork, ...]  # Of ranks that end together, the last

    @cached_property
    def _exposed(self) -> tuple[int, int, RankWork]:
        """Work per step that collectives in flight do not hide, of ranks that end together the one with most of it."""
        done = self.completed
        each = [
            (work.exposed_ps("encode", done) // self.steps, work.exposed_ps("decode", done) // self.steps, work)
            for work in self.slowest
        ]
        return max(each, key=lambda item: (item[0] + item[1], item[0]))

    @property
    def encode_ps(self) -> int:
        """The slowest rank's GPU work before it sends that collectives in flight do not hide."""
        return self._exposed[0]

    @property
    def decode_ps(self) -> int:
        """The same of work on what it has received."""
        return self._exposed[1]

    def work_ps(self, phase: scripts.Phase) -> int:
        """Return all of its GPU work of a phase, hidden or not."""
        return self._exposed[2].work_ps(phase) // self.steps

    @property
    def communication_ps(self) -> int:
        """The rest of the slowest rank's time, waiting, host synchronisation and the library's own work included."""
        return self.total_ps - self.encode_ps - self.decode_ps


class _Kind(NamedTuple):
    """What equal ranks do, by how much their work is slower, and their delay in picoseconds."""

    script: scripts.Script
    factor: float
    delay_ps: int


@dataclass(slots=True)
class _RanksInStep:
    """Ranks that post and wait for the same calls in the same order: one process, with a time for each kind of them.

    Between calls the ranks are independent, and a call is ready with the last of them.
    """

    env: simpy.Environment
    gpu: Gpu
    pcie: LinkSpec | None
    kinds: list[_Kind] = field(default_factory=list)
    ranks: int = 0
    now_ps: list[int] = field(default_factory=list)  # Of each kind
    spent: list[tuple[tuple[scripts.Work, ...], list[int], list[int]]] = field(default_factory=list)  # Start and end
    idle: bool = False
    over: bool = False
    _works: Iterator[tuple[scripts.Work, ...]] = field(init=False)

    @property
    def quiet(self) -> bool:
        return self.idle and max(self.now_ps) <= self.env.now

    def work(self, _work: scripts.Work) -> Waits:
        works, starts_ps = next(self._works), self.now_ps
        pairs = zip(works, self.kinds, strict=True)
        durations_ps = [ceil(work_ps(work, self.gpu, self.pcie) * kind.factor) for work, kind in pairs]
        self.now_ps = list(map(add, starts_ps, durations_ps))
        self.spent.append((works, starts_ps, self.now_ps))
        return ()

    def wait(self, events: Sequence[simpy.Event]) -> Waits:
        if (last := wait_for_all(self.env, events)) is not None:
            self.idle = True
            yield last
            self.idle = False
        ended_ps: list[Any] = [event.value for event in events]
        self.now_ps = [max([now_ps, *ended_ps]) for now_ps in self.now_ps]

    def synchronise(self) -> Waits:
        self.now_ps = [now_ps + self.gpu.host_sync_ps for now_ps in self.now_ps]
        return ()

    def await_gradient(self) -> Waits:
        self.now_ps = [max(now_ps, 0) for now_ps in self.now_ps]
        return ()

    def reach(self, _call: int | None = None) -> Waits:
        if left_ps := max(max(self.now_ps) - int(self.env.now), 0):
            yield self.env.timeout(left_ps)

    def run(self, calls: Sequence[scripts.Call], communicators: Communicators) -> Passing:
        each = ([step for step in kind.script if isinstance(step, scripts.Work)] for kind in self.kinds)
        self._works = zip(*each, strict=True)
        self.now_ps = [int(self.env.now) + kind.delay_ps for kind in self.kinds]
        yield from run_script(self.kinds[0].script, calls, communicators, self)
        yield from self.reach()
        self.idle = self.over = True

    def work_of(self, at: int) -> RankWork:
        """Return what the ranks of a kind did."""
        spent = ((works[at].phase, starts_ps[at], ends_ps[at]) for works, starts_ps, ends_ps in self.spent)
        return RankWork(self.kinds[at].script, tuple(spent))


def replay(
    recording: scripts.Recording,
    timer: Timer,
    gpu: Gpu,
    plan: Plan | None = None,
    watcher: Watcher | None = None,
    *,
    compute_ps: int | None = None,
    faults: Sequence[fault.Fault] = (),
) -> Replay:
    """Replay a recording on the timer's cluster, which has one worker per rank.

    ``plan`` has the launches of each call (default: the ideal library); ``watcher`` is called with every message and
    all work. Work that needs the batch alone runs concurrently with forward and backward, which take ``compute_ps``
    (default: long enough to hide it), and on ranks whose work is slower that many times as long. Permanent ``faults``
    are already applied to the timer's cluster.
    """
    if recording.workers != timer.workers:
        raise S2SimError(f"a recording of {recording.workers} ranks cannot be replayed on {timer.workers} workers")
    plan = plan or make_plan(recording)
    timer = timer.with_profile(plan.profile)
    early = recording.before_gradient
    start_ps = 0
    if any(early.scripts):
        start_ps = -(replay(early, timer, gpu, plan).total_ps if compute_ps is None else compute_ps)
    env = simpy.Environment(initial_time=start_ps)
    cluster = timer.cluster
    factors, late_ps = fault.straggler_delays(faults, recording.workers, compute_ps or 0, recording.steps)
    # A rank that is late in every step adds up its delays until the exchange.
    late_ps = (late_ps + np.rint((factors - 1) * (compute_ps or 0)).astype(np.int64)) * recording.steps
    kinds = list(zip(recording.representatives, factors.tolist(), late_ps.tolist(), strict=True))
    in_step: dict[scripts.Script, _RanksInStep] = {}
    of_kind: dict[tuple[int, float, int], tuple[_RanksInStep, int]] = {}
    for kind, ranks in Counter(kinds).items():
        first, factor, delay_ps = kind
        together = in_step.setdefault(recording.order_of_calls[first], _RanksInStep(env, gpu, cluster.shape.pcie))
        of_kind[kind] = together, len(together.kinds)
        together.kinds.append(_Kind(recording.scripts[first], factor, delay_ps))
        together.ranks += ranks
    groups = list(in_step.values())
    on_loads = None if watcher is None else watcher.add_loads
    disturbance = None
    if fault.has_transient_faults(faults):
        disturbance = fault.FaultyNetwork(env, cluster, faults, on_loads)
    communicators = Communicators(
        env,
        plan,
        timer,
        gpu,
        quiet=lambda: all(ranks.quiet for ranks in groups),
        watcher=watcher,
        disturbance=disturbance,
        slowest=float(factors.max(initial=1.0)),
    )
    run_until(env, env.all_of([env.process(each.run(recording.calls, communicators)) for each in groups]))
    if not all(each.over for each in groups):
        missing = zip(recording.calls, communicators.missing, strict=True)
        labels = ", ".join(repr(call.label) for call, left in missing if 0 < left < len(call.elements))
        raise S2SimError(f"the recording hangs: some ranks wait for {labels}, which others never post")
    if watcher is not None:
        for rank, kind in enumerate(kinds):
            ranks_in_step, at = of_kind[kind]
            for phase, begin_ps, end_ps in ranks_in_step.work_of(at).spent:
                watcher.add_work(rank, phase, "work", begin_ps, end_ps)
    launches = tuple(sorted(communicators.launches, key=lambda launch: launch.start_ps))
    completed = tuple(sorted(communicators.completed, key=lambda each: (each.start_ps, each.calls)))
    slowed = [each.work_of(at) for each, at in of_kind.values() if each.kinds[at].factor > 1]
    works = bool(compute_ps) or any(end_ps > start_ps for work in slowed for _, start_ps, end_ps in work.spent)
    effects = (*(disturbance.effects() if disturbance else ()), *fault.effects_on_work(faults, works=works))
    total_ps = max(max(each.now_ps) for each in groups) // recording.steps
    slowest = tuple(each.work_of(at) for each, at in of_kind.values() if each.now_ps[at] // recording.steps == total_ps)
    return Replay(total_ps, launches, completed, effects, recording.steps, slowest)
