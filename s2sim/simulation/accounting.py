"""Where the time of an iteration went: every picosecond of a rank belongs to one part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.simulation.communicator import CompletedCalls, Launch
from s2sim.simulation.device import BusyInterval
from s2sim.simulation.faults.fault import Effect


@dataclass(frozen=True, slots=True, eq=False)
class IterationSettings:
    """How iterations run."""

    slower: Floats  # How many times as long each rank's compute takes in each iteration; its length says how many run
    # Whether the next forward waits for all gradients, or a layer only for those of its own parameters
    waits_for_all: bool = True
    streams: int = 1  # Of each GPU: 1 where codec work stands between kernels of compute, 2 where it runs beside them
    # What a loop of the host over tensors takes for each, before a bucket is encoded and before it is decoded
    host_loop_ps: int = 0
    accumulate: int = 1  # Mini-batches before gradients are exchanged
    idle_ps: int = 0  # What ranks wait in each iteration for stages of a pipeline, before the last mini-batch


@dataclass(frozen=True, slots=True, eq=False)
class Iterations:
    """Training iterations in simulated time."""

    # Where the time went on the slowest rank, one a period of the exchange; means over its steps
    parts: tuple[IterationParts, ...]
    activity: RankActivity  # All that happened on that rank
    by_rank: tuple[RankActivity, ...]  # The same of each rank; ranks that did the same share one
    waiting_ps: float  # Mean over all ranks and iterations of waiting for others
    # launches, completed: all that went onto the network, and the calls
    launches: tuple[Launch, ...]
    completed: tuple[CompletedCalls, ...]
    effects: tuple[Effect, ...] = ()  # What faults did that do not last from the start on

    @property
    def typical(self) -> IterationParts:
        """That of the median length, of the steady state: the first is left out where there are several."""
        steady = self.parts[1:] or self.parts
        return sorted(steady, key=lambda parts: parts.iteration)[(len(steady) - 1) // 2]

    @property
    def spread_ps(self) -> tuple[float, float]:
        """The 5 and 95 % quantiles of the steady state's iterations."""
        steady = [parts.iteration for parts in self.parts[1:] or self.parts]
        low, high = np.quantile(steady, [0.05, 0.95])
        return float(low), float(high)


@dataclass(frozen=True, slots=True)
class IterationParts:
    """One iteration of one rank in integer picoseconds; all but hidden communication add up to it."""

    forward: int
    backward: int
    codec: int  # Encode and decode while no compute runs
    exposed_communication: int  # The GPU is idle; a collective of this rank is in flight or prepared by its library
    waiting: int  # The GPU is idle; this rank has posted what other ranks have not
    optimizer: int
    hidden_communication: int  # A collective of this rank is in flight during compute or codec

    @property
    def iteration(self) -> int:
        """All of it, from the beginning of forward until the next may begin."""
        exposed = self.codec + self.exposed_communication + self.waiting
        return self.forward + self.backward + exposed + self.optimizer


@dataclass(frozen=True, slots=True)
class RankActivity:
    """All that happened on one rank."""

    busy: tuple[BusyInterval, ...]  # What its GPU did, and the waits of its host that kept it from that
    # in_flight, waiting: from when the last rank had posted a call until this rank was done with it, and from when this
    # rank had posted it until the last one had or this one was done, whichever came first; picoseconds
    in_flight: tuple[tuple[int, int], ...]
    waiting: tuple[tuple[int, int], ...]
    # The number of an exchange, a bucket, and when all of that was there; picoseconds
    ready: tuple[tuple[int, int, int], ...]
    begun_ps: tuple[int, ...]  # When each iteration began, and when the last was over
    rank: int  # Which one it is, or the first of those that did the same


def time_breakdown(spent: RankActivity, bounds_ps: Sequence[int], steps: int = 1) -> list[IterationParts]:
    """Return mean parts of the spans between increasing instants, over so many steps.

    Compute counts first, then codec work, then communication (in flight, or a host wait for the GPU), then waiting for
    ranks that have not posted; the rest is preparation.
    """
    busy: dict[str, list[tuple[int, int]]] = {what: [] for what in _KINDS}
    for each in spent.busy:
        busy[each.what].append((each.start_ps, each.end_ps))
    intervals = {what: _as_intervals(found) for what, found in busy.items()}
    flying, waiting = _as_intervals(spent.in_flight), _as_intervals(spent.waiting)
    edges = [np.asarray(bounds_ps, np.int64), *(each.reshape(-1) for each in (*intervals.values(), flying, waiting))]
    points = np.unique(np.clip(np.concatenate(edges), bounds_ps[0], bounds_ps[-1]))
    lengths, left = np.diff(points), np.ones(len(points) - 1, np.bool_)
    first = np.searchsorted(points, bounds_ps[:-1])

    def summed(chosen: Mask) -> Ints:
        total = np.concatenate([[0], np.cumsum(np.where(chosen, lengths, 0))])
        return np.diff(total[[*first, len(lengths)]]) // steps

    def take(covered: Mask) -> Ints:
        nonlocal left
        own, left = left & covered, left & ~covered
        return summed(own)

    found = {what: take(_is_covered(intervals[what], points)) for what in _KINDS[:4]}
    in_flight = _is_covered(flying, points)
    hidden = summed(in_flight & ~left)
    exposed = take(in_flight | _is_covered(intervals["host"], points))
    waited = take(_is_covered(waiting, points))
    exposed = exposed + summed(left)
    columns = (found["forward"], found["backward"], found["codec"], exposed, waited, found["optimizer"], hidden)
    return [IterationParts(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


_KINDS = ("forward", "backward", "optimizer", "codec", "host")


def _as_intervals(intervals: Sequence[tuple[int, int]]) -> Ints:
    """Return intervals as int64 of shape (n, 2), without those that take no time."""
    pairs = np.array(intervals, np.int64).reshape(-1, 2)
    return pairs[pairs[:, 0] < pairs[:, 1]]


def _is_covered(intervals: Ints, points: Ints) -> Mask:
    """Return which stretches between neighbouring points, int64 of shape (k,), lie in any of some intervals."""
    change = np.zeros(len(points), np.int64)
    at = np.searchsorted(points, np.clip(intervals, points[0], points[-1]))
    np.add.at(change, at[:, 0], 1)
    np.add.at(change, at[:, 1], -1)
    return np.cumsum(change)[:-1] > 0
