"""One rank's GPU in simulated time: compute, codec work, and the resources that communication occupies."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil
from typing import Literal, NamedTuple, TypeAlias

import simpy

from s2sim.arrays import Ints
from s2sim.collectives.schedules.demand import bus_factor
from s2sim.collectives.timing.library_profile import LibraryProfile
from s2sim.collectives.timing.timer import TimedSchedule
from s2sim.network.base import call_after
from s2sim.reducers.script import Script, Work
from s2sim.simulation.run import Waits, wait_for_all
from s2sim.topology.cluster import Cluster
from s2sim.topology.hardware import Gpu
from s2sim.units import PS_PER_S


@dataclass(frozen=True, slots=True, eq=False)
class Compute:
    """Times of one rank's compute, alone on its GPU; tensors are in the order in which gradients become ready."""

    forward_ps: Ints  # Of each tensor's layer; forward visits them in reverse
    backward_ps: Ints  # Of each tensor's layer, since the readiness of the previous gradient
    optimizer_ps: int = 0  # Once all gradients are reduced
    memory_bound: float = 0.0  # Share of compute time, from 0 to 1, limited by memory and not by arithmetic
    host_ps: int = 0  # After the optimizer: of the host, and of ranks that wait for each other, as it was recorded

    @property
    def after_ps(self) -> "tuple[tuple[Activity, int], ...]":
        """What runs once all gradients are reduced."""
        return tuple(each for each in (("optimizer", self.optimizer_ps), ("host", self.host_ps)) if each[1])


Activity: TypeAlias = Literal["forward", "backward", "optimizer", "host", "codec", "sync"]

_MAX_MEMORY_SHARE = 0.9  # of the memory's bandwidth, for communication kernels: the others never stop
_NEVER = 1 << 62  # picoseconds
_ROUNDING_PS = 1  # remaining work below this is due to rounding to whole picoseconds


@dataclass(slots=True)
class _Job:
    what: Activity
    ends_ps: list[int]  # of its sequential kernels, alone on the GPU
    done: simpy.Event
    passed_ps: float = 0.0
    start_ps: int = -1

    def until_ps(self, *, gives_way: bool) -> float:
        """Return the remaining time alone until its end, or until the end of the kernel in flight."""
        end_ps = self.ends_ps[-1]
        if gives_way and len(self.ends_ps) > 1:
            place = bisect_left(self.ends_ps, self.passed_ps - _ROUNDING_PS, hi=len(self.ends_ps) - 1)
            end_ps = self.ends_ps[place]
        left_ps = end_ps - self.passed_ps
        return left_ps if left_ps > 0 else 0.0


class BusyInterval(NamedTuple):
    """An activity of the GPU, or a wait that blocked it."""

    what: Activity
    start_ps: int
    end_ps: int


@dataclass(slots=True)
class GpuDevice:
    """Runs jobs in order, on one stream or two.

    On one stream codec work and waits of the host run between kernels of compute. On two they run concurrently: kernels
    of a codec are memory-bound, so that they and the memory-bound share of compute take the sum of their times. While
    collectives are in flight their kernels occupy multiprocessors and memory bandwidth, and compute takes
    max(1 / (1 - held / all), 1 - m + m B / (B - traffic)) times as long, m being its memory-bound share and B the
    memory's bandwidth.
    """

    env: simpy.Environment
    streams: int  # 1 or 2
    memory_bound: float  # Share of compute, from 0 to 1, in which the memory is busy
    log: list[BusyInterval] = field(default_factory=list)  # In the order of ends
    _queues: tuple[list[_Job], list[_Job]] = field(default_factory=lambda: ([], []))
    _held: "list[GpuShare]" = field(default_factory=list)
    _held_slowdown: float = 1.0  # Of compute, by collectives in flight
    _since_ps: int = 0
    _wakes_ps: list[int] = field(default_factory=list)  # Times at which it is woken, latest first

    def run(self, what: Activity, *kernels_ps: int) -> simpy.Event:
        """Append kernels of given durations and return the event of the end; other jobs may run between kernels."""
        job = _Job(what, list(accumulate(kernels_ps)), self.env.event())
        self._advance()
        beside = self.streams == 2 and what in ("codec", "sync")
        self._queues[1 if beside else 0].append(job)
        self._reschedule()
        return job.done

    def hold(self, held: "GpuShare") -> None:
        """Record that a collective's kernels begin to run here."""
        self._advance()
        self._held.append(held)
        self._share_with_held()

    def release(self, held: "GpuShare") -> None:
        """Record their end."""
        self._advance()
        self._held.remove(held)
        self._share_with_held()

    def _share_with_held(self) -> None:
        self._held_slowdown = 1.0
        if self._held:
            blocks = min(sum([held.multiprocessors for held in self._held]), _MAX_MEMORY_SHARE)
            traffic = min(sum([held.memory for held in self._held]), _MAX_MEMORY_SHARE)
            m = self.memory_bound
            self._held_slowdown = max(1 / (1 - blocks), 1 - m + m / (1 - traffic))
        self._reschedule()

    def _slowdown(self, job: _Job, other: list[_Job]) -> float:
        """Return the slowdown of a running job beside the other queue."""
        if not other:
            return self._held_slowdown if job.what not in ("codec", "sync") else 1.0
        if job.what == "sync":
            return 1.0
        m, beside = self.memory_bound, other[0].what != "sync"
        if job.what == "codec":
            return 1.0 + m * beside
        return (1 - m + m * (m + 1) if beside else 1.0) * self._held_slowdown

    def _advance(self) -> int:
        """Let jobs that run get on until now, and return that."""
        now = int(self.env.now)
        if passed_ps := now - self._since_ps:
            compute, beside = self._queues
            if compute:
                compute[0].passed_ps += passed_ps / self._slowdown(compute[0], beside)
            if beside:
                beside[0].passed_ps += passed_ps / self._slowdown(beside[0], compute)
            self._since_ps = now
        return now

    def _reschedule(self) -> None:
        compute, beside = self._queues
        now, first_ps = self._since_ps, _NEVER
        for queue, other in ((compute, beside), (beside, compute)):
            if not queue:
                continue
            job = queue[0]
            if job.start_ps < 0:
                job.start_ps = now
            left_ps = ceil(job.until_ps(gives_way=len(queue) > 1) * self._slowdown(job, other))
            first_ps = min(first_ps, left_ps)
        # If it is woken before that, it looks again then.
        if now + first_ps < (self._wakes_ps[-1] if self._wakes_ps else _NEVER):
            self._wakes_ps.append(now + first_ps)
            call_after(self.env, first_ps, self._wake)

    def _wake(self) -> None:
        self._wakes_ps.pop()
        now = self._advance()
        for queue in self._queues:
            if queue and queue[0].until_ps(gives_way=len(queue) > 1) < _ROUNDING_PS:
                job = queue.pop(0)
                self.log.append(BusyInterval(job.what, job.start_ps, now))
                if job.ends_ps[-1] - job.passed_ps < _ROUNDING_PS:
                    job.done.succeed()
                else:
                    job.start_ps = -1
                    queue.append(job)
        self._reschedule()


