"""Replays recorded scripts on a cluster in simulated time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import simpy

from s2sim.cluster.communicator import Communicator
from s2sim.cluster.gpu_time import work_ps
from s2sim.cluster.plan import make_plan
from s2sim.errors import S2SimError
from s2sim.reducers.script import Post, Work

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from s2sim.cluster.communicator import Completed, Launch
    from s2sim.cluster.plan import Plan
    from s2sim.collectives.timing import Timer
    from s2sim.reducers.script import Phase, Recording, Script
    from s2sim.topology.hardware import Gpu


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
        All that went onto the network, in the order in which it started.
    completed : tuple of Completed
        The calls, in the order in which they were posted.
    """

    total_ps: int
    encode_ps: int
    decode_ps: int
    launches: tuple[Launch, ...]
    completed: tuple[Completed, ...]

    @property
    def communication_ps(self) -> int:
        """The rest of the slowest rank's time, waiting, host synchronisation and the library's own work included."""
        return self.total_ps - self.encode_ps - self.decode_ps


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


def _run_class(
    env: simpy.Environment,
    rank_class: _RankClass,
    recording: Recording,
    communicator: Communicator,
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
            released = communicator.released[step.call]
            communicator.post(step.call, rank_class.ranks)
            if released is not None:
                rank_class.waiting = True
                yield released
                rank_class.waiting = False
        else:
            rank_class.waiting = True
            yield env.all_of([communicator.done[call] for call in step.calls])
            rank_class.waiting = False
    rank_class.finish_ps = int(env.now)


def replay(recording: Recording, timer: Timer, gpu: Gpu, plan: Plan | None = None) -> Replay:
    """Replay a recording on the timer's cluster.

    Parameters
    ----------
    recording : Recording
        Scripts of as many ranks as the cluster has workers.
    timer : Timer
        Knows the cluster and the choice of algorithm.
    gpu : Gpu
        What work costs.
    plan : Plan, optional
        What a library executes for each call; without it everything runs as asked.
    """
    if recording.workers != timer.cluster.workers:
        raise S2SimError(
            f"a recording of {recording.workers} ranks cannot be replayed on {timer.cluster.workers} workers"
        )
    env = simpy.Environment(initial_time=0)
    by_script: dict[Script, _RankClass] = {}
    for script in recording.scripts:
        by_script.setdefault(script, _RankClass(script, 0)).ranks += 1
    classes = list(by_script.values())
    communicator = Communicator(
        env,
        plan or make_plan(recording),
        recording.workers,
        timer,
        gpu,
        quiet=lambda: all(ranks.quiet for ranks in classes),
    )
    for rank_class in classes:
        env.process(_run_class(env, rank_class, recording, communicator, gpu))
    env.run()
    if any(rank_class.finish_ps < 0 for rank_class in classes):
        raise S2SimError("the recording hangs: some ranks wait for a collective that others never post")
    launches = tuple(sorted(communicator.launches, key=lambda launch: launch.start_ps))
    completed = tuple(sorted(communicator.completed, key=lambda each: (each.start_ps, each.calls)))
    found = [
        Replay(
            total_ps=rank_class.finish_ps,
            encode_ps=_exposed_ps(rank_class, "encode", completed),
            decode_ps=_exposed_ps(rank_class, "decode", completed),
            launches=launches,
            completed=completed,
        )
        for rank_class in classes
    ]
    # Many ranks end at the same instant: of these the one with most work.
    return max(found, key=lambda item: (item.total_ps, item.encode_ps + item.decode_ps, item.encode_ps))


def _exposed_ps(ranks: _RankClass, phase: Phase, completed: Sequence[Completed]) -> int:
    """Return the work of a phase during which no collective was in flight."""
    exposed = 0
    for own_phase, start, end in ranks.work:
        if own_phase != phase:
            continue
        covered_until = start
        for each in completed:
            exposed += max(0, min(each.start_ps, end) - covered_until)
            covered_until = max(covered_until, each.end_ps)
        exposed += max(0, end - covered_until)
    return exposed
