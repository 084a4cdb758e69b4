"""Replays recorded scripts on a cluster in simulated time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import simpy

from s2sim.cluster.gpu_time import work_ps
from s2sim.collectives.running import Running
from s2sim.collectives.schedule import Demand
from s2sim.errors import S2SimError
from s2sim.network.fluid import FluidNetwork
from s2sim.network.instant import at_end_of_instant
from s2sim.reducers.script import Post, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from s2sim.collectives.timing import Timed, Timer
    from s2sim.reducers.script import Call, Phase, Recording, Script
    from s2sim.topology.hardware import Gpu


@dataclass(frozen=True, slots=True)
class Launch:
    """What went onto the network at once.

    Collectives of one kind that are posted at the same instant are one launch, as in a group call of NCCL: their bytes
    add, and latency is paid once.

    Attributes
    ----------
    calls : tuple of int
        Which of the recording's collectives.
    timed : Timed
        The schedule that ran for all of them, its routes, and its time alone.
    start_ps, end_ps : int
        When the last rank had posted, and when the last rank was done.
    """

    calls: tuple[int, ...]
    timed: Timed
    start_ps: int
    end_ps: int


@dataclass(frozen=True, slots=True)
class Replay:
    """One communication phase in simulated time.

    Attributes
    ----------
    total_ps : int
        When the slowest rank was done.
    encode_ps, decode_ps : int
        That rank's GPU work, but for what is hidden behind collectives in flight.
    launches : tuple of Launch
        All collectives, in the order in which they started.
    """

    total_ps: int
    encode_ps: int
    decode_ps: int
    launches: tuple[Launch, ...]

    @property
    def communication_ps(self) -> int:
        """The rest of the slowest rank's time, waiting and host synchronisation included."""
        return self.total_ps - self.encode_ps - self.decode_ps


def demand_of(calls: Sequence[Call]) -> Demand:
    """Return what collectives of one kind ask of the network together: one keeps its elements, several count bytes."""
    if len(calls) == 1:
        return Demand(calls[0].kind, calls[0].elements, calls[0].itemsize)
    sizes = zip(*(call.bytes_by_rank for call in calls), strict=True)
    return Demand(calls[0].kind, tuple(sum(size) for size in sizes), 1)


@dataclass(slots=True)
class _RankClass:
    """Ranks with equal scripts, replayed as one process."""

    script: Script
    ranks: int
    work: list[tuple[Phase, int, int]] = field(default_factory=list)  # phase, start and end in picoseconds
    waiting: bool = False
    finish_ps: int = -1

    @property
    def quiet(self) -> bool:
        """Whether nothing will come from these ranks before a collective ends."""
        return self.waiting or self.finish_ps >= 0


class _Communicator:
    """Starts a collective when its last rank has posted it: its kernels on all ranks need each other.

    A launch that nothing can disturb runs as it runs alone, which the timer knows; others share the network.
    """

    def __init__(self, env: simpy.Environment, recording: Recording, timer: Timer) -> None:
        self._env = env
        self._recording = recording
        self._timer = timer
        self.done = [env.event() for _ in recording.calls]
        self.classes: list[_RankClass] = []
        self.launches: list[Launch] = []
        self._missing = [recording.workers] * len(recording.calls)
        self._ready: list[int] = []
        self._running = 0
        self._network: FluidNetwork | None = None

    def post(self, call: int, ranks: int) -> None:
        """Count ``ranks`` more ranks that have posted ``call``; the last of them makes it ready."""
        self._missing[call] -= ranks
        if self._missing[call] == 0:
            self._ready.append(call)
            if len(self._ready) == 1:
                at_end_of_instant(self._env, self._start_ready)

    def _start_ready(self) -> None:
        ready, self._ready = self._ready, []
        by_kind: dict[str, list[int]] = {}
        for call in ready:
            by_kind.setdefault(self._recording.calls[call].kind, []).append(call)
        undisturbed = len(by_kind) == 1 and self._running == 0 and all(ranks.quiet for ranks in self.classes)
        for calls in by_kind.values():
            timed = self._timer.time(demand_of([self._recording.calls[call] for call in calls]))
            self._running += 1
            start_ps = int(self._env.now)

            def end(calls: list[int] = calls, timed: Timed = timed, start_ps: int = start_ps) -> None:
                self._running -= 1
                self.launches.append(Launch(tuple(calls), timed, start_ps, int(self._env.now)))
                for call in calls:
                    self.done[call].succeed()

            if undisturbed:
                self._env.process(self._alone(timed.duration_ps, end))
            else:
                self._network = self._network or FluidNetwork(self._env, self._timer.cluster.fabric)
                Running(self._network, timed.schedule, timed.routes, end).start()

    def _alone(self, duration_ps: int, end: Callable[[], None]) -> Generator[simpy.Event, None, None]:
        yield self._env.timeout(duration_ps)
        end()


