"""One rank's script in simulated time, whatever its work and its waits take there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from s2sim.reducers.scripts.script import AwaitGradient, HostSync, Post, Work

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    import simpy

    from s2sim.reducers.scripts.script import Call, Script
    from s2sim.replay.by_rank import OnRank
    from s2sim.replay.communicator import Communicators

    Passing = Generator[simpy.Event, None, None]


class Runner(Protocol):
    """The ranks on which a script runs: what its steps take of their time.

    Attributes
    ----------
    waiting : bool
        Whether they do nothing but wait for collectives.
    """

    waiting: bool

    @property
    def ranks(self) -> int:
        """How many run it as one."""

    def work(self, work: Work) -> Passing:
        """Do work of the codec."""

    def synchronise(self) -> Passing:
        """Let the host wait for the GPU."""

    def await_gradient(self) -> Passing:
        """Wait until the gradient is there."""

    def posted(self, call: int) -> None:
        """Take note of a collective that they post now."""


def run_script(
    env: simpy.Environment,
    script: Script,
    calls: Sequence[Call],
    communicators: Communicators | OnRank,
    runner: Runner,
    first_call: int = 0,
) -> Passing:
    """Go through a script; a size known only from data first waits for the GPU.

    Its calls are numbered from ``first_call`` on among those of the communicators.
    """
    for step in script:
        if isinstance(step, Work):
            yield from runner.work(step)
        elif isinstance(step, Post):
            if calls[step.call].size_from_data:
                yield from runner.synchronise()
            call = first_call + step.call
            released = communicators.released[call]
            runner.posted(call)
            communicators.post(call, runner.ranks)
            if released is not None:
                runner.waiting = True
                yield released
                runner.waiting = False
        elif isinstance(step, HostSync):
            yield from runner.synchronise()
        elif isinstance(step, AwaitGradient):
            yield from runner.await_gradient()
        else:
            runner.waiting = True
            yield env.all_of([communicators.done[first_call + call] for call in step.calls])
            runner.waiting = False
