"""Latency, bytes and limits that a communication library adds to the messages of a pattern.

What clocks the rounds of rings and pipelines in which every rank waits for its own messages alone.

Rounds of a schedule are clocked by the slowest message of each. Where a message only ever waits for what its sender
got before, latencies of unlike hops do not add up so: a ring meets each latency of its cycle once a turn, a pipeline
each of its way once in all. Their rounds follow each other at a mean instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import ceil
from operator import add, mul
from statistics import fmean
from typing import TypeAlias

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.collectives.schedules.schedule import CombinedRound, Pattern
from s2sim.errors import S2SimError
from s2sim.topology.cluster import Cluster
from s2sim.topology.graph import Routes


@dataclass(frozen=True, slots=True, eq=False)
class RoundLatency:
    """What rounds take beside their bytes: the latencies of some messages added up, spread over some rounds."""

    ps: int  # Picoseconds of one round
    # src, dst: ranks of these messages
    src: Ints
    dst: Ints
    rounds: int  # Over how many rounds their latencies are spread
    latencies: tuple[MessageConstants, ...]  # What a library adds to them


def ring_round_latency(
    pattern: Pattern, latency_ps: Ints, made_of: tuple[MessageConstants, ...] = ()
) -> RoundLatency | None:
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
    made_of : tuple of MessageConstants
        What a library has added to them.

    Examples
    --------
    >>> from s2sim.collectives.schedules.schedule import Pattern
    >>> around = Pattern(np.array([0, 1, 2]), np.array([1, 2, 0]))
    >>> ring_round_latency(around, np.array([1, 1, 7])).ps
    3
    """
    ranks = len(np.unique(pattern.src))
    if pattern.through_switch or not ranks or pattern.messages % ranks:
        return None
    channels = (each.reshape(-1, ranks) for each in (pattern.src, pattern.dst, latency_ps))
    found = [_maximum_mean_cycle(*channel) for channel in zip(*channels, strict=True)]
    known = [(*cycle, channel * ranks) for channel, cycle in enumerate(found) if cycle is not None]
    if len(known) < len(found):
        return None
    _, members, first = max(known, key=lambda cycle: cycle[0])
    return _round_latency(pattern, first + np.array(members), len(members), latency_ps, made_of)


def pipeline_round_latency(
    whole: CombinedRound, latency_ps: Ints, made_of: tuple[MessageConstants, ...] = ()
) -> RoundLatency:
    """Return what clocks the rounds of a pipeline: the latencies on its longest way, over all of its rounds.

    A piece meets the latency of each hop on its way once, and pieces follow each other on a hop as soon as bytes let
    them: K pieces over hops of latency L take the sum of L and the bytes of all rounds.

    Parameters
    ----------
    whole : Whole
        The messages of all rounds.
    latency_ps : int64 array, shape (m,)
        Of each, picoseconds.
    made_of : tuple of MessageConstants
        What a library has added to them.
    """
    rounds = int(whole.first.max()) + whole.times
    return _round_latency(whole.round.pattern, _longest_latency_path(whole, latency_ps), rounds, latency_ps, made_of)


def _round_latency(
    pattern: Pattern, messages: Ints, rounds: int, latency_ps: Ints, made_of: tuple[MessageConstants, ...]
) -> RoundLatency:
    taken = tuple(each.take(messages) for each in made_of)
    ps = ceil(int(latency_ps[messages].sum()) / rounds)
    return RoundLatency(ps, pattern.src[messages], pattern.dst[messages], rounds, taken)


def _maximum_mean_cycle(src: Ints, dst: Ints, latency_ps: Ints) -> tuple[float, list[int]] | None:
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


def _longest_latency_path(whole: CombinedRound, latency_ps: Ints) -> Ints:
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


