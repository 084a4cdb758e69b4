"""Bandwidth lower bounds: what no algorithm can beat on a topology (DESIGN law 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import floor

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats, Ints
from s2sim.collectives.schedules.blocks import blocks_of
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.schedule import Pattern, Round, Schedule, Step
from s2sim.collectives.timing.by_message import MessageLevelRun
from s2sim.collectives.timing.collective_run import CollectiveRun, CompletedRound
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.network.fluid import OnLoads
from s2sim.topology.cluster import Cluster, CutFamily, Cuts
from s2sim.units import PS_PER_S, format_bytes, format_rate, plural


@dataclass(frozen=True, slots=True)
class LowerBound:
    """The time that bandwidth alone forces."""

    seconds: float  # No schedule is faster
    derivation: str  # The cut or partition that forces it, with its bytes and its capacity


@dataclass(frozen=True, slots=True, eq=False)
class _BorderBytes:
    """Bytes that have to cross the borders of groups of ranks."""

    # Out of and into each group at least, however clever the network
    out: Floats
    into: Floats
    # together_out, together_in: out of and into all groups together, unless switches or helpers reduce and multicast
    together_out: float
    together_in: float


def _border_bytes(demand: Demand, group: Ints, groups: int) -> _BorderBytes:
    """Return what a collective has to move over the borders of ``group[r]`` of each rank, int64 of shape (ranks,)."""
    size = float(demand.buffer_bytes)
    own = np.bincount(group, demand.sizes_bytes, groups).astype(np.float64)
    nothing = np.zeros(groups)
    held = np.bincount(group, minlength=groups) > 0
    others = np.flatnonzero(held).size - 1
    every = np.where(held, size, 0.0) if others else nothing
    at_root = np.arange(groups) == group[demand.root]
    if demand.kind == "all_reduce":
        return _BorderBytes(every, every, 2 * others * size, 2 * others * size)
    if demand.kind == "broadcast":
        return _BorderBytes(np.where(at_root, every, 0.0), np.where(at_root, 0.0, every), others * size, others * size)
    if demand.kind == "reduce":
        return _BorderBytes(np.where(at_root, 0.0, every), np.where(at_root, every, 0.0), others * size, others * size)
    if demand.kind == "reduce_scatter":
        out = np.where(held, size - own, 0.0)
        return _BorderBytes(out, own if others else nothing, float(out.sum()), float(out.sum()))
    if demand.kind in ("all_gather", "barrier"):
        into = np.where(held, size - own, 0.0)
        return _BorderBytes(own if others else nothing, into, float(into.sum()), float(into.sum()))
    out, into = np.zeros((2, groups))
    for source, target, sizes in _required_messages(demand):
        leaves = np.where(group[source] != group[target], sizes, 0.0)
        out += np.bincount(group[source], leaves, groups)
        into += np.bincount(group[target], leaves, groups)
    return _BorderBytes(out, into, float(out.sum()), float(into.sum()))


def _required_messages(demand: Demand) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Yield (source, target, bytes) of what has to go from rank to rank, a shift of all ranks at a time."""
    source = np.arange(demand.ranks)
    if demand.kind == "send_recv":
        yield source, (source + 1) % demand.ranks, demand.sizes_bytes
        return
    blocks = blocks_of(demand)
    for shift in range(1, demand.ranks):
        target: Ints = (source + shift) % demand.ranks
        begin, end = blocks.bounds(source, target)
        yield source, target, (end - begin).astype(np.float64) * demand.itemsize


def lower_bound(
    demands: Sequence[Demand], cuts: Cuts, *, assisted: bool = False, members: Sequence[Sequence[int]] | None = None
) -> LowerBound:
    """Return the bound for collectives that run one after another or at once, by the largest of all cuts.

    Over every cut the bytes of all of them are added. An all-reduce of D bytes moves at least D out of and D into every
    set of ranks, and 2(g-1)·D out of all groups of any partition into g together, unless a switch reduces. An
    all-gather moves each set's own bytes out of it and all others into it; and so on for each kind.

    Parameters
    ----------
    demands : sequence of Demand
        Of the first ranks of the cluster, all of as many.
    cuts : Cuts
        The cluster's; where several groups of ranks are beside each other, all of them do what is demanded.
    assisted : bool
        Whether switches reduce and multicast, or servers do, so that only what crosses single groups counts.
    members : sequence of sequence of int, optional
        The ranks of each demand, in its order, where these are not the first ones; none for all.
    """
    places = [np.asarray(ranks, np.int64) for ranks in members] if members else []
    best = LowerBound(0.0, "nothing has to leave a rank")
    for family in cuts.families:
        crossings = []
        for of_rank in family.group_of_rank.reshape(cuts.concurrent, -1):
            groups = [of_rank[ranks] if len(ranks) else of_rank for ranks in places]
            crossings += [
                _border_bytes(demand, group[: demand.ranks], family.groups)
                for demand, group in zip(demands, groups or [of_rank] * len(demands), strict=True)
            ]
        for seconds, text in _cut_times(family, crossings, assisted=assisted):
            # Rounded down to the picosecond, as times are rounded up.
            whole = floor(seconds * PS_PER_S) / PS_PER_S
            if whole > best.seconds:
                best = LowerBound(whole, text)
    return best


