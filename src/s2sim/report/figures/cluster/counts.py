"""Numbers of parallel links, each beside its line where nothing else stands."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from s2sim.report.figures.cluster.sizes import text_width

if TYPE_CHECKING:
    from s2sim.report.figures.cluster.arrangement import Plan
    from s2sim.report.figures.cluster.lines import Line

# Where on its line a number may stand, from the start, the best first.
_SHARES = (0.4, 0.6, 0.3, 0.7, 0.5, 0.25, 0.75, 0.35, 0.65, 0.2, 0.8)
_HEIGHT = 0.13

Box = tuple[float, float, float, float]


def count_text(count: int) -> str:
    """Return how often a link is there.

    >>> count_text(4)
    '4×'
    """
    return f"{count}\N{MULTIPLICATION SIGN}"


def place_counts(plan: Plan) -> list[tuple[float, float, str]]:
    """Return middle and text of the numbers; where lines are too dense for one it is left to the legend."""
    taken: list[Box] = [(item.x, item.y, item.width, item.height) for item in plan.items if item.kind != "group"]
    # Lines between frames run below them.
    frames: list[Box] = [(item.x, item.y, item.width, item.height) for item in plan.items if item.kind == "group"]
    placed = []
    for line, covered in chain(((line, frames) for line in plan.outer), ((line, []) for line in plan.inner)):
        if line.count < 2 or line.hidden:
            continue
        text = count_text(line.count)
        width = text_width(text) - 0.06
        for share in _SHARES:
            x, y = point(line, share)
            box = (x, y, width, _HEIGHT)
            if not any(_meet(box, other) for other in chain(taken, covered)):
                taken.append(box)
                placed.append((x, y, text))
                break
    return placed


def point(line: Line, share: float) -> tuple[float, float]:
    """Return the point at a share of a line, which is a parabola where it is bent."""
    (x, y), (end_x, end_y) = line.start, line.end
    return x + share * (end_x - x), y + share * (end_y - y) + 4 * share * (1 - share) * line.bend


def _meet(one: Box, other: Box) -> bool:
    return abs(one[0] - other[0]) * 2 < one[2] + other[2] and abs(one[1] - other[1]) * 2 < one[3] + other[3]
