"""Rings and lines through all GPUs of a mesh of NVLinks that together use its links as evenly as they can.

A ring in one order of the GPUs uses one link of each of them. Rings of other orders use the others: where rings share
no link, each carries its part of the data at the full rate of its links (edge-disjoint Hamiltonian cycles; of complete
graphs by Walecki's construction, see B. Alspach, "The wonderful Walecki construction", 2008).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s2sim.arrays import Ints

Lines: TypeAlias = tuple[tuple[int, ...], ...]
"""How many links join each two of n places: n rows of n, the same both ways."""

Order: TypeAlias = tuple[int, ...]

# Links without a switch join 8 GPUs, or 16: of more no rings are looked for.
_MOST_PLACES = 16
# More rings than eight GPUs have in any graph; of graphs with more no rings are looked for.
_MOST_CYCLES = 2520
_MOST_LINES = 5040
# Rings put into a packing and taken out again before fewer are tried, and orders begun before no more are looked for.
_MOST_STEPS, _MOST_BEGUN = 2000, 100_000


@lru_cache(maxsize=256)
def rings(lines: Lines) -> tuple[tuple[Order, int], ...]:
    """Return orders of all places that close to rings, and what share of the data each has: whole numbers, as parts.

    Every ring is there both ways round. None where links close no ring, or there are too many to look at.

    >>> rings(((0, 1, 1), (1, 0, 1), (1, 1, 0)))
    (((2, 0, 1), 1), ((2, 1, 0), 1))
    """
    places = len(lines)
    if not 2 <= places <= _MOST_PLACES or min(map(sum, lines)) == 0:
        return ()
    if places == 2:
        return (((0, 1), 1),)
    found = _walecki(places) if _complete(lines) else _packed(lines)
    shares = {order: found.count(order) for order in found}
    return tuple((way, share) for order, share in shares.items() for way in (order, (order[0], *reversed(order[1:]))))


@lru_cache(maxsize=256)
def lines_through(lines: Lines, starts: Order, end_of: Order) -> tuple[Order | None, ...]:
    """Return an order of all places from each of ``starts`` on whose neighbours are joined; None where there is none.

    ``end_of`` says which interface each place uses. As few orders as can be end at the same one, and then as few as can
    be use the same link.
    """
    places = len(lines)
    if _complete(lines):
        # All differences between neighbours are unlike, so that turned orders share no link of an even number.
        zigzag = [(step + 1) // 2 * (1 if step % 2 else -1) % places for step in range(places)]
        return tuple(tuple((start + at) % places for at in zigzag) for start in starts)
    if places > _MOST_PLACES:
        return (None,) * len(starts)
    options = {start: list(_paths(lines, start, _MOST_LINES)) for start in dict.fromkeys(starts)}
    chosen: list[Order | None] = [options[start][0] if options[start] else None for start in starts]
    width = np.maximum(np.array(lines), 1)

    def badness(channel: int, option: Order) -> tuple[float, ...]:
        load = np.zeros(width.shape)
        ends = np.zeros(max(end_of) + 1)
        for order in (option, *(each for at, each in enumerate(chosen) if at != channel and each is not None)):
            load[order[:-1], order[1:]] += 1
            ends[end_of[order[-1]]] += 1
        return float(ends.max()), float((load / width).max()), float((load**2 / width).sum())

    # Each channel in turn takes what is best beside the others, twice.
    for channel in (*range(len(starts)), *range(len(starts))):
        if chosen[channel] is not None and len(starts) > 1:
            chosen[channel] = min(options[starts[channel]], key=lambda option: badness(channel, option))
    return tuple(chosen)


def _complete(lines: Lines) -> bool:
    """Return whether all pairs are joined by as many links."""
    return len({lines[one][other] for one in range(len(lines)) for other in range(one)}) == 1


def _walecki(places: int) -> list[Order]:
    """Return rings that use each link of a complete graph alike: once of an odd number of places, else twice."""
    around = places - 1
    zigzag = [(step + 1) // 2 * (1 if step % 2 else -1) for step in range(around)]
    turns = around if places % 2 == 0 else around // 2
    return [(around, *((turn + at) % around for at in zigzag)) for turn in range(turns)]


def _packed(lines: Lines) -> list[Order]:
    """Return as many rings as are found that share no link, or each link with one other, counted as halves of it.

    No more than half of the links of the place with fewest.
    """
    cycles = [order for order in _paths(lines, 0, 2 * _MOST_CYCLES + 1) if lines[order[-1]][0]]
    cycles = [order for order in cycles if order[1] < order[-1]]
    if len(cycles) > _MOST_CYCLES:
        return []
    for halves in range(min(map(sum, lines)), 0, -1):
        doubled = halves % 2
        room = np.array(lines) * (1 + doubled)
        found = _pack(cycles, room, halves if doubled else halves // 2)
        if found:
            return found
    return []


def _pack(cycles: Sequence[Order], room: Ints, wanted: int) -> list[Order]:
    """Return ``wanted`` of the rings, some perhaps several times, that together use no link beyond its room.

    Empty where none are found; those whose links have most room are tried first.
    """
    if not cycles:
        return []
    from_, to = (np.array([[order[i - shift] for i in range(len(order))] for order in cycles]) for shift in (1, 0))
    steps = count()

    def search(room: Ints, left: int) -> list[Order] | None:
        if left == 0:
            return []
        width = room[from_, to]
        fitting = np.flatnonzero((width > 0).all(axis=1))
        roomiest = np.lexsort((-width[fitting].sum(axis=1), -width[fitting].min(axis=1)))
        for at in fitting[roomiest]:
            if next(steps) > _MOST_STEPS:
                return None
            after = room.copy()
            after[from_[at], to[at]] -= 1
            after[to[at], from_[at]] -= 1
            if (after.sum(axis=1) >= 2 * (left - 1)).all() and (rest := search(after, left - 1)) is not None:
                return [cycles[at], *rest]
        return None

    return search(room, wanted) or []


def _paths(lines: Lines, start: int, most: int) -> Iterator[Order]:
    """Yield orders of all places from ``start`` on whose neighbours are joined, the lowest numbers first."""
    places = len(lines)
    near = [[other for other in range(places) if lines[place][other]] for place in range(places)]
    yielded = begun = 0
    stack: list[Order] = [(start,)]
    while stack and yielded < most and begun < _MOST_BEGUN:
        order = stack.pop()
        begun += 1
        if len(order) == places:
            yielded += 1
            yield order
        stack += [(*order, other) for other in reversed(near[order[-1]]) if other not in order]
