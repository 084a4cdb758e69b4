"""What clocks the rounds of rings and pipelines in which every rank waits for its own messages alone.

Rounds of a schedule are clocked by the slowest message of each. Where a message only ever waits for what its sender
got before, latencies of unlike hops do not add up so: a ring meets each latency of its cycle once a turn, a pipeline
each of its way once in all. Their rounds follow each other at a mean instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.collectives.schedules.per_message import PerMessage
    from s2sim.collectives.schedules.schedule import Pattern, Whole


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """What rounds take beside their bytes: the latencies of some messages added up, spread over some rounds.

    Attributes
    ----------
    ps : int
        Picoseconds of one round.
    src, dst : int64 arrays, shape (m,)
        Ranks of these messages.
    rounds : int
        Over how many rounds their latencies are spread.
    latencies : tuple of PerMessage
        What a library adds to them.
    """

    ps: int
    src: Ints
    dst: Ints
    rounds: int
    latencies: tuple[PerMessage, ...]


def ring_clock(pattern: Pattern, latency_ps: Ints, made_of: tuple[PerMessage, ...] = ()) -> Clock | None:
    """Return what clocks rounds in which each rank of a ring sends to the next; None where they are no rings.

    If in every round each rank sends to one other and receives from one, and passes on what it has received, a message
    that goes around meets every latency of its cycle once: rounds follow each other at the largest mean over a cycle,
    not at the largest latency (F. Baccelli et al., "Synchronization and linearity", 1992, theorem 3.23: the maximum
    cycle mean). Channels stand one after the other in a pattern, with a message of each rank.

    Parameters
    ----------
    pattern : Pattern
        The messages of a round.
    latency_ps : int64 array, shape (m,)
        Of each, picoseconds.
    made_of : tuple of PerMessage
        What a library has added to them.

    Examples
    --------
    >>> from s2sim.collectives.schedules.schedule import Pattern
    >>> around = Pattern(np.array([0, 1, 2]), np.array([1, 2, 0]))
    >>> ring_clock(around, np.array([1, 1, 7])).ps
    3
    """
    ranks = len(np.unique(pattern.src))
    if pattern.through_switch or not ranks or pattern.messages % ranks:
        return None
    channels = (each.reshape(-1, ranks) for each in (pattern.src, pattern.dst, latency_ps))
    found = [_slowest_cycle(*channel) for channel in zip(*channels, strict=True)]
    known = [(*cycle, channel * ranks) for channel, cycle in enumerate(found) if cycle is not None]
    if len(known) < len(found):
        return None
    _, members, first = max(known, key=lambda cycle: cycle[0])
    return _clock(pattern, first + np.array(members), len(members), latency_ps, made_of)


def pipeline_clock(whole: Whole, latency_ps: Ints, made_of: tuple[PerMessage, ...] = ()) -> Clock:
    """Return what clocks the rounds of a pipeline: the latencies on its longest way, over all of its rounds.

    A piece meets the latency of each hop on its way once, and pieces follow each other on a hop as soon as bytes let
    them: K pieces over hops of latency L take the sum of L and the bytes of all rounds.

    Parameters
    ----------
    whole : Whole
        The messages of all rounds.
    latency_ps : int64 array, shape (m,)
        Of each, picoseconds.
    made_of : tuple of PerMessage
        What a library has added to them.
    """
    rounds = int(whole.first.max()) + whole.times
    return _clock(whole.round.pattern, _longest_way(whole, latency_ps), rounds, latency_ps, made_of)


def _clock(pattern: Pattern, messages: Ints, rounds: int, latency_ps: Ints, made_of: tuple[PerMessage, ...]) -> Clock:
    taken = tuple(each.take(messages) for each in made_of)
    ps = ceil(int(latency_ps[messages].sum()) / rounds)
    return Clock(ps, pattern.src[messages], pattern.dst[messages], rounds, taken)


def _slowest_cycle(src: Ints, dst: Ints, latency_ps: Ints) -> tuple[float, list[int]] | None:
    """Return the largest mean latency over the cycles of a permutation, and the members of that; None if it is none."""
    order = np.argsort(src)
    if not np.array_equal(src[order], np.sort(dst)):
        return None
    following = order[np.searchsorted(src[order], dst)].tolist()
    latencies = latency_ps.tolist()
    cycles = []
    left = set(range(len(following)))
    while left:
        first = at = left.pop()
        cycle = [at]
        while (at := following[at]) != first:
            left.discard(at)
            cycle.append(at)
        cycles.append((fmean(latencies[at] for at in cycle), cycle))
    return max(cycles, key=lambda cycle: cycle[0])


def _longest_way(whole: Whole, latency_ps: Ints) -> Ints:
    """Return the messages, one after the other, whose latencies a piece on its slowest way meets.

    A rank sends what it got in an earlier round of the same line.
    """
    pattern, ranks = whole.round.pattern, int(max(whole.round.pattern.src.max(), whole.round.pattern.dst.max())) + 1
    sender, receiver = whole.line * ranks + pattern.src, whole.line * ranks + pattern.dst
    ready_ps, ends_ps = np.zeros((int(whole.line.max()) + 1) * ranks, np.int64), np.zeros(len(latency_ps), np.int64)
    order = np.argsort(whole.first, kind="stable")
    for together in np.split(order, np.flatnonzero(np.diff(whole.first[order])) + 1):
        ends_ps[together] = ready_ps[sender[together]] + latency_ps[together]
        np.maximum.at(ready_ps, receiver[together], ends_ps[together])
    at = int(np.argmax(ends_ps))
    way = [at]
    while start_ps := int(ends_ps[at] - latency_ps[at]):
        before = (receiver == sender[at]) & (ends_ps == start_ps) & (whole.first < whole.first[at])
        at = int(np.argmax(before))
        way.append(at)
    return np.array(way[::-1], np.int64)
