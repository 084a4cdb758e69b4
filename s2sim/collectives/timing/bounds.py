"""Lower bounds of collectives by the bandwidth of a topology, and durations of schedules."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import floor
from typing import NamedTuple

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.schedule import Round, Schedule, Step
from s2sim.collectives.timing.by_message import MessageLevelRun
from s2sim.collectives.timing.collective_run import CollectiveRun, CompletedRound
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.collectives.timing.routes import components
from s2sim.errors import OptionError
from s2sim.network.fluid import FluidNetwork, OnLoads
from s2sim.topology.cluster import Cluster, CutFamily, Cuts
from s2sim.units import PS_PER_S, format_bytes, format_rate, plural


@dataclass(frozen=True, slots=True)
class LowerBound:
    """A lower bound of the duration of any schedule, by bandwidth."""

    seconds: float
    derivation: str  # The cut or partition, with its bytes and capacity


class _BorderBytes(NamedTuple):
    # out, into: of each group, for any network
    out: Floats
    into: Floats
    together: float  # In either direction of all groups together, unless switches or helpers reduce and multicast


def _border_bytes(demand: Demand, group: Ints, groups: int) -> _BorderBytes:
    """Return the border bytes of a collective; ``group`` of each rank is int64 of shape (ranks,)."""
    size = float(demand.buffer_bytes)
    own = np.bincount(group, demand.sizes_bytes, groups).astype(np.float64)
    nothing = np.zeros(groups)
    occupied = np.bincount(group, minlength=groups) > 0
    others = np.flatnonzero(occupied).size - 1
    if demand.shared:
        every = np.where(occupied, size, 0.0) if others else nothing
        if demand.kind == "all_reduce":
            return _BorderBytes(every, every, 2 * others * size)
        at_root = np.arange(groups) == group[demand.root]
        root, rest = np.where(at_root, every, 0.0), np.where(at_root, 0.0, every)
        out, into = (root, rest) if demand.kind == "broadcast" else (rest, root)
        return _BorderBytes(out, into, others * size)
    if demand.kind in ("reduce_scatter", "all_gather", "barrier"):
        own, rest = own if others else nothing, np.where(occupied, size - own, 0.0)
        out, into = (rest, own) if demand.kind == "reduce_scatter" else (own, rest)
        return _BorderBytes(out, into, float(rest.sum()))
    if demand.kind == "send_recv":
        leaves = np.where(group != np.roll(group, -1), demand.sizes_bytes, 0.0)
        out, into = (np.bincount(side, leaves, groups).astype(np.float64) for side in (group, np.roll(group, -1)))
        return _BorderBytes(out, into, float(out.sum()))
    if not demand.blocks:
        # As on the network, each rank has an even share for each.
        members = np.bincount(group, minlength=groups) / demand.ranks
        into = members * (own.sum() - own)
        return _BorderBytes(own * (1 - members), into, float(into.sum()))
    table = demand.blocks
    out, into = np.zeros(groups), np.zeros(groups)
    ranks_with = np.bincount(table.row * groups + group, minlength=len(table.rows) * groups).reshape(-1, groups)
    # Sums of whole bytes are exact in any order.
    for row, senders in zip(table.rows, ranks_with, strict=True):
        for_group = np.bincount(group, row * float(demand.itemsize), groups)
        out += senders * (for_group.sum() - for_group)
        into += (senders.sum() - senders) * for_group
    return _BorderBytes(out, into, float(out.sum()))


def lower_bound(
    demands: Sequence[Demand], cuts: Cuts, *, assisted: bool = False, members: Sequence[Sequence[int]] | None = None
) -> LowerBound:
    """Return the bound for collectives that run sequentially or concurrently, the largest over all cuts.

    The bytes of all collectives over a cut add up. An all-reduce of D bytes moves at least D out of and D into every
    set of ranks, and 2(g-1)·D out of all groups of any partition into g together, unless a switch reduces. An
    all-gather moves the bytes of each set out of it and all others into it; and so on for each kind.
    Demands are of the first ranks of the cluster, or of those of ``members``, in order, for each that has any there;
    concurrent groups of ranks of ``cuts`` all have them. ``assisted``: whether switches or servers reduce, so that only
    the bytes of single groups count.
    """
    best = LowerBound(0.0, "nothing has to leave a rank")
    for family in cuts.families:
        crossings: list[_BorderBytes] = []
        for of_rank in family.group_of_rank.reshape(cuts.concurrent, -1):
            # Those of equal demands of the same ranks are counted once.
            known: dict[tuple[Demand, tuple[int, ...]], _BorderBytes] = {}
            for demand, ranks in zip(demands, members or [()] * len(demands), strict=True):
                key = demand, tuple(ranks)
                if key not in known:
                    group = of_rank[np.asarray(ranks, np.int64)] if len(ranks) else of_rank
                    known[key] = _border_bytes(demand, group[: demand.ranks], family.groups)
                crossings.append(known[key])
        for seconds, text in _cut_times(family, crossings, assisted=assisted):
            # Rounded down to the picosecond, as times are rounded up.
            if (whole := floor(seconds * PS_PER_S) / PS_PER_S) > best.seconds:
                best = LowerBound(whole, text)
    return best


def _cut_times(family: CutFamily, crossings: Sequence[_BorderBytes], *, assisted: bool) -> Iterator[tuple[float, str]]:
    together = sum(each.together for each in crossings)
    directions = (
        ("leave", [each.out for each in crossings], family.egress_Bps),
        ("enter", [each.into for each in crossings], family.ingress_Bps),
    )
    for way, by_group, rate_Bps in directions:
        needed = np.sum(by_group, axis=0) if by_group else np.zeros(family.groups)
        busy_s = np.divide(needed, rate_Bps, out=np.zeros(family.groups), where=needed > 0)
        worst = int(np.argmax(busy_s))
        one = f"{family.name} {worst} of {family.groups}"
        yield float(busy_s[worst]), _reason(float(needed[worst]), way, one, float(rate_Bps[worst]))
        if not assisted:
            total_Bps = float(rate_Bps.sum())
            every = f"the {family.groups} {plural(family.groups, family.name)} together"
            yield together / total_Bps, _reason(together, way, every, total_Bps)


def _reason(size_bytes: float, way: str, border: str, rate_Bps: float) -> str:
    return f"{format_bytes(size_bytes)} must {way} {border}, whose links carry {format_rate(rate_Bps)} that way"


# A minute or two if all rounds differ: routes and rates of a million messages take most of a second.
_MAX_MESSAGES = 2**27
# Cost of a round in messages: a constant, and one per number of links, which all are scanned.
_ROUND_COST, _LINKS_PER_MESSAGE = 100, 1000
_SAMPLED_ROUNDS = 64


def check_timing_cost(schedule: Schedule, links: int) -> None:
    """Refuse a schedule whose timing takes more than minutes, as estimated from a few dozen of its rounds."""
    steps = schedule.steps
    round_cost = _ROUND_COST + links // _LINKS_PER_MESSAGE
    if len(steps) * (2 * schedule.places + round_cost) <= _MAX_MESSAGES:
        return
    sampled = min(_SAMPLED_ROUNDS, len(steps))
    sizes = [steps[index * len(steps) // sampled].round.pattern.messages for index in range(sampled)]
    messages = sum(sizes) * len(steps) // sampled
    if messages + len(steps) * round_cost > _MAX_MESSAGES:
        raise OptionError(
            f"{schedule.algorithm} on {schedule.demand.ranks} ranks sends some {messages:.2g} messages in "
            f"{len(steps)} unlike rounds, more than minutes to time: take fewer workers or another algorithm"
        )


def step_ends_ps(schedule: Schedule, cluster: Cluster, times: RoundTimes) -> Ints | None:
    """Return when each step has been delivered, int64 picoseconds of shape (steps,); None if that needs a simulation.

    The end of a chain is the sum of its rounds. Steps that may overlap have the times of the longest path, as long as
    those that share links follow each other.
    """
    if schedule.stage.chain or not len(schedule.steps):
        rounds_ps = [step.times * times.time_ps(step.round) for step in schedule.steps]
        return schedule.launch_ps + np.cumsum(rounds_ps, dtype=np.int64)
    if _are_sequential(schedule.steps, times, len(cluster.fabric)):
        return schedule.launch_ps + _longest_ps(schedule.steps, times.time_ps, times.left_ps)
    return None


def duration_ps(schedule: Schedule, cluster: Cluster, times: RoundTimes) -> int:
    """Return when the last step of a schedule has been delivered, in integer picoseconds from its start."""
    if (kept := times.kept_shape(schedule)) is not None:
        shape, capacity = kept
        return schedule.launch_ps + shape.duration_ps(capacity, lambda step: times.time_ps(schedule.steps[step].round))
    ends_ps = step_ends_ps(schedule, cluster, times)
    return simulate_ps(schedule, cluster) if ends_ps is None else int(ends_ps.max(initial=schedule.launch_ps))


def chain_durations_ps(schedules: Sequence[Schedule], times: RoundTimes) -> list[int]:
    """Return the durations of chains of equally many rounds, in picoseconds, timed round by round of all of them."""
    totals_ps = [schedule.launch_ps for schedule in schedules]
    for steps in zip(*(schedule.steps for schedule in schedules), strict=True):
        totals_ps = [each + step.times * times.time_ps(step.round) for each, step in zip(totals_ps, steps, strict=True)]
    return totals_ps


def rank_ends_ps(schedule: Schedule, cluster: Cluster, times: RoundTimes) -> Ints:
    """Return when the last message from or to each rank and helper has been delivered, int64 picoseconds.

    Of concurrent groups, only the ranks of the first are included.
    """
    own = schedule.places - schedule.concurrent
    ends = np.full(own, schedule.launch_ps)

    def note(sent: Round, delivered_ps: Ints) -> None:
        for side in (sent.pattern.src, sent.pattern.dst):
            # A message through a switch is for all of its group.
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
    """Return a lower bound of the duration of a schedule, without solving for rates."""
    if (kept := times.kept_shape(schedule)) is not None:
        shape, capacity = kept
        return schedule.launch_ps + shape.at_least_ps(capacity)
    if schedule.stage.whole is not None:
        return schedule.launch_ps + times.all_at_least_ps(schedule.stage.whole)
    if schedule.stage.chain:
        return schedule.launch_ps + sum(step.times * times.at_least_ps(step.round) for step in schedule.steps)
    path_ps = _longest_ps(schedule.steps, times.at_least_ps, times.left_at_least_ps)
    return schedule.launch_ps + int(path_ps.max(initial=0))


def simulate_ps(
    schedule: Schedule,
    cluster: Cluster,
    on_round: Callable[[CompletedRound], None] | None = None,
    on_loads: OnLoads | None = None,
    *,
    by_message: bool = False,
) -> int:
    """Return the duration in a simulation of all messages on the fluid network.

    ``on_round`` is called after each round, ``on_loads`` with the loads of all links whenever they change. With
    ``by_message`` every rank waits for its own messages only, instead of for rounds.
    """
    import simpy

    env = simpy.Environment(initial_time=0)
    network = FluidNetwork(env, cluster.fabric, on_loads)
    runs = MessageLevelRun if by_message else CollectiveRun
    runs(network, schedule, cluster, lambda: None, on_round=on_round).start()
    env.run()
    return int(env.now)


def _are_sequential(steps: Sequence[Step], times: RoundTimes, links: int) -> bool:
    """Return whether steps that share links are never in flight together."""
    if all(index - 1 in (*step.waits(index), *step.after_sent) for index, step in enumerate(steps) if index):
        return True
    patterns = list(dict.fromkeys(step.round.pattern for step in steps))
    used = [times.routes(pattern).links for pattern in patterns]
    number = np.repeat(np.arange(len(patterns)), [len(crossed) for crossed in used])
    class_of = dict(zip(patterns, components(number, np.concatenate(used), len(patterns), links).tolist(), strict=True))
    last: dict[int, int] = {}
    for index, step in enumerate(steps):
        which = class_of[step.round.pattern]
        if which in last and last[which] not in (*step.waits(index), *step.after_sent):
            return False
        last[which] = index
    return True


def _longest_ps(steps: Sequence[Step], delivered_ps: Callable[[Round], int], left_ps: Callable[[Round], int]) -> Ints:
    """Return when each step is delivered, from the times until rounds are delivered and until they have been sent."""
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
