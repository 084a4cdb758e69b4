"""Groups of ranks that do the same at once, each on its own part of the buffer: what composed schedules are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.schedules.schedule import LazySteps, Pieces, Schedule, Stage, Step, traffic_of
from s2sim.errors import OptionError
from s2sim.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Floats, Ints
    from s2sim.collectives.schedules.demand import Demand


_MOST_AT_ONCE = 2**21
# Memory that routes and sharing of one message take, measured on a two-level fat tree with four links a way.
_MESSAGE_BYTES = 750


def check_at_once(algorithm: str, messages: int, instead: str) -> None:
    """Refuse rounds of more messages than memory holds; ``instead`` names an algorithm that sends fewer at once."""
    if messages > _MOST_AT_ONCE:
        needed = format_bytes(messages * _MESSAGE_BYTES)
        raise OptionError(
            f"{algorithm} sends {messages:,} messages at once, which takes about {needed} of memory, and at most "
            f"{_MOST_AT_ONCE:,} are run: take {instead}"
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