def _cut_times(family: CutFamily, crossings: Sequence[_BorderBytes], *, assisted: bool) -> Iterator[tuple[float, str]]:
    """Yield the time that each cut of a family forces, and why."""
    ways = (
        ("leave", [each.out for each in crossings], [each.together_out for each in crossings], family.egress_Bps),
        ("enter", [each.into for each in crossings], [each.together_in for each in crossings], family.ingress_Bps),
    )
    for way, by_group, together, rate_Bps in ways:
        needed = np.sum(by_group, axis=0) if by_group else np.zeros(family.groups)
        busy_s = np.divide(needed, rate_Bps, out=np.zeros(family.groups), where=needed > 0)
        worst = int(np.argmax(busy_s))
        one = f"{family.name} {worst} of {family.groups}"
        yield float(busy_s[worst]), _reason(float(needed[worst]), way, one, float(rate_Bps[worst]))
        if not assisted:
            total_bytes, total_Bps = sum(together), float(rate_Bps.sum())
            every = f"the {family.groups} {plural(family.groups, family.name)} together"
            yield total_bytes / total_Bps, _reason(total_bytes, way, every, total_Bps)


def _reason(size_bytes: float, way: str, border: str, rate_Bps: float) -> str:
    return f"{format_bytes(size_bytes)} must {way} {border}, whose links carry {format_rate(rate_Bps)} that way"


def step_ends_ps(schedule: Schedule, cluster: Cluster, times: RoundTimes) -> Ints | None:
    """Return when each step has been delivered, int64 picoseconds of shape (steps,), or None.

    A chain of steps adds up its rounds. Where steps may overlap, those that share links must follow each other for the
    longest path to hold; else only a simulation of all of it tells, and the answer is None.
    """
    if schedule.stage.chain or not len(schedule.steps):
        rounds_ps = [step.times * times.time_ps(step.round) for step in schedule.steps]
        return schedule.launch_ps + np.cumsum(rounds_ps, dtype=np.int64)
    if _are_sequential(schedule.steps, times, len(cluster.fabric)):
        return schedule.launch_ps + _longest_path_ps(schedule.steps, times.time_ps, times.left_ps)
    return None


def duration_ps(schedule: Schedule, cluster: Cluster, times: RoundTimes) -> int:
    """Return when the last step of a schedule has been delivered, in integer picoseconds from its start."""
    ends_ps = step_ends_ps(schedule, cluster, times)
    return simulate_ps(schedule, cluster) if ends_ps is None else int(ends_ps.max(initial=schedule.launch_ps))


def rank_ends_ps(schedule: Schedule, cluster: Cluster, times: RoundTimes) -> Ints:
    """Return when each rank's last message has been delivered, from it or to it, int64 picoseconds.

    It has the shape of ranks and helpers; of groups beside each other there are those of the first.
    """
    own = schedule.places - schedule.concurrent
    ends = np.full(own, schedule.launch_ps)

    def note(sent: Round, delivered_ps: Ints) -> None:
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
        wanted = sent.pattern.src[: sent.pattern.messages] < own if schedule.concurrent else None
        note(sent, steps_ps[index] - times.time_ps(sent) + times.message_ps(sent, wanted)[1])
    return ends


def duration_floor_ps(schedule: Schedule, times: RoundTimes) -> int:
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
    on_round: Callable[[CompletedRound], None] | None = None,
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
    runs = MessageLevelRun if by_message else CollectiveRun
    runs(network, schedule, cluster, lambda: None, on_round=on_round).start()
    env.run()
    return int(env.now)


def _are_sequential(steps: Sequence[Step], times: RoundTimes, links: int) -> bool:
    """Return whether steps that share links all follow each other, so that they are never in flight together."""
    if all(index - 1 in (*step.waits(index), *step.after_sent) for index, step in enumerate(steps) if index):
        return True
    patterns = list(dict.fromkeys(step.round.pattern for step in steps))
    class_of = dict(zip(patterns, _link_sharing_classes(patterns, times, links), strict=True))
    last: dict[int, int] = {}
    for index, step in enumerate(steps):
        which = class_of[step.round.pattern]
        if which in last and last[which] not in (*step.waits(index), *step.after_sent):
            return False
        last[which] = index
    return True


def _link_sharing_classes(patterns: Sequence[Pattern], times: RoundTimes, links: int) -> list[int]:
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
) -> Ints:
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