_MEMORY_PASSES = 3  # of a byte in a ring: two are read and their sum is written


@dataclass(frozen=True, slots=True, eq=False)
class GpuShare:
    """Shares of a GPU, from 0 to 1: of its multiprocessors, and of its memory's bandwidth."""

    multiprocessors: float
    memory: float


def collective_gpu_share(timed: TimedSchedule, cluster: Cluster, profile: LibraryProfile, gpu: Gpu) -> GpuShare | None:
    """Return the share of each GPU that a collective's kernels take (one multiprocessor per channel), or None."""
    demand = timed.schedule.demand
    blocks = profile.blocks(demand, cluster)
    if not blocks or not gpu.multiprocessors or not timed.duration_ps:
        return None
    bus = bus_factor(demand.kind, demand.ranks)
    memory_Bps = _MEMORY_PASSES * bus * demand.buffer_bytes / (timed.duration_ps / PS_PER_S)
    return GpuShare(blocks / gpu.multiprocessors, memory_Bps / gpu.memory_bandwidth_Bps)


@dataclass(slots=True, eq=False)
class IterationRanks:
    """Ranks with equal scripts that compute equally fast."""

    scripts: tuple[Script, ...]
    slower: tuple[float, ...]
    optimizer: tuple[float, ...]
    factor: float
    late_ps: int
    device: GpuDevice
    first: int
    ranks: int = 0
    begun_ps: list[int] = field(default_factory=list)
    idle: list[tuple[int, int]] = field(default_factory=list)
    ready: list[tuple[int, int, int]] = field(default_factory=list)
    posted_ps: dict[int, int] = field(default_factory=dict)
    computing: bool = True
    programs: int = 0
    idle_programs: int = 0

    @property
    def quiet(self) -> bool:
        """Whether these ranks post nothing before a collective ends."""
        return not self.computing and self.programs == self.idle_programs


@dataclass(slots=True)
class BucketProgram:
    """One bucket's program on some ranks, in one iteration."""

    owner: IterationRanks
    ready: simpy.Event
    price_ps: Callable[[Work], int]
    sync_ps: int

    @property
    def ranks(self) -> int:
        """Number of equal ranks."""
        return self.owner.ranks

    def wait(self, events: Sequence[simpy.Event]) -> Waits:
        """Wait for collectives."""
        if (last := wait_for_all(self.owner.device.env, events)) is not None:
            self.owner.idle_programs += 1
            yield last
            self.owner.idle_programs -= 1

    def work(self, work: Work) -> Waits:
        """Do codec work on the GPU."""
        yield self.owner.device.run("codec", ceil(self.price_ps(work) * self.owner.factor))

    def synchronise(self) -> Waits:
        """Let the host wait for the GPU."""
        yield self.owner.device.run("sync", self.sync_ps)

    def await_gradient(self) -> Waits:
        """Wait until the bucket is complete."""
        return () if self.ready.triggered else self.wait([self.ready])

    def reach(self, call: int) -> Waits:
        """Record the time."""
        self.owner.posted_ps[call] = int(self.owner.device.env.now)
        return ()
