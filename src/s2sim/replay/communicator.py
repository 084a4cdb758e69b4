"""A communicator in simulated time: what ranks post is launched as the library would."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from s2sim.collectives.libraries.launches import SIZES, Local, Step, together
from s2sim.collectives.timing.running import Running
from s2sim.network.fluid import FluidNetwork
from s2sim.network.instant import at_end_of_instant
from s2sim.replay.gpu_time import local_ps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Sequence

    import simpy

    from s2sim.collectives.timing.timer import Timed, Timer
    from s2sim.replay.faults.disturbance import Disturbance
    from s2sim.replay.plan import Plan
    from s2sim.replay.watcher import Watcher
    from s2sim.topology.files.hardware import Gpu


@dataclass(frozen=True, slots=True)
class Launch:
    """What went onto the network at once.

    Attributes
    ----------
    parts : tuple of (int, Step)
        Which of the recording's calls, and which step of each.
    timed : Timed
        The schedule that ran for all of them, and its time alone.
    start_ps, end_ps : int
        From the first byte until the last rank was done.
    """

    parts: tuple[tuple[int, Step], ...]
    timed: Timed
    start_ps: int
    end_ps: int


@dataclass(frozen=True, slots=True)
class Completed:
    """Calls that were executed together.

    Attributes
    ----------
    calls : tuple of int
        Which of the recording's.
    start_ps, end_ps : int
        When the last rank had posted, and when all of it was done, waiting for other launches included.
    """

    calls: tuple[int, ...]
    start_ps: int
    end_ps: int


@dataclass(frozen=True, slots=True)
class _Program:
    """Calls that go through their steps together."""

    calls: tuple[int, ...]
    posted_ps: int


class Communicator:
    """Executes a call when its last rank has posted it: its kernels on all ranks need each other.

    Calls that are posted at the same instant and lower to launches of the same kinds go together where the library
    groups, as in a group call of NCCL: bytes add, latency is paid once. At most ``in_flight`` of a plan run at once, in
    the order in which they became ready. A launch that nothing can disturb runs as it runs alone, which the timer
    knows; others share the network. Work between launches is that of the busiest rank, and takes no time from what the
    ranks' own programs do meanwhile.

    Parameters
    ----------
    env : simpy.Environment
        The clock.
    plan : Plan
        What each call becomes.
    ranks : int
        How many have to post each.
    timer : Timer
        Knows the cluster and the choice of algorithm.
    gpu : Gpu
        What work between launches costs.
    quiet : callable
        Whether nothing will come from any rank before a collective ends.
    watcher : Watcher, optional
        Told of every message.
    disturbance : Disturbance, optional
        What happens to the network meanwhile: nothing runs as it runs alone then.
    slowest : float
        How much longer work takes on the rank where it takes longest.
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
        disturbance: Disturbance | None = None,
        slowest: float = 1.0,
    ) -> None:
        self._watcher = watcher
        self._env = env
        self._plan = plan
        self._timer = timer
        self._gpu = gpu
        self._quiet = quiet
        self._disturbance = disturbance
        self._slowest = slowest
        self.done = [env.event() for _ in plan.lowered]
        self.released = [env.event() if lowered.holds_host else None for lowered in plan.lowered]
        self.launches: list[Launch] = []
        self.completed: list[Completed] = []
        self._missing = [ranks] * len(plan.lowered)
        self._ready: list[int] = []
        self._queue: deque[_Program] = deque()
        self._running = 0
        self._network: FluidNetwork | None = None

    def post(self, call: int, ranks: int) -> None:
        """Count ``ranks`` more ranks that have posted ``call``; the last of them makes it ready.

        Where ``released`` has an event for the call, whoever posts it has to wait for that.
        """
        self._missing[call] -= ranks
        if self._missing[call] == 0:
            self._ready.append(call)
            if len(self._ready) == 1:
                at_end_of_instant(self._env, self._take_ready)

    def _take_ready(self) -> None:
        ready, self._ready = self._ready, []
        together_by: dict[Hashable, list[int]] = {}
        for call in ready:
            key: Hashable = self._plan.lowered[call].kinds if self._plan.groups else call
            together_by.setdefault(key, []).append(call)
        self._queue += [_Program(tuple(calls), int(self._env.now)) for calls in together_by.values()]
        self._start_next()

    def _start_next(self) -> None:
        limit = self._plan.in_flight
        while self._queue and (limit is None or self._running < limit):
            self._running += 1
            self._env.process(self._execute(self._queue.popleft()))

    def _execute(self, program: _Program) -> Generator[simpy.Event, None, None]:
        lowered = [self._plan.lowered[call] for call in program.calls]
        for steps in zip(*(each.steps for each in lowered), strict=True):
            yield from self._work([step.before for step in steps])
            if steps[0].what != SIZES:
                for call in program.calls:
                    released = self.released[call]
                    if released is not None:
                        released.succeed()
                        self.released[call] = None
            yield self._launched(program.calls, steps)
        yield from self._work([each.after for each in lowered])
        self._running -= 1
        self.completed.append(Completed(program.calls, program.posted_ps, int(self._env.now)))
        for call in program.calls:
            self.done[call].succeed()
        self._start_next()

    def _work(self, local: Sequence[Local]) -> Generator[simpy.Event, None, None]:
        duration = ceil(local_ps(sum(local, Local()), self._gpu, self._timer.cluster.shape.pcie) * self._slowest)
        if duration:
            yield self._env.timeout(duration)

    def _launched(self, calls: Sequence[int], steps: Sequence[Step]) -> simpy.Event:
        """Return the event of the launch's end; how it runs is decided when all else of this instant has happened."""
        ended = self._env.event()
        timed = self._timer.time(together([demand for step in steps for demand in step.demands]))
        start_ps = int(self._env.now)

        def end() -> None:
            self.launches.append(Launch(tuple(zip(calls, steps, strict=True)), timed, start_ps, int(self._env.now)))
            ended.succeed()

        what = f"{timed.schedule.demand.kind} {steps[0].what}".rstrip()
        at_end_of_instant(self._env, partial(self._start, timed, what, end))
        return ended

    def _start(self, timed: Timed, what: str, end: Callable[[], None]) -> None:
        cluster = self._timer.cluster
        on_round = None if self._watcher is None else partial(self._watcher.add_round, what=what)
        if self._disturbance is not None:
            self._disturbance.running(timed.schedule, end, on_round).start()
            return
        if self._watcher is not None:
            self._network = self._network or FluidNetwork(self._env, cluster.fabric, self._watcher.add_loads)
            Running(self._network, timed.schedule, cluster, end, on_round=on_round).start()
            return
        if self._running == 1 and (self._plan.in_flight == 1 or self._quiet()):
            alone = self._env.timeout(timed.duration_ps)
            assert alone.callbacks is not None
            alone.callbacks.append(lambda _: end())
            return
        self._network = self._network or FluidNetwork(self._env, cluster.fabric)
        Running(self._network, timed.schedule, cluster, end, times=timed.times).start()
