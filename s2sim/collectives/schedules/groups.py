"""Groups of ranks that run the same rounds concurrently, each on its own part of the buffer."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.collectives import Kind
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.overheads import Overheads
from s2sim.collectives.schedules.schedule import CombinedRound, LazySteps, Pattern, Pieces, Round, Schedule, Stage, Step
from s2sim.errors import OptionError
from s2sim.files import own_tables
from s2sim.options import Described, option_text
from s2sim.registry import Catalogue
from s2sim.topology.cluster import Cluster
from s2sim.units import format_bytes

_MAX_AT_ONCE = 2**21
# Memory per message for routes and link sharing, measured on a two-level fat tree with routes of four links.
_MESSAGE_BYTES = 750


def check_at_once(algorithm: str, messages: int, instead: str) -> None:
    """Refuse rounds of more messages than fit in memory; ``instead`` names an algorithm that sends fewer at once."""
    if messages > _MAX_AT_ONCE:
        needed = format_bytes(messages * _MESSAGE_BYTES)
        raise OptionError(
            f"{algorithm} sends {messages:,} messages at once, which takes about {needed} of memory, and at most "
            f"{_MAX_AT_ONCE:,} are run: take {instead}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """G groups of p ranks; member i of a group has chunk i of the group's part of the buffer.

    Ranks and the positions [``begin``, ``end``) of their chunks are int64 of shape (G, p); ``bytes`` of each chunk on
    the network are float64 of that shape.
    """

    ranks: Ints
    begin: Ints
    end: Ints
    bytes: Floats

    @property
    def members(self) -> int:
        """Ranks of a group."""
        return int(self.ranks.shape[1])


def pattern_of_members(ranks: Ints, src: Ints, dst: Ints) -> Pattern:
    """Return the pattern in which members ``src`` send to ``dst`` in all groups; ``ranks`` is of shape (G, p)."""
    return Pattern(ranks[:, src].reshape(-1), ranks[:, dst].reshape(-1))


def even_groups(ranks: Ints, begin: Ints, end: Ints, part_bytes: float | Floats) -> Groups:
    """Return groups that cut their part evenly: chunk i = positions [begin + i·n//p, begin + (i+1)·n//p).

    Ranks are int64 of shape (G, p), ``begin`` and ``end`` of each group's part of shape (G,), ``part_bytes`` of a part
    on the network one value or float64 of shape (G,).
    """
    members = ranks.shape[1]
    cuts = begin[:, None] + np.arange(members + 1) * (end - begin)[:, None] // members
    chunk_bytes = np.asarray(part_bytes, np.float64).reshape(-1, 1) / members
    return Groups(ranks, cuts[:, :-1], cuts[:, 1:], np.broadcast_to(chunk_bytes, ranks.shape).copy())


def group_of_all(demand: Demand) -> Groups:
    """Return all ranks as one group with even chunks of a shared buffer, or the ranges of the ranks."""
    ranks = np.arange(demand.ranks, dtype=np.int64)[None, :]
    begin, end = demand.stretches()
    if demand.shared:
        return even_groups(ranks, begin[:1], end[:1], float(demand.buffer_bytes))
    return Groups(ranks, begin[None, :], end[None, :], demand.sizes_bytes[None, :])


def traffic_of(stages: Sequence[Stage], ranks: int) -> Ints:
    """Return the elements that each rank sends and receives in several stages, int64 of shape (2, ranks)."""
    return sum((stage.traffic(ranks) for stage in stages), np.zeros((2, ranks), np.int64))


def arranged(parts: Sequence[tuple[Stage, tuple[int, ...]]]) -> Stage:
    """Return one stage of stages that each wait for some earlier ones, given by their indices, to be delivered.

    To wait for a stage without steps is to wait for the stages for which that one waits.
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
    """Return one stage of stages in sequence: each starts when the one before has been delivered on all ranks."""
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


class DescribedAlgorithm(Described):
    """An algorithm, a frozen dataclass of options, with what ``algorithms.toml`` says of it."""

    __slots__ = ()
    catalogue = Catalogue("s2sim.collectives.algorithms", own_tables(str(Path(__file__).parent), "algorithms.toml"))
    source: ClassVar[str]  # Who published it
    kinds: ClassVar[tuple[str, ...]]  # What it runs
    auto: ClassVar[tuple[str, ...]] = ()  # Those of them for which libraries choose it


class OverGroups(DescribedAlgorithm, ABC):
    """An algorithm that runs on groups; its schedule is that of one group of all ranks."""

    __slots__ = ()

    def fitted(self, groups: Groups, cluster: Cluster) -> Self:
        """Return the algorithm with the options that depend on the rates of the cluster; most have none."""
        return self

    @abstractmethod
    def stage(self, kind: Kind, groups: Groups) -> Stage:
        """Return the rounds in which each group runs ``kind`` on its part; its first member is the root."""

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule for this demand; the group has cyclic rank order from the root on."""
        groups = group_of_all(demand)
        groups = replace(groups, ranks=np.roll(groups.ranks, -demand.root, axis=1))
        fitted = self.fitted(groups, cluster)
        return schedule_of(demand, option_text(fitted), fitted.stage(demand.kind, groups))


_CACHED_PATTERNS = 4


def merge_concurrent(parts: Sequence[tuple[Schedule, Ints]]) -> Schedule:
    """Return the schedules of groups of disjoint ranks that run concurrently as one schedule.

    ``parts`` are schedules of one demand, each with the numbers of the groups that run it; group 0 runs the first. Rank
    r of group g has number g times the ranks of a group plus r. Groups share rounds if their schedules have equal
    steps; else each runs independently.
    """
    first, ranks = parts[0][0], parts[0][0].demand.ranks
    sides = [(schedule.stage, groups * ranks) for schedule, groups in parts]
    switched = any(step.round.pattern.through_switch for stage, _ in sides for step in stage.steps[:1])
    shapes = {
        (stage.chain, *((step.times, step.after, step.after_sent) for step in stage.steps))
        for stage, _ in (sides if len(sides) > 1 else ())
    }
    if len(sides) == 1 or (len(shapes) == 1 and not switched):
        stage = _merge_stages(sides, ranks)
    else:
        stage = arranged([(_merge_stages([side], ranks), ()) for side in sides])
    latest = max((schedule for schedule, _ in parts), key=lambda schedule: schedule.launch_ps)
    beside = ranks * (sum(len(groups) for _, groups in parts) - 1)
    return replace(first, stage=stage, concurrent=beside, launch_ps=latest.launch_ps, launch=latest.launch)


def _merge_stages(sides: Sequence[tuple[Stage, Ints]], ranks: int) -> Stage:
    """Return one stage of stages, each with the first ranks of the groups that run it."""
    stages = [stage for stage, _ in sides]
    merger = _PatternMerger([starts for _, starts in sides])
    lazy = isinstance(stages[0].steps, LazySteps)

    def step(at: int) -> Step:
        steps = [stage.steps[at] for stage in stages]
        # Steps that are created on access may all have different patterns.
        if lazy and len(merger.known) >= _CACHED_PATTERNS:
            merger.known.clear()
        return replace(steps[0], round=merger.round([step.round for step in steps]))

    def pieces(at: int, time: int) -> Pieces:
        numbers = merger.messages([stage.steps[at].round.pattern.messages for stage in stages])
        repeated = []
        for stage, first in zip(stages, numbers, strict=True):
            part = stage.pieces(at, time)
            columns = (np.tile(column, len(first)) for column in (part.start, part.stop, part.adds))
            repeated.append((_offset_members(part.message, first), *columns))
        return Pieces(*map(np.concatenate, zip(*repeated, strict=True)))

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
    return Stage(steps, pieces, volume, stages[0].chain, merger.whole(wholes) if len(wholes) == len(stages) else None)


class _PatternMerger:
    """Merges the patterns of one group of each kind into those of all groups, each once."""

    def __init__(self, starts: Sequence[Ints]) -> None:
        self._starts = starts  # First ranks of the groups of each kind
        self.known: dict[tuple[Pattern, ...], Pattern] = {}
        self._wholes: dict[tuple[Pattern, ...], Pattern] = {}

    def messages(self, counts: Sequence[int]) -> list[Ints]:
        """Return the first message of each group, for each kind; a group of it has that count of messages."""
        groups = [len(starts) for starts in self._starts]
        before = accumulate((n * count for n, count in zip(groups, counts, strict=True)), initial=0)
        return [base + np.arange(n) * count for base, n, count in zip(before, groups, counts, strict=False)]

    def round(self, rounds: Sequence[Round]) -> Round:
        """Return one round of a round of each kind."""
        patterns = tuple(sent.pattern for sent in rounds)
        if patterns not in self.known:
            self.known[patterns] = self._merge(patterns)
        sizes = [np.tile(sent.bytes, len(starts)) for sent, starts in zip(rounds, self._starts, strict=True)]
        return Round(self.known[patterns], np.concatenate(sizes))

    def whole(self, wholes: Sequence[CombinedRound]) -> CombinedRound | None:
        """Return one combined round of those of each kind; None if their repetitions differ."""
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

    def _merge(self, patterns: tuple[Pattern, ...]) -> Pattern:
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
            self._wholes[wholes] = self._merge(wholes)
        numbers = self.messages([whole.messages for whole in wholes])
        chosen = [_offset_members(taken, of) for (_, taken), of in zip(parts, numbers, strict=True)]
        return Pattern(src, dst, overheads=overheads, part_of=(self._wholes[wholes], np.concatenate(chosen)))


def _offset_members(own: Ints, starts: Ints) -> Ints:
    """Return indices of one group as indices of all groups, group by group."""
    return (starts[:, None] + own).reshape(-1)


def _merge_switch_pattern(pattern: Pattern, starts: Ints) -> Pattern:

    def of_all(own: Ints) -> Ints:
        return _offset_members(own, starts).reshape(len(starts), -1).T.reshape(-1)

    legs = pattern.legs and replace(pattern.legs, src=of_all(pattern.legs.src), dst=of_all(pattern.legs.dst))
    return Pattern(of_all(pattern.src), of_all(pattern.dst), through_switch=True, legs=legs, groups=len(starts))


def _merge_overheads(added: Sequence[Overheads], starts: Sequence[Ints]) -> Overheads:
    """Return the overheads of the messages of all groups, without their terms if there are several kinds."""
    tiled, means = [], []
    for kind, first in zip(added, starts, strict=True):
        tiled.append(kind.take(np.tile(np.arange(len(kind.latency_ps)), len(first))))
        if (mean := kind.round_latency) is not None:
            means.append(replace(mean, src=mean.src + first[0], dst=mean.dst + first[0]))
    merged = tiled[0]
    if len(tiled) > 1:
        sides = zip(*((kind.latency_ps, kind.factor, kind.limit_Bps) for kind in tiled), strict=True)
        latency_ps, factor, limit_Bps = map(np.concatenate, sides)
        merged = Overheads(latency_ps, factor, limit_Bps)
    return replace(merged, round_latency=max(means, key=lambda mean: mean.ps) if len(means) == len(added) else None)
