"""The lines of a picture of a cluster: links between the same two boxes become one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s2sim.arrays import Ints, Mask
    from s2sim.report.figures.cluster.canvas import Item
    from s2sim.report.figures.cluster.graph import Parts

# Inches between links of several classes that join the same two boxes.
_ASIDE = 0.06
_LEAST_BEND, _MOST_BEND = 0.1, 0.45


@dataclass(frozen=True, slots=True)
class Line:
    """One or several parallel links between two boxes, in inches.

    Attributes
    ----------
    rate_Bps : float
        Of the fastest.
    count : int
        Parallel links, one way.
    hidden : bool
        Whether it stands for links of parts that are left out.
    bend : float
        Inches by which its middle is above the straight line.
    """

    start: tuple[float, float]
    end: tuple[float, float]
    link_class: int
    rate_Bps: float
    count: int
    hidden: bool = False
    bend: float = 0.0


def bundles(parts: Parts, which: Mask, thing_of: Ints) -> Iterator[tuple[int, int, int, float, int]]:
    """Yield what joins any two things: their numbers, the class of the links, the rate of one, and how many one way.

    Parameters
    ----------
    thing_of : int64 array, shape (V,)
        What each vertex belongs to; -1 for what is not shown.
    """
    one, other = thing_of[parts.tail], thing_of[parts.head]
    taken = which & (one >= 0) & (other >= 0) & (one != other)
    one, other = one[taken], other[taken]
    ends = np.stack([np.minimum(one, other), np.maximum(one, other), parts.link_class[taken]])
    rows, bundle = np.unique(ends, axis=1, return_inverse=True)
    bundle, number = bundle.ravel(), rows.shape[1]
    count = np.maximum(*(np.bincount(bundle[way], minlength=number) for way in (one < other, one > other)))
    rate_Bps = np.zeros(number)
    np.maximum.at(rate_Bps, bundle, parts.rate_Bps[taken])
    for (low, high, code), fastest, parallel in zip(rows.T.tolist(), rate_Bps.tolist(), count.tolist(), strict=True):
        yield low, high, code, fastest, parallel


def straight_lines(parts: Parts, which: Mask, box_of: Ints, items: Sequence[Item]) -> list[Line]:
    """Return lines from middle to middle."""
    return [
        Line((items[a].x, items[a].y), (items[b].x, items[b].y), code, rate_Bps, count, _is_hidden(items[a], items[b]))
        for a, b, code, rate_Bps, count in bundles(parts, which, box_of)
    ]


def level_lines(parts: Parts, which: Mask, box_of: Ints, items: Sequence[Item]) -> list[Line]:
    """Return lines that are straight between levels and bent between neighbours of one level."""
    joined = list(bundles(parts, which, box_of))
    several = Counter((a, b) for a, b, *_ in joined)
    drawn = Counter[tuple[int, int]]()
    lines = []
    for low, high, code, rate_Bps, count in joined:
        a, b, pair = items[low], items[high], (low, high)
        aside = _ASIDE * (drawn[pair] - (several[pair] - 1) / 2)
        drawn[pair] += 1
        if a.y == b.y:
            side = -1 if "gpu" in (a.kind, b.kind) else 1
            bend = side * min(_LEAST_BEND * (1 + abs(a.x - b.x)), _MOST_BEND)
            start, end = ((item.x, item.y + side * item.height / 2 + aside) for item in (a, b))
        else:
            bend = 0.0
            # From the upper edge of the lower box to the lower edge of the upper one.
            up = 1 if a.y < b.y else -1
            start = (_meets(a, b) + aside, a.y + up * a.height / 2)
            end = (_meets(b, a) + aside, b.y - up * b.height / 2)
        lines.append(Line(start, end, code, rate_Bps, count, _is_hidden(a, b), bend))
    return lines


def _is_hidden(a: Item, b: Item) -> bool:
    return "more" in (a.kind, b.kind)


def _meets(item: Item, other: Item) -> float:
    """Return where a line to ``other`` meets an item: a node, as wide as its GPUs, right above or below the other."""
    if item.kind == "node" and abs(other.x - item.x) <= item.width / 2:
        return other.x
    return item.x
