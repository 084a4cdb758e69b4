"""Where the time of an iteration went: every picosecond of a rank belongs to one part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.replay.iteration.parts import Parts

if TYPE_CHECKING:
    from collections.abc import Iterable

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
        From when the last rank had posted a call until that was done, and from when this rank had posted it until the
        last one had; picoseconds.
    begun_ps : tuple of int
        When each iteration began, and when the last was over.
    rank : int
        Which one it is, or the first of those that did the same.
    """

    busy: tuple[Busy, ...]
    in_flight: tuple[tuple[int, int], ...]
    waiting: tuple[tuple[int, int], ...]
    begun_ps: tuple[int, ...]
    rank: int


def where_time_went(spent: Spent, start_ps: int, end_ps: int, steps: int = 1) -> Parts:
    """Return the parts of what lies between two instants, as means over so many steps.

    Compute comes first, then work of the codec; what is left is communication where a collective is in flight or the
    host waits for the GPU on its behalf, and waiting where this rank has posted what others have not.
    """
    intervals = {what: [(b.start_ps, b.end_ps) for b in spent.busy if b.what == what] for what in _KINDS}
    flying, waiting = spent.in_flight, spent.waiting
    edges = [
        start_ps,
        end_ps,
        *(edge for each in (*intervals.values(), flying, waiting) for pair in each for edge in pair),
    ]
    points = np.unique(np.clip(np.array(edges, np.int64), start_ps, end_ps))
    lengths = np.diff(points)
    left = np.ones(len(lengths), np.bool_)

    def take(covered: Mask) -> int:
        nonlocal left
        own = left & covered
        left &= ~covered
        return int(lengths[own].sum())

    found = {what: take(_covered(intervals[what], points)) for what in _KINDS[:4]}
    in_flight = _covered(flying, points)
    hidden = int(lengths[in_flight & ~left].sum())
    exposed = take(in_flight | _covered(intervals["host"], points))
    waited = take(_covered(waiting, points))
    # A rank that neither computes nor waits for others prepares what it will send.
    exposed += int(lengths[left].sum())
    return Parts(
        forward=found["forward"] // steps,
        backward=found["backward"] // steps,
        codec=found["codec"] // steps,
        exposed_communication=exposed // steps,
        waiting=waited // steps,
        optimizer=found["optimizer"] // steps,
        hidden_communication=hidden // steps,
    )


_KINDS = ("forward", "backward", "optimizer", "codec", "host")


def _covered(intervals: Iterable[tuple[int, int]], points: Ints) -> Mask:
    """Return which stretches between neighbouring points, int64 of shape (k,), lie in any of some intervals."""
    change = np.zeros(len(points), np.int64)
    pairs = np.array([pair for pair in intervals if pair[0] < pair[1]], np.int64).reshape(-1, 2)
    at = np.searchsorted(points, np.clip(pairs, points[0], points[-1]))
    np.add.at(change, at[:, 0], 1)
    np.add.at(change, at[:, 1], -1)
    return np.cumsum(change)[:-1] > 0