def _run_class(
    env: simpy.Environment,
    rank_class: _RankClass,
    recording: Recording,
    communicator: _Communicator,
    gpu: Gpu,
) -> Generator[simpy.Event, None, None]:
    """Replay one script: work takes GPU time, a size known only from data first waits for the GPU."""
    for step in rank_class.script:
        if isinstance(step, Work):
            duration = work_ps(step, gpu)
            rank_class.work.append((step.phase, int(env.now), int(env.now) + duration))
            yield env.timeout(duration)
        elif isinstance(step, Post):
            if recording.calls[step.call].size_from_data:
                yield env.timeout(gpu.host_sync_ps)
            communicator.post(step.call, rank_class.ranks)
        else:
            rank_class.waiting = True
            yield env.all_of([communicator.done[call] for call in step.calls])
            rank_class.waiting = False
    rank_class.finish_ps = int(env.now)


def replay(recording: Recording, timer: Timer, gpu: Gpu) -> Replay:
    """Replay a recording on the timer's cluster.

    Parameters
    ----------
    recording : Recording
        Scripts of as many ranks as the cluster has workers.
    timer : Timer
        Knows the cluster and the choice of algorithm.
    gpu : Gpu
        What work costs.
    """
    if recording.workers != timer.cluster.workers:
        raise S2SimError(
            f"a recording of {recording.workers} ranks cannot be replayed on {timer.cluster.workers} workers"
        )
    env = simpy.Environment(initial_time=0)
    communicator = _Communicator(env, recording, timer)
    by_script: dict[Script, _RankClass] = {}
    for script in recording.scripts:
        by_script.setdefault(script, _RankClass(script, 0)).ranks += 1
    communicator.classes = list(by_script.values())
    for rank_class in communicator.classes:
        env.process(_run_class(env, rank_class, recording, communicator, gpu))
    env.run()
    if any(rank_class.finish_ps < 0 for rank_class in communicator.classes):
        raise S2SimError("the recording hangs: some ranks wait for a collective that others never post")
    launches = tuple(sorted(communicator.launches, key=lambda launch: launch.start_ps))
    found = [
        Replay(
            total_ps=rank_class.finish_ps,
            encode_ps=_exposed_ps(rank_class, "encode", launches),
            decode_ps=_exposed_ps(rank_class, "decode", launches),
            launches=launches,
        )
        for rank_class in communicator.classes
    ]
    # Many ranks end at the same instant: of these the one with most work.
    return max(found, key=lambda item: (item.total_ps, item.encode_ps + item.decode_ps, item.encode_ps))


def _exposed_ps(ranks: _RankClass, phase: Phase, launches: Sequence[Launch]) -> int:
    """Return the work of a phase during which no collective was in flight."""
    exposed = 0
    for own_phase, start, end in ranks.work:
        if own_phase != phase:
            continue
        covered_until = start
        for launch in launches:
            exposed += max(0, min(launch.start_ps, end) - covered_until)
            covered_until = max(covered_until, launch.end_ps)
        exposed += max(0, end - covered_until)
    return exposed
