"""Where the time of an iteration went: every picosecond of a rank belongs to one part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.replay.iteration.parts import Parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Ints, Mask
    from s2sim.replay.iteration.device import Busy


@dataclass(frozen=True, slots=True)
class Spent:
    """All that happened on one rank.

    Attributes
    ----------
    busy : tuple of Busy
        What its GPU did, and the waits of its host that kept it from that.
    in_flight, waiting : tuples of (int, int)
        From when the last rank had posted a call until this rank was done with it, and from when this rank had posted
        it until the last one had or this one was done, whichever came first; picoseconds.
    ready : tuple of (int, int, int)
        The number of an exchange, a bucket, and when all of that was there; picoseconds.
    begun_ps : tuple of int
        When each iteration began, and when the last was over.
    rank : int
        Which one it is, or the first of those that did the same.
    """

    busy: tuple[Busy, ...]
    in_flight: tuple[tuple[int, int], ...]
    waiting: tuple[tuple[int, int], ...]
    ready: tuple[tuple[int, int, int], ...]
    begun_ps: tuple[int, ...]
    rank: int


def where_time_went(spent: Spent, bounds_ps: Sequence[int], steps: int = 1) -> list[Parts]:
    """Return the parts of what lies between neighbouring bounds, increasing instants, as means over so many steps.

    Compute comes first, then work of the codec; what is left is communication where a collective is in flight or the
    host waits for the GPU on its behalf, and waiting where this rank has posted what others have not. Where there is
    nothing of these, a rank prepares what it will send.
    """
    busy: dict[str, list[tuple[int, int]]] = {what: [] for what in _KINDS}
    for each in spent.busy:
        busy[each.what].append((each.start_ps, each.end_ps))
    intervals = {what: _pairs(found) for what, found in busy.items()}
    flying, waiting = _pairs(spent.in_flight), _pairs(spent.waiting)
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

    found = {what: take(_covered(intervals[what], points)) for what in _KINDS[:4]}
    in_flight = _covered(flying, points)
    hidden = summed(in_flight & ~left)
    exposed = take(in_flight | _covered(intervals["host"], points))
    waited = take(_covered(waiting, points))
    exposed = exposed + summed(left)
    columns = (found["forward"], found["backward"], found["codec"], exposed, waited, found["optimizer"], hidden)
    return [Parts(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


_KINDS = ("forward", "backward", "optimizer", "codec", "host")


def _pairs(intervals: Sequence[tuple[int, int]]) -> Ints:
    """Return intervals as int64 of shape (n, 2), without those that take no time."""
    pairs = np.array(intervals, np.int64).reshape(-1, 2)
    return pairs[pairs[:, 0] < pairs[:, 1]]


def _covered(intervals: Ints, points: Ints) -> Mask:
    """Return which stretches between neighbouring points, int64 of shape (k,), lie in any of some intervals."""
    change = np.zeros(len(points), np.int64)
    at = np.searchsorted(points, np.clip(intervals, points[0], points[-1]))
    np.add.at(change, at[:, 0], 1)
    np.add.at(change, at[:, 1], -1)
    return np.cumsum(change)[:-1] > 0
