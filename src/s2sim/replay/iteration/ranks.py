"""What stands for ranks in an iteration, and how a bucket's program runs on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import simpy

    from s2sim.reducers.scripts.script import Script, Work
    from s2sim.replay.iteration.device import Device
    from s2sim.replay.program import Passing


@dataclass(slots=True, eq=False)
class Ranks:
    """Ranks with equal scripts that compute equally fast."""

    scripts: tuple[Script, ...]
    slower: tuple[float, ...]
    factor: float
    late_ps: int
    device: Device
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
        """Whether nothing will come from these ranks before a collective ends."""
        return not self.computing and self.programs == self.idle_programs


@dataclass(slots=True)
class Program:
    """One bucket's program on some ranks, in one iteration."""

    env: simpy.Environment
    owner: Ranks
    ready: simpy.Event
    price_ps: Callable[[Work], int]
    sync_ps: int
    loop_ps: int
    phases: set[str] = field(default_factory=set)
    _waiting: bool = False

    @property
    def ranks(self) -> int:
        """How many run it as one."""
        return self.owner.ranks

    @property
    def waiting(self) -> bool:
        """Whether it waits for collectives."""
        return self._waiting

    @waiting.setter
    def waiting(self, value: bool) -> None:
        self.owner.idle_programs += int(value) - int(self._waiting)
        self._waiting = value

    def work(self, work: Work) -> Passing:
        """Do codec work on the GPU, after the host's loop where a phase begins."""
        if self.loop_ps and work.phase not in self.phases:
            self.phases.add(work.phase)
            yield self.owner.device.run("codec", self.loop_ps)
        yield self.owner.device.run("codec", ceil(self.price_ps(work) * self.owner.factor))

    def synchronise(self) -> Passing:
        """Let the host wait for the GPU."""
        yield self.owner.device.run("host", self.sync_ps)

    def await_gradient(self) -> Passing:
        """Wait until all of the bucket is there."""
        if not self.ready.triggered:
            self.waiting = True
            yield self.ready
            self.waiting = False

    def posted(self, call: int) -> None:
        """Take note of when."""
        self.owner.posted_ps[call] = int(self.env.now)
