"""Groups of ranks that do the same at once, each on its own part of the buffer: what composed schedules are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import ClassVar, Self

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.collectives.schedules.demand import Demand, Kind
from s2sim.collectives.schedules.overheads import Overheads
from s2sim.collectives.schedules.schedule import (
    CombinedRound,
    LazySteps,
    Pattern,
    Pieces,
    Round,
    Schedule,
    Stage,
    Step,
    TransferLegs,
    traffic_of,
)
from s2sim.errors import OptionError
from s2sim.options import option_text
from s2sim.topology.cluster import Cluster
from s2sim.units import format_bytes

_MAX_AT_ONCE = 2**21
# Memory that routes and sharing of one message take, measured on a two-level fat tree with four links a way.
_MESSAGE_BYTES = 750


def check_at_once(algorithm: str, messages: int, instead: str) -> None:
    """Refuse rounds of more messages than memory holds; ``instead`` names an algorithm that sends fewer at once."""
    if messages > _MAX_AT_ONCE:
        needed = format_bytes(messages * _MESSAGE_BYTES)
        raise OptionError(
            f"{algorithm} sends {messages:,} messages at once, which takes about {needed} of memory, and at most "
            f"{_MAX_AT_ONCE:,} are run: take {instead}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """G groups of p ranks; member i of a group has chunk i of the group's part of the buffer.

    Members and the positions [``begin``, ``end``) of each one's chunk are int64 of shape (G, p); what each chunk counts
    on the network, ``bytes``, is float64 of that shape.
    """

    ranks: Ints
    begin: Ints
    end: Ints
    bytes: Floats

    @property
    def members(self) -> int:
        """Ranks of a group."""
        return int(self.ranks.shape[1])

    @property
    def alike(self) -> bool:
        """Whether all chunks of a group count the same bytes, so that rounds repeat."""
        return bool((self.bytes == self.bytes[:, :1]).all())


def even_groups(ranks: Ints, begin: Ints, end: Ints, part_bytes: float | Floats) -> Groups:
    """Return groups that cut their part evenly: chunk i = positions [begin + i·n//p, begin + (i+1)·n//p).

    Members are int64 of shape (G, p), ``begin`` and ``end`` of each group's part of shape (G,); a part counts
    ``part_bytes`` on the network, all as many or float64 of shape (G,).
    """
    members = ranks.shape[1]
    cuts = begin[:, None] + np.arange(members + 1) * (end - begin)[:, None] // members
    chunk_bytes = np.asarray(part_bytes, np.float64).reshape(-1, 1) / members
    return Groups(ranks, cuts[:, :-1], cuts[:, 1:], np.broadcast_to(chunk_bytes, ranks.shape).copy())


def group_of_all(demand: Demand) -> Groups:
    """Return all ranks as one group: even chunks of a shared buffer, or the ranks' own stretches."""
    ranks = np.arange(demand.ranks, dtype=np.int64)[None, :]
    begin, end = demand.stretches()
    if demand.shared:
        return even_groups(ranks, begin[:1], end[:1], float(demand.buffer_bytes))
    return Groups(ranks, begin[None, :], end[None, :], demand.sizes_bytes[None, :])


def group_from_root(demand: Demand) -> Groups:
    """Return all ranks as one group, in rank order from the root on and round again."""
    groups = group_of_all(demand)
    return replace(groups, ranks=np.roll(groups.ranks, -demand.root, axis=1))


def cut(begin: Ints, end: Ints, part: Ints | int, parts: int) -> tuple[Ints, Ints]:
    """Return where an even part of stretches of positions begins and ends, the parts counted from 0."""
    return begin + part * (end - begin) // parts, begin + (part + 1) * (end - begin) // parts


def arranged(parts: Sequence[tuple[Stage, tuple[int, ...]]]) -> Stage:
    """Return stages of which each starts once some of those before it have been delivered everywhere.

    With each stage stand the numbers of those that it waits for; without any it starts at once. To wait for a stage
    without steps is to wait for what that one waits for.
    """
    steps: list[Step] = []
    owner: list[tuple[Stage, int]] = []
    ends: list[tuple[int, ...]] = []
    for stage, before in parts:
        entry = tuple(dict.fromkeys(step for number in before for step in ends[number]))
        first = len(steps)
        for index, step in enumerate(stage.steps):
            after = tuple(first + other for other in step.waits(index))
            sent = tuple(first + other for other in step.after_sent)
            steps.append(Step(step.round, step.times, after or entry, sent))
            owner.append((stage, index))
        waited = {other for step in steps[first:] for other in step.after or ()}
        ends.append(tuple(index for index in range(first, len(steps)) if index not in waited) or entry)

    def pieces(index: int, time: int) -> Pieces:
        stage, inner = owner[index]
        return stage.pieces(inner, time)

    return Stage(steps, pieces, partial(traffic_of, [stage for stage, _ in parts]), chain=False)


def joined(stages: Sequence[Stage]) -> Stage:
    """Return stages one after another: each starts when the one before it has been delivered everywhere."""
    stages = [stage for stage in stages if len(stage.steps)]
    starts = list(accumulate((len(stage.steps) for stage in stages), initial=0))

    def find(index: int) -> tuple[int, int]:
        which = int(np.searchsorted(starts, index, side="right")) - 1
        return which, index - starts[which]

    def pieces(index: int, time: int) -> Pieces:
        which, inner = find(index)
        return stages[which].pieces(inner, time)

    if all(stage.chain for stage in stages):

        def step(index: int) -> Step:
            which, inner = find(index)
            return stages[which].steps[inner]

        return Stage(LazySteps(starts[-1], step), pieces, partial(traffic_of, stages))
    return arranged([(stage, (number - 1,) if number else ()) for number, stage in enumerate(stages)])


def schedule_of(demand: Demand, algorithm: str, stage: Stage, *, helpers: int = 0) -> Schedule:
    """Return a schedule of this stage; one rank without helpers has nothing to send."""
    if demand.ranks == 1 and not helpers:
        stage = Stage((), stage.pieces, lambda ranks: np.zeros((2, ranks), np.int64))
    return Schedule(demand, algorithm, stage, helpers)


class OverGroups(ABC):
    """A frozen dataclass of options that says what groups do; its schedule is that of one group of all ranks."""

    __slots__ = ()
    name: ClassVar[str]

    def fitted(self, groups: Groups, cluster: Cluster) -> Self:
        """Return the algorithm with the options that the cluster's rates choose; most choose none."""
        return self

    @abstractmethod
    def stage(self, kind: Kind, groups: Groups) -> Stage:
        """Return the rounds in which each group does ``kind`` on its part, the first member at the root."""

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule for this demand."""
        groups = group_from_root(demand)
        fitted = self.fitted(groups, cluster)
        return schedule_of(demand, option_text(fitted), fitted.stage(demand.kind, groups))


# Of steps that are made when asked for, each of which may have a pattern of its own.
_CACHED_PATTERNS = 4


def merge_concurrent(parts: Sequence[tuple[Schedule, Ints]]) -> Schedule:
    """Return what several groups do at once, each on ranks of its own, as one schedule.

    Rank r of group g is number g times the ranks of a group plus r. Groups go on together, round by round, where their
    schedules have rounds alike; else each goes on by itself.

    Parameters
    ----------
    parts : sequence of (Schedule, int64 array)
        Schedules of one demand, each with the groups that run it; group 0 runs the first.
    """
    first, ranks = parts[0][0], parts[0][0].demand.ranks
    sides = [(schedule.stage, groups * ranks) for schedule, groups in parts]
    if _have_equal_steps([stage for stage, _ in sides]):
        stage = _merge_stages(sides, ranks)
    else:
        stage = arranged([(_merge_stages([side], ranks), ()) for side in sides])
    latest = max((schedule for schedule, _ in parts), key=lambda schedule: schedule.launch_ps)
    beside = ranks * (sum(len(groups) for _, groups in parts) - 1)
    return replace(first, stage=stage, concurrent=beside, launch_ps=latest.launch_ps, launch=latest.launch)


def _have_equal_steps(stages: Sequence[Stage]) -> bool:
    """Return whether all stages have as many steps, which wait for the same ones and are repeated as often."""
    if len(stages) == 1:
        return True
    shapes = [[(step.times, step.after, step.after_sent) for step in stage.steps] for stage in stages]
    switched = any(step.round.pattern.through_switch for stage in stages for step in stage.steps[:1])
    return not switched and all(shape == shapes[0] for shape in shapes) and len({stage.chain for stage in stages}) == 1


def _merge_stages(sides: Sequence[tuple[Stage, Ints]], ranks: int) -> Stage:
    """Return stages as one, each run by groups whose first ranks have these numbers."""
    stages = [stage for stage, _ in sides]
    merging = _PatternMerger([starts for _, starts in sides])
    lazy = isinstance(stages[0].steps, LazySteps)

    def step(at: int) -> Step:
        steps = [stage.steps[at] for stage in stages]
        if lazy:
            merging.forget()
        return replace(steps[0], round=merging.round([each.round for each in steps]))

    def pieces(at: int, time: int) -> Pieces:
        numbers = merging.messages([stage.steps[at].round.pattern.messages for stage in stages])
        each = [(stage.pieces(at, time), of) for stage, of in zip(stages, numbers, strict=True)]
        return Pieces(
            np.concatenate([_offset_members(one.message, of) for one, of in each]),
            np.concatenate([np.tile(one.start, len(of)) for one, of in each]),
            np.concatenate([np.tile(one.stop, len(of)) for one, of in each]),
            np.concatenate([np.tile(one.adds, len(of)) for one, of in each]),
        )

    def volume(places: int) -> Ints:
        total = np.zeros((2, places), np.int64)
        for stage, starts in sides:
            own = stage.traffic(ranks)
            for start in starts.tolist():
                total[:, start : start + ranks] += own
        return total

    count = len(stages[0].steps)
    steps = LazySteps(count, step) if lazy else [step(at) for at in range(count)]
    wholes = [stage.whole for stage in stages if stage.whole is not None]
    whole = merging.whole(wholes) if len(wholes) == len(stages) else None
    return Stage(steps, pieces, volume, stages[0].chain, whole)


class _PatternMerger:
    """Makes patterns of groups out of patterns of one group of each kind, each only once.

    Parameters
    ----------
    starts : sequence of int64 array
        The number of the first rank of each group, for each kind.
    """

    def __init__(self, starts: Sequence[Ints]) -> None:
        self._starts = starts
        self._known: dict[tuple[Pattern, ...], Pattern] = {}
        self._wholes: dict[tuple[Pattern, ...], Pattern] = {}

    def forget(self) -> None:
        """Leave patterns of earlier steps to memory, where these are many."""
        if len(self._known) >= _CACHED_PATTERNS:
            self._known.clear()

    def messages(self, counts: Sequence[int]) -> list[Ints]:
        """Return the number of each group's first message, for each kind, of which a group has so many."""
        groups = [len(starts) for starts in self._starts]
        before = accumulate((n * count for n, count in zip(groups, counts, strict=True)), initial=0)
        return [base + np.arange(n) * count for base, n, count in zip(before, groups, counts, strict=False)]

    def round(self, rounds: Sequence[Round]) -> Round:
        """Return a round of every kind as one."""
        sizes = [np.tile(sent.bytes, len(starts)) for sent, starts in zip(rounds, self._starts, strict=True)]
        return Round(self._pattern(tuple(sent.pattern for sent in rounds)), np.concatenate(sizes))

    def whole(self, wholes: Sequence[CombinedRound]) -> CombinedRound | None:
        """Return all that a pipeline sends, of every kind as one; None where they are not sent as often."""
        if len({whole.times for whole in wholes}) > 1:
            return None
        first, line, lines = [], [], 0
        for whole, starts in zip(wholes, self._starts, strict=True):
            first.append(np.tile(whole.first, len(starts)))
            own = int(whole.line.max()) + 1
            line.append((lines + np.arange(len(starts))[:, None] * own + whole.line).reshape(-1))
            lines += own * len(starts)
        sent = self.round([whole.round for whole in wholes])
        return CombinedRound(sent, np.concatenate(first), wholes[0].times, np.concatenate(line))

    def _pattern(self, patterns: tuple[Pattern, ...]) -> Pattern:
        if patterns not in self._known:
            self._known[patterns] = self._make(patterns)
        return self._known[patterns]

    def _make(self, patterns: tuple[Pattern, ...]) -> Pattern:
        added = [each.overheads for each in patterns if each.overheads is not None]
        overheads = _merge_overheads(added, self._starts) if len(added) == len(patterns) else None
        if patterns[0].through_switch:
            return replace(_merge_switch_pattern(patterns[0], self._starts[0]), overheads=overheads)
        src, dst = (
            np.concatenate([_offset_members(side, starts) for side, starts in zip(sides, self._starts, strict=True)])
            for sides in ([each.src for each in patterns], [each.dst for each in patterns])
        )
        parts = [each.part_of for each in patterns if each.part_of is not None]
        if len(parts) < len(patterns):
            return Pattern(src, dst, overheads=overheads)
        wholes = tuple(whole for whole, _ in parts)
        if wholes not in self._wholes:
            self._wholes[wholes] = self._make(wholes)
        numbers = self.messages([whole.messages for whole in wholes])
        chosen = [_offset_members(taken, of) for (_, taken), of in zip(parts, numbers, strict=True)]
        return Pattern(src, dst, overheads=overheads, part_of=(self._wholes[wholes], np.concatenate(chosen)))


def _offset_members(own: Ints, starts: Ints) -> Ints:
    """Return numbers of one group as those of all, group by group."""
    return (starts[:, None] + own).reshape(-1)


def _merge_switch_pattern(pattern: Pattern, starts: Ints) -> Pattern:
    """Return the pattern of groups of which each has a message through its switches."""

    def of_all(own: Ints) -> Ints:
        return _offset_members(own, starts).reshape(len(starts), -1).T.reshape(-1)

    legs = pattern.legs
    if legs is not None:
        legs = TransferLegs(of_all(legs.src), of_all(legs.dst), legs.share, legs.depth)
    return Pattern(of_all(pattern.src), of_all(pattern.dst), through_switch=True, legs=legs, groups=len(starts))


def _merge_overheads(added: Sequence[Overheads], starts: Sequence[Ints]) -> Overheads:
    """Return what is added to the messages of all groups; groups of several kinds do not tell what it is made of."""
    tiled = [
        each.take(np.tile(np.arange(len(each.latency_ps)), len(of))) for each, of in zip(added, starts, strict=True)
    ]
    merged = tiled[0]
    if len(tiled) > 1:
        merged = Overheads(
            np.concatenate([each.latency_ps for each in tiled]),
            np.concatenate([each.factor for each in tiled]),
            np.concatenate([each.limit_Bps for each in tiled]),
        )
    clocks = [
        replace(each.round_latency, src=each.round_latency.src + of[0], dst=each.round_latency.dst + of[0])
        for each, of in zip(added, starts, strict=True)
        if each.round_latency is not None
    ]
    return replace(merged, round_latency=max(clocks, key=lambda clock: clock.ps) if len(clocks) == len(added) else None)
