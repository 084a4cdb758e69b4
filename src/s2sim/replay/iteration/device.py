"""One rank's GPU in simulated time: compute, codec work beside or between it, and what communication takes of it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import simpy

    from s2sim.replay.iteration.kernels import Held

What: TypeAlias = Literal["forward", "backward", "optimizer", "codec", "host"]

# Of the memory's bandwidth, at most so much goes to communication kernels: the rest is slow but not still.
_MOST_MEMORY_SHARE = 0.9
# What is left of less than that is what rounding to whole picoseconds leaves.
_ROUNDING_PS = 1


@dataclass(slots=True)
class _Job:
    what: What
    ends_ps: list[int]  # of its kernels, one after the other, alone on the GPU
    done: simpy.Event
    passed_ps: float = 0.0
    start_ps: int = -1

    def until_ps(self, *, gives_way: bool) -> float:
        """Return what is left alone until its end, or until the kernel in flight ends."""
        place = bisect_left(self.ends_ps, self.passed_ps - _ROUNDING_PS) if gives_way else -1
        return max(self.ends_ps[min(place, len(self.ends_ps) - 1)] - self.passed_ps, 0.0)


@dataclass(frozen=True, slots=True)
class Busy:
    """Something that the GPU did, or that kept it from doing anything."""

    what: What
    start_ps: int
    end_ps: int


@dataclass(slots=True)
class Device:
    """Runs jobs in the order in which they come, on one stream or two.

    On one stream codec work and waits of the host stand between kernels of compute. On two they run beside it: kernels
    of a codec stream memory, so that they and the share of compute that memory bounds take as long as both together.
    While collectives are in flight their kernels hold multiprocessors and memory traffic, and compute takes
    max(1 / (1 - held / all), 1 - m + m B / (B - traffic)) times as long, m being its memory-bound share and B the
    memory's bandwidth.

    Attributes
    ----------
    streams : int
        1 or 2.
    memory_bound : float
        Share of compute, from 0 to 1, in which the memory is busy.
    log : list of Busy
        What it did, in the order in which that ended.
    """

    env: simpy.Environment
    streams: int
    memory_bound: float
    log: list[Busy] = field(default_factory=list)
    _queues: tuple[list[_Job], list[_Job]] = field(default_factory=lambda: ([], []))
    _held: list[Held] = field(default_factory=list)
    _since_ps: int = 0
    _version: int = 0

    def run(self, what: What, *kernels_ps: int) -> simpy.Event:
        """Append kernels that take so long alone; the event is the end of the last.

        What is appended to the same stream later goes before those of them that have not begun.
        """
        job = _Job(what, list(accumulate(kernels_ps)), self.env.event())
        self._advance()
        beside = self.streams == 2 and what in ("codec", "host")
        self._queues[1 if beside else 0].append(job)
        self._reschedule()
        return job.done

    def hold(self, held: Held) -> None:
        """Take note of a collective whose kernels begin to run here."""
        self._advance()
        self._held.append(held)
        self._reschedule()

    def release(self, held: Held) -> None:
        """Take note of its end."""
        self._advance()
        self._held.remove(held)
        self._reschedule()

    def _slowdown(self, job: _Job) -> float:
        """Return how many times as long as alone a job that runs takes."""
        if job.what == "host":
            return 1.0
        beside = [queue[0] for queue in self._queues if queue and queue[0] is not job and queue[0].what != "host"]
        if job.what == "codec":
            return 1.0 + sum(self.memory_bound for _ in beside)
        m = self.memory_bound
        slowdown = 1 - m + m * (m + len(beside)) if beside else 1.0
        if self._held:
            blocks = sum(held.multiprocessors for held in self._held)
            traffic = min(sum(held.memory for held in self._held), _MOST_MEMORY_SHARE)
            slowdown *= max(1 / (1 - min(blocks, _MOST_MEMORY_SHARE)), 1 - m + m / (1 - traffic))
        return slowdown

    def _running(self) -> list[_Job]:
        return [queue[0] for queue in self._queues if queue]

    def _left_ps(self, queue: list[_Job]) -> float:
        return queue[0].until_ps(gives_way=len(queue) > 1)

    def _advance(self) -> None:
        """Take off what has been done since the last change."""
        passed_ps = int(self.env.now) - self._since_ps
        if passed_ps:
            for job, slowdown in [(job, self._slowdown(job)) for job in self._running()]:
                job.passed_ps += passed_ps / slowdown
        self._since_ps = int(self.env.now)

    def _reschedule(self) -> None:
        """Begin what is next, and wake up when the first of what runs ends."""
        self._version += 1
        running = self._running()
        if not running:
            return
        for job in running:
            if job.start_ps < 0:
                job.start_ps = int(self.env.now)
        version = self._version
        first_ps = min(ceil(self._left_ps(queue) * self._slowdown(queue[0])) for queue in self._queues if queue)
        timeout = self.env.timeout(first_ps)
        assert timeout.callbacks is not None
        timeout.callbacks.append(lambda _: self._wake(version))

    def _wake(self, version: int) -> None:
        if version != self._version:
            return
        self._advance()
        for queue in self._queues:
            if queue and self._left_ps(queue) < _ROUNDING_PS:
                job = queue.pop(0)
                self.log.append(Busy(job.what, job.start_ps, int(self.env.now)))
                if job.until_ps(gives_way=False) < _ROUNDING_PS:
                    job.done.succeed()
                else:
                    job.start_ps = -1
                    queue.append(job)
        self._reschedule()