@dataclass(frozen=True, slots=True, eq=False)
class Overheads:
    """The overheads of each message of a pattern; a library makes nothing faster, so that lower bounds stay bounds."""

    latency_ps: Ints  # Picoseconds beside the latency of the message's way
    factor: Floats  # Bytes on the network for each byte of the message, at least 1
    limit_Bps: Floats  # Most that the network carries of each message; infinite where nothing limits it
    # What passes from one round to the next beside what bytes take, in place of all latencies, where those of a round
    # do not clock the next
    round_latency: RoundLatency | None = None
    # latencies, shares, limits: what the latency is the sum of, the factor one over the product of, and the limit made
    # of, by constants; empty where a library does not tell
    latencies: tuple[MessageConstants, ...] = ()
    shares: tuple[MessageConstants, ...] = ()
    limits: tuple[MessageConstants, ...] = ()

    def __post_init__(self) -> None:
        if (self.latency_ps < 0).any() or (self.factor < 1).any() or not (self.limit_Bps > 0).all():
            raise S2SimError("a library adds no negative latency, sends no fewer bytes, and carries more than nothing")

    @property
    def key(self) -> bytes:
        """The same for the same overheads."""
        clock = b"" if self.round_latency is None else str(self.round_latency.ps).encode()
        return b"".join(each.tobytes() for each in (self.latency_ps, self.factor, self.limit_Bps)) + clock

    def take(self, chosen: Ints) -> Overheads:
        """Return those of some messages, int64 of shape (k,), with no clock."""
        made_of = (tuple(each.take(chosen) for each in made) for made in (self.latencies, self.shares, self.limits))
        return Overheads(self.latency_ps[chosen], self.factor[chosen], self.limit_Bps[chosen], None, *made_of)

    def added_to(self, routes: Routes) -> Routes:
        """Return routes of the messages, one each, with the latency and the limits."""
        latency_ps = routes.latency_ps + self.latency_ps
        if self.round_latency is not None:
            latency_ps = np.full_like(latency_ps, self.round_latency.ps)
        return replace(routes, latency_ps=latency_ps, limit_Bps=self.limit_Bps)


def overheads_of(
    latencies: Sequence[MessageConstants], shares: Sequence[MessageConstants], limits: Sequence[MessageConstants]
) -> Overheads:
    """Return the sum of latencies, one over the product of shares, and the one limit, with what they are made of."""
    latency_ps = reduce(add, (each.each for each in latencies)).astype(np.int64)
    share = reduce(mul, (each.each for each in shares))
    (limit,) = limits
    return Overheads(latency_ps, 1 / share, limit.each, None, tuple(latencies), tuple(shares), tuple(limits))


def inside_node(cluster: Cluster, pattern: Pattern) -> Mask:
    """Return which messages of the pattern stay inside a node, bool of shape (m,)."""
    if pattern.through_switch:
        return np.full(pattern.messages, len(np.unique(cluster.node_of_rank)) == 1)
    inside: Mask = cluster.node_of_rank[pattern.src] == cluster.node_of_rank[pattern.dst]
    return inside


Powers: TypeAlias = tuple[tuple[str, int], ...]
"""Constants by their names in a library's file, with the power of each: +1 for a latency, -1 for a share of a rate."""


@dataclass(frozen=True, slots=True, eq=False)
class MessageConstants:
    """A latency, share or limit of each message, which is one of a few values."""

    kind: str  # What it is, in words: ``"hop"``, ``"fill"``, ``"limit"`` ..
    powers: tuple[Powers, ...]  # What each value is proportional to; none where no constant counts
    values: Floats  # Whole picoseconds, bytes per second, or shares
    row: Ints  # Which value each message has
    times: int = 1  # How often each message has it

    @property
    def each(self) -> Floats:
        """The quantity of each message, of shape (m,)."""
        taken: Floats = self.values[self.row]
        return taken if self.times == 1 else taken * self.times

    def take(self, chosen: Ints) -> MessageConstants:
        """Return that of some messages, int64 of shape (k,)."""
        return replace(self, row=self.row[chosen])
