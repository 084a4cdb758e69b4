"""The cheapest combination that meets a target, by branch and bound over boxes of combinations.

Along monotone axes, the dearer levels of which are never slower, a box has no solution if its dearest corner misses the
target, and none cheaper than its cheapest corner if that meets it. Axes count as monotone until measured times
contradict that; then the search is repeated without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import pairwise, product
from math import inf

Point = tuple[int, ...]
"""The level of each axis."""

# Relative: times are rounded up to whole picoseconds, round by round.
_EQUAL = 1e-6


class CheapestSearch:
    """The search over axes, of which level 0 is as things are.

    ``prices`` are those of each level of each axis, which add up; ``times`` returns the time of a combination, infinity
    where it cannot be used, and is called once for each; ``target`` is the longest time that is allowed.
    """

    def __init__(self, prices: Sequence[Sequence[float]], times: Callable[[Point], float], target: float) -> None:
        self.prices = [list(axis) for axis in prices]
        self.target = target
        self.tried: dict[Point, float] = {}
        self._times = times
        self.monotone: set[int] = set()

    def time(self, point: Point) -> float:
        """Return the time of a combination."""
        if point not in self.tried:
            self.tried[point] = self._times(point)
        return self.tried[point]

    def price(self, point: Point) -> float:
        """Return the price of a combination."""
        return sum(axis[level] for axis, level in zip(self.prices, point, strict=True))

    def run(self) -> Point | None:
        """Return the cheapest combination that meets the target, of equally cheap ones the quickest; None if none."""
        start = (0,) * len(self.prices)
        self.monotone = {axis for axis in range(len(self.prices)) if self._falls_along(axis, start)}
        while True:
            best = self._search()
            wrong = self._contradicted()
            if not wrong:
                return best
            self.monotone -= wrong

    def _falls_along(self, axis: int, start: Point) -> bool:
        """Return whether each level costs more than the one before and is no slower, with all else as it is."""
        if len(self.prices[axis]) == 1 or any(high <= low for low, high in pairwise(self.prices[axis])):
            return False
        times = [self.time((*start[:axis], level, *start[axis + 1 :])) for level in range(len(self.prices[axis]))]
        return all(late <= early * (1 + _EQUAL) for early, late in pairwise(times))

    def _contradicted(self) -> set[int]:
        """Return the axes along which one combination that was tried is slower than a cheaper one."""
        wrong: set[int] = set()
        points = list(self.tried)
        for low, high in product(points, points):
            differ = {axis for axis, (one, other) in enumerate(zip(low, high, strict=True)) if one != other}
            above = all(high[axis] > low[axis] for axis in differ)
            if differ and above and differ <= self.monotone and self.tried[high] > self.tried[low] * (1 + _EQUAL):
                wrong |= differ
        return wrong

    def _search(self) -> Point | None:
        levels = [len(axis) for axis in self.prices]
        fixed = [range(1) if axis in self.monotone else range(count) for axis, count in enumerate(levels)]
        boxes: list[tuple[float, Point, Point]] = []
        for low in product(*fixed):
            high = tuple(
                count - 1 if axis in self.monotone else level
                for axis, (level, count) in enumerate(zip(low, levels, strict=True))
            )
            heappush(boxes, (self.price(low), low, high))
        best: tuple[float, float, Point] | None = None
        while boxes:
            price, low, high = heappop(boxes)
            if best is not None and price > best[0]:
                break
            if self.time(high) > self.target:
                continue
            if self.time(low) <= self.target:
                best = min(filter(None, [best, (price, self.time(low), low)]))
                continue
            axis = max(range(len(levels)), key=lambda axis: high[axis] - low[axis])
            middle = (low[axis] + high[axis]) // 2
            heappush(boxes, (price, low, (*high[:axis], middle, *high[axis + 1 :])))
            above = (*low[:axis], middle + 1, *low[axis + 1 :])
            heappush(boxes, (self.price(above), above, high))
        return None if best is None else best[2]


def last_that_holds(holds: Callable[[int], bool], most: int) -> int | None:
    """Return a number from 1 to ``most`` for which ``holds`` is true and for its successor not; None if not for 1.

    Doubles as long as it holds, then bisects: all numbers up to it, if it ceases to hold once.
    """
    if not holds(1):
        return None
    low = 1
    while low < most and holds(min(2 * low, most)):
        low = min(2 * low, most)
    high = min(2 * low, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def pareto(points: Sequence[tuple[float, ...]]) -> list[int]:
    """Return the places of points that no other one equals or betters in everything, in increasing order of the first.

    >>> pareto([(1.0, 3.0), (2.0, 2.0), (2.0, 3.0), (inf, 0.0)])
    [0, 1]
    """
    finite = [place for place, point in enumerate(points) if inf not in point]
    kept: list[int] = []
    for place in sorted(finite, key=points.__getitem__):
        own = points[place]
        if not any(all(a <= b for a, b in zip(points[other], own, strict=True)) for other in kept):
            kept.append(place)
    return kept
