"""Schedules of several groups of ranks that do the same at once, as one schedule of all of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.schedules.groups import arranged
from s2sim.collectives.schedules.overheads import Overheads
from s2sim.collectives.schedules.schedule import LazySteps, Legs, Pattern, Pieces, Round, Stage, Whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Ints
    from s2sim.collectives.schedules.schedule import Schedule, Step

# Of steps that are made when asked for, each of which may have a pattern of its own.
_KEPT_PATTERNS = 4


def beside_each_other(parts: Sequence[tuple[Schedule, Ints]]) -> Schedule:
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
    if _alike([stage for stage, _ in sides]):
        stage = _merged(sides, ranks)
    else:
        stage = arranged([(_merged([side], ranks), ()) for side in sides])
    latest = max((schedule for schedule, _ in parts), key=lambda schedule: schedule.launch_ps)
    beside = ranks * (sum(len(groups) for _, groups in parts) - 1)
    return replace(first, stage=stage, beside=beside, launch_ps=latest.launch_ps, launch=latest.launch)


def _alike(stages: Sequence[Stage]) -> bool:
    """Return whether all stages have as many steps, which wait for the same ones and are repeated as often."""
    if len(stages) == 1:
        return True
    shapes = [[(step.times, step.after, step.after_sent) for step in stage.steps] for stage in stages]
    switched = any(step.round.pattern.through_switch for stage in stages for step in stage.steps[:1])
    return not switched and all(shape == shapes[0] for shape in shapes) and len({stage.chain for stage in stages}) == 1


def _merged(sides: Sequence[tuple[Stage, Ints]], ranks: int) -> Stage:
    """Return stages as one, each run by groups whose first ranks have these numbers."""
    stages = [stage for stage, _ in sides]
    merging = _Merging([starts for _, starts in sides])
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
            np.concatenate([_numbered(one.message, of) for one, of in each]),
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


class _Merging:
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
        if len(self._known) >= _KEPT_PATTERNS:
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

    def whole(self, wholes: Sequence[Whole]) -> Whole | None:
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
        return Whole(sent, np.concatenate(first), wholes[0].times, np.concatenate(line))

    def _pattern(self, patterns: tuple[Pattern, ...]) -> Pattern:
        if patterns not in self._known:
            self._known[patterns] = self._make(patterns)
        return self._known[patterns]

    def _make(self, patterns: tuple[Pattern, ...]) -> Pattern:
        added = [each.overheads for each in patterns if each.overheads is not None]
        overheads = _overheads(added, self._starts) if len(added) == len(patterns) else None
        if patterns[0].through_switch:
            return replace(_switched(patterns[0], self._starts[0]), overheads=overheads)
        src, dst = (
            np.concatenate([_numbered(side, starts) for side, starts in zip(sides, self._starts, strict=True)])
            for sides in ([each.src for each in patterns], [each.dst for each in patterns])
        )
        parts = [each.part_of for each in patterns if each.part_of is not None]
        if len(parts) < len(patterns):
            return Pattern(src, dst, overheads=overheads)
        wholes = tuple(whole for whole, _ in parts)
        if wholes not in self._wholes:
            self._wholes[wholes] = self._make(wholes)
        numbers = self.messages([whole.messages for whole in wholes])
        chosen = [_numbered(taken, of) for (_, taken), of in zip(parts, numbers, strict=True)]
        return Pattern(src, dst, overheads=overheads, part_of=(self._wholes[wholes], np.concatenate(chosen)))


def _numbered(own: Ints, starts: Ints) -> Ints:
    """Return numbers of one group as those of all, group by group."""
    return (starts[:, None] + own).reshape(-1)


def _switched(pattern: Pattern, starts: Ints) -> Pattern:
    """Return the pattern of groups of which each has a message through its switches."""

    def of_all(own: Ints) -> Ints:
        return _numbered(own, starts).reshape(len(starts), -1).T.reshape(-1)

    legs = pattern.legs
    if legs is not None:
        legs = Legs(of_all(legs.src), of_all(legs.dst), legs.share, legs.depth)
    return Pattern(of_all(pattern.src), of_all(pattern.dst), through_switch=True, legs=legs, groups=len(starts))


def _overheads(added: Sequence[Overheads], starts: Sequence[Ints]) -> Overheads:
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
        replace(each.clock, src=each.clock.src + of[0], dst=each.clock.dst + of[0])
        for each, of in zip(added, starts, strict=True)
        if each.clock is not None
    ]
    return replace(merged, clock=max(clocks, key=lambda clock: clock.ps) if len(clocks) == len(added) else None)
