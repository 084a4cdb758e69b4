"""How long a schedule takes with nothing else in flight: rounds added up, or simulated where steps share links."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.timing.by_message import RunningByMessage
from s2sim.collectives.timing.running import Running

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from s2sim.collectives.schedules.schedule import Pattern, Round, Schedule, Step
    from s2sim.collectives.timing.rounds import RoundTimes
    from s2sim.collectives.timing.running import RanRound
    from s2sim.network.fluid import OnLoads
    from s2sim.topology.cluster import Cluster


def step_ends_ps(schedule: Schedule, cluster: Cluster, times: RoundTimes) -> NDArray[np.int64] | None:
    """Return when each step has been delivered, int64 picoseconds of shape (steps,), or None.

    A chain of steps adds up its rounds. Where steps may overlap, those that share links must follow each other for the
    longest path to hold; else only a simulation of all of it tells, and the answer is None.
    """
    if schedule.stage.chain or not len(schedule.steps):
        rounds_ps = [step.times * times.time_ps(step.round) for step in schedule.steps]
        return schedule.launch_ps + np.cumsum(rounds_ps, dtype=np.int64)
    if _in_order(schedule.steps, times, len(cluster.fabric)):
        return schedule.launch_ps + _longest_path_ps(schedule.steps, times.time_ps, times.left_ps)
    return None


def duration_ps(schedule: Schedule, cluster: Cluster, times: RoundTimes) -> int:
    """Return when the last step of a schedule has been delivered, in integer picoseconds from its start."""
    ends_ps = step_ends_ps(schedule, cluster, times)
    return simulate_ps(schedule, cluster) if ends_ps is None else int(ends_ps.max(initial=schedule.launch_ps))


def rank_ends_ps(schedule: Schedule, cluster: Cluster, times: RoundTimes) -> NDArray[np.int64]:
    """Return when each rank's last message has been delivered, from it or to it, int64 picoseconds.

    It has the shape of ranks and helpers; of groups beside each other there are those of the first.
    """
    own = schedule.places - schedule.beside
    ends = np.full(own, schedule.launch_ps)

    def note(sent: Round, delivered_ps: NDArray[np.int64]) -> None:
        for side in (sent.pattern.src, sent.pattern.dst):
            # What passes a switch is for all of its group.
            counts = side < own
            np.maximum.at(ends, side[counts], np.resize(delivered_ps, len(side))[counts])

    steps_ps = step_ends_ps(schedule, cluster, times)
    if steps_ps is None:
        simulate_ps(schedule, cluster, on_round=lambda ran: note(ran.round, ran.end_ps))
        return ends
    # From the last step back, until no earlier one can be the last of any rank.
    for index in np.argsort(-steps_ps, kind="stable").tolist():
        if ends.min() >= steps_ps[index]:
            break
        sent = schedule.steps[index].round
        wanted = sent.pattern.src[: sent.pattern.messages] < own if schedule.beside else None
        note(sent, steps_ps[index] - times.time_ps(sent) + times.message_ps(sent, wanted)[1])
    return ends


def at_least_ps(schedule: Schedule, times: RoundTimes) -> int:
    """Return a time that a schedule cannot beat, found without solving for rates."""
    if schedule.stage.whole is not None:
        return schedule.launch_ps + times.all_at_least_ps(schedule.stage.whole)
    if schedule.stage.chain:
        return schedule.launch_ps + sum(step.times * times.at_least_ps(step.round) for step in schedule.steps)
    path_ps = _longest_path_ps(schedule.steps, times.at_least_ps, times.left_at_least_ps)
    return schedule.launch_ps + int(path_ps.max(initial=0))


def simulate_ps(
    schedule: Schedule,
    cluster: Cluster,
    on_round: Callable[[RanRound], None] | None = None,
    on_loads: OnLoads | None = None,
    *,
    by_message: bool = False,
) -> int:
    """Return the duration by the fluid network as it runs beside others: the plain path, no round reused.

    Parameters
    ----------
    schedule : Schedule
        What runs.
    cluster : Cluster
        Where.
    on_round : callable, optional
        Told of every round when all of it has been delivered.
    on_loads : callable, optional
        Told of the loads of all links whenever they change.
    by_message : bool
        Whether every rank waits for its own messages alone, instead of for rounds.
    """
    import simpy

    from s2sim.network.fluid import FluidNetwork

    env = simpy.Environment(initial_time=0)
    network = FluidNetwork(env, cluster.fabric, on_loads)
    runs = RunningByMessage if by_message else Running
    runs(network, schedule, cluster, lambda: None, on_round=on_round).start()
    env.run()
    return int(env.now)


def _in_order(steps: Sequence[Step], times: RoundTimes, links: int) -> bool:
    """Return whether steps that share links all follow each other, so that they are never in flight together."""
    if all(index - 1 in (*step.waits(index), *step.after_sent) for index, step in enumerate(steps) if index):
        return True
    patterns = list(dict.fromkeys(step.round.pattern for step in steps))
    class_of = dict(zip(patterns, _classes(patterns, times, links), strict=True))
    last: dict[int, int] = {}
    for index, step in enumerate(steps):
        which = class_of[step.round.pattern]
        if which in last and last[which] not in (*step.waits(index), *step.after_sent):
            return False
        last[which] = index
    return True


def _classes(patterns: Sequence[Pattern], times: RoundTimes, links: int) -> list[int]:
    """Return a number for each pattern, alike where patterns share links, also by way of others."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    used = [np.unique(times.routes(pattern).links) for pattern in patterns]
    rows = np.repeat(np.arange(len(patterns)), [len(each) for each in used])
    size = len(patterns) + links
    graph = coo_matrix((np.ones(len(rows), np.int8), (rows, len(patterns) + np.concatenate(used))), (size, size))
    labels: NDArray[np.int32] = connected_components(graph, directed=False)[1]
    return [int(label) for label in labels[: len(patterns)]]


def _longest_path_ps(
    steps: Sequence[Step], delivered_ps: Callable[[Round], int], left_ps: Callable[[Round], int]
) -> NDArray[np.int64]:
    """Return when each step is delivered, by how long rounds take until they are delivered and until they have left."""
    sent, delivered = np.zeros((2, len(steps)), np.int64)
    sends = any(step.after_sent for step in steps)
    for index, step in enumerate(steps):
        start = max(
            max((int(delivered[before]) for before in step.waits(index)), default=0),
            max((int(sent[before]) for before in step.after_sent), default=0),
        )
        arriving = delivered_ps(step.round)
        delivered[index] = start + step.times * arriving
        if sends:
            sent[index] = delivered[index] - arriving + left_ps(step.round)
    return delivered
