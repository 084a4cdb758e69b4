"""Latency per round of rings and pipelines, in which a rank waits for its own messages only.

Over several rounds the largest latency does not count once per round: a ring passes each latency of its cycle once per
turn, a pipeline each latency of its path once. Rounds take a mean latency instead.
"""

from math import ceil
from statistics import fmean

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.collectives.schedules.overheads import MessageConstants, RoundLatency
from s2sim.collectives.schedules.schedule import CombinedRound, Pattern
from s2sim.topology.cluster import Cluster


def ring_round_latency(
    pattern: Pattern, latency_ps: Ints, made_of: tuple[MessageConstants, ...] = ()
) -> RoundLatency | None:
    """Return the latency of rounds in which each rank of a ring sends to the next; None if messages form no rings.

    If in every round each rank sends to one rank, receives from one and forwards what it has received, rounds take the
    largest mean latency over a cycle, not the largest latency (F. Baccelli et al., "Synchronization and linearity",
    1992, theorem 3.23: the maximum cycle mean). A pattern lists its channels in order, with a message of each rank.
    ``latency_ps`` is int64 of shape (m,); ``made_of`` are the parts of it that a library has added.

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
    whole: CombinedRound,
    latency_ps: Ints,
    made_of: tuple[MessageConstants, ...] = (),
    waits: int = 0,
    waits_ps: tuple[Ints, tuple[MessageConstants, ...]] | None = None,
) -> RoundLatency:
    """Return the latency per round of a pipeline: the latencies on its longest path, spread over all rounds.

    A chunk passes the latency of each hop once, and chunks follow each other on a hop as soon as bytes permit: K chunks
    over hops of latency L take the sum of L and the bytes of all rounds. So many of them as ``waits`` says take the
    longest of ``waits_ps`` besides, picoseconds of shape (m,) and the parts of them that a library has added. Other
    parameters are as of `ring_round_latency`.
    """
    # The slowest path of a chunk: a rank forwards what it received in an earlier round of the same line.
    pattern, ranks = whole.round.pattern, int(max(whole.round.pattern.src.max(), whole.round.pattern.dst.max())) + 1
    sender, receiver = whole.line * ranks + pattern.src, whole.line * ranks + pattern.dst
    ready_ps, ends_ps = np.zeros((int(whole.line.max()) + 1) * ranks, np.int64), np.zeros(len(latency_ps), np.int64)
    order = np.argsort(whole.first, kind="stable")
    for together in np.split(order, np.flatnonzero(np.diff(whole.first[order])) + 1):
        ends_ps[together] = ready_ps[sender[together]] + latency_ps[together]
        np.maximum.at(ready_ps, receiver[together], ends_ps[together])
    at = int(np.argmax(ends_ps))
    path = [at]
    while start_ps := int(ends_ps[at] - latency_ps[at]):
        at = int(np.argmax((receiver == sender[at]) & (ends_ps == start_ps) & (whole.first < whole.first[at])))
        path.append(at)
    rounds = int(whole.first.max()) + whole.times
    found = _round_latency(pattern, np.array(path[::-1], np.int64), rounds, latency_ps, made_of)
    if not waits or waits_ps is None:
        return found
    of_hops_ps, added = waits_ps
    again = np.full(waits, max(path, key=lambda hop: int(of_hops_ps[hop])))
    more = _round_latency(pattern, again, rounds, of_hops_ps, added)
    src, dst = np.concatenate([found.src, more.src]), np.concatenate([found.dst, more.dst])
    return RoundLatency(found.ps + more.ps, src, dst, rounds, found.latencies + more.latencies)


def _round_latency(
    pattern: Pattern, messages: Ints, rounds: int, latency_ps: Ints, made_of: tuple[MessageConstants, ...]
) -> RoundLatency:
    taken = tuple(each.take(messages) for each in made_of)
    ps = ceil(int(latency_ps[messages].sum()) / rounds)
    return RoundLatency(ps, pattern.src[messages], pattern.dst[messages], rounds, taken)


def _maximum_mean_cycle(src: Ints, dst: Ints, latency_ps: Ints) -> tuple[float, list[int]] | None:
    """Return the largest mean latency over the cycles of a permutation, and its members; None for no permutation."""
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


def inside_node(cluster: Cluster, pattern: Pattern) -> Mask:
    """Return a mask of the messages inside a node, bool of shape (m,)."""
    if pattern.through_switch:
        return np.full(pattern.messages, cluster.nodes_used == 1)
    inside: Mask = cluster.node_of_rank[pattern.src] == cluster.node_of_rank[pattern.dst]
    return inside
