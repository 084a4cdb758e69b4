"""Replays recorded scripts on a cluster in simulated time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import simpy

from s2sim.cluster.gpu_time import work_ps
from s2sim.collectives.running import Running
from s2sim.collectives.schedule import Demand
from s2sim.network.fluid import FluidNetwork
from s2sim.reducers.script import Post, Work

if TYPE_CHECKING:
    from collections.abc import Generator

    from s2sim.collectives.timing import Timed, Timer
    from s2sim.reducers.script import Call, Recording, Script
    from s2sim.topology.hardware import Gpu

# After all ordinary events of an instant: who posts and who waits is then settled.
_START_PRIORITY = 2


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """One collective as it ran.

    Attributes
    ----------
    call : Call
        What was asked for.
    timed : Timed
        The schedule that ran, its routes, and its time alone.
    start_ps, end_ps : int
        When the last rank had posted it, and when the last rank had it.
    """

    call: Call
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
        That rank's GPU work.
    calls : tuple of ReplayedCall
        All collectives, in the order in which they were posted.
    """

    total_ps: int
    encode_ps: int
    decode_ps: int
    calls: tuple[ReplayedCall, ...]

    @property
    def communication_ps(self) -> int:
        """The rest of the slowest rank's time, waiting and host synchronisation included."""
        return self.total_ps - self.encode_ps - self.decode_ps


def demand_of(call: Call) -> Demand:
    """Return what a recorded collective asks of the network."""
    return Demand(call.kind, call.elements, call.itemsize)


@dataclass(slots=True)
class _InFlight:
    """A collective from its first post to its end."""

    done: simpy.Event
    missing: int
    start_ps: int = -1
    end_ps: int = -1


@dataclass(slots=True)
class _RankClass:
    """Ranks with equal scripts, replayed as one process."""

    script: Script
    ranks: int
    work: dict[str, int] = field(default_factory=lambda: {"encode": 0, "decode": 0})
    waiting: bool = False
    finish_ps: int = -1


class _Communicator:
    """Starts a collective when its last rank has posted it: its kernels on all ranks need each other.

    A collective that nothing can disturb runs as it runs alone, which the timer knows; others share the network.
    """

    def __init__(self, env: simpy.Environment, recording: Recording, timer: Timer) -> None:
        self._env = env
        self._timer = timer
        self._timed = [timer.time(demand_of(call)) for call in recording.calls]
        self.calls = [_InFlight(env.event(), recording.workers) for _ in recording.calls]
        self.classes: list[_RankClass] = []
        self._ready: list[int] = []
        self._running = 0
        self._network: FluidNetwork | None = None

    def post(self, call: int, ranks: int) -> None:
        flight = self.calls[call]
        flight.missing -= ranks
        if flight.missing:
            return
        flight.start_ps = int(self._env.now)
        self._ready.append(call)
        if len(self._ready) == 1:
            event = self._env.event()
            event._ok = True  # noqa: SLF001  (SimPy's own way to schedule an event with a priority of one's choice)
            event._value = None  # noqa: SLF001
            event.callbacks.append(self._start_ready)  # type: ignore[union-attr]
            self._env.schedule(event, priority=_START_PRIORITY)  # type: ignore[arg-type]

    def _start_ready(self, _: object) -> None:
        ready, self._ready = self._ready, []
        everyone_waits = all(rank_class.waiting or rank_class.finish_ps >= 0 for rank_class in self.classes)
        if len(ready) == 1 and self._running == 0 and everyone_waits:
            self._env.process(self._alone(ready[0]))
            return
        if self._network is None:
            self._network = FluidNetwork(self._env, self._timer.cluster.fabric)
        for call in ready:
            self._running += 1
            timed = self._timed[call]
            if timed.schedule.rounds == 0:
                self._end(call)
                continue
            Running(self._env, self._network, timed.schedule, timed.routes, lambda call=call: self._end(call)).start()  # type: ignore[misc]

    def _alone(self, call: int) -> Generator[simpy.Event, None, None]:
        self._running += 1
        yield self._env.timeout(self._timed[call].duration_ps)
        self._end(call)

    def _end(self, call: int) -> None:
        self._running -= 1
        self.calls[call].end_ps = int(self._env.now)
        self.calls[call].done.succeed()

    def replayed(self, recording: Recording) -> tuple[ReplayedCall, ...]:
        return tuple(
            ReplayedCall(call, timed, flight.start_ps, flight.end_ps)
            for call, timed, flight in zip(recording.calls, self._timed, self.calls, strict=True)
        )


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
            rank_class.work[step.phase] += duration
            yield env.timeout(duration)
        elif isinstance(step, Post):
            if recording.calls[step.call].size_from_data:
                yield env.timeout(gpu.host_sync_ps)
            communicator.post(step.call, rank_class.ranks)
        else:
            rank_class.waiting = True
            yield env.all_of([communicator.calls[call].done for call in step.calls])
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
    env = simpy.Environment(initial_time=0)
    communicator = _Communicator(env, recording, timer)
    by_script: dict[Script, _RankClass] = {}
    for script in recording.scripts:
        by_script.setdefault(script, _RankClass(script, 0)).ranks += 1
    communicator.classes = list(by_script.values())
    for rank_class in communicator.classes:
        env.process(_run_class(env, rank_class, recording, communicator, gpu))
    env.run()
    slowest = max(communicator.classes, key=lambda rank_class: rank_class.finish_ps)
    return Replay(
        total_ps=slowest.finish_ps,
        encode_ps=slowest.work["encode"],
        decode_ps=slowest.work["decode"],
        calls=communicator.replayed(recording),
    )
