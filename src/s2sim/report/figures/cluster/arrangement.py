"""How the parts of a cluster stand to each other: in levels, round a ring, in a grid or on a circle."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import ceil, cos, pi, sin
from typing import TYPE_CHECKING

import numpy as np

from s2sim.report.figures.cluster.canvas import Canvas, Item
from s2sim.report.figures.cluster.graph import find_parts
from s2sim.report.figures.cluster.grid import put_grid
from s2sim.report.figures.cluster.lines import level_lines, straight_lines
from s2sim.report.figures.cluster.names import shortened

if TYPE_CHECKING:
    from s2sim.arrays import Ints, Mask
    from s2sim.report.figures.cluster.graph import ClusterGraph
    from s2sim.report.figures.cluster.lines import Line

# Inches: of the whole picture, of a ring, which is only as clear as it is small, and of one part of a ring or a circle.
_WIDTH, _RING_WIDTH, _RING_PART, _CIRCLE_PART = 19.0, 10.5, 2.5, 3.2
_RING_CHANNEL, _RING_GAP, _FRAME = 1.0, 0.3, 0.2
_MOST_ON_CIRCLE = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is drawn, in inches, and what must be said about it.

    Attributes
    ----------
    outer, inner : tuple of Line
        Links between the parts that are arranged, which run below their frames, and inside them.
    note : str
        How to read this arrangement; empty where nothing need be said.
    """

    items: tuple[Item, ...]
    outer: tuple[Line, ...]
    inner: tuple[Line, ...]
    classes: tuple[str, ...]
    note: str


@dataclass(frozen=True, slots=True, eq=False)
class _Wholes:
    """The parts of the highest level, of which there is one but where the highest switches are joined to each other."""

    canvas: Canvas
    names: list[int]
    number_of: Ints  # of each vertex, shape (V,)
    outer: Mask  # links between two of them, shape (M,)

    def shown(self, places: int) -> list[list[int]]:
        """Return the names in their order, those left out together in one place."""
        first, hidden, last = shortened(self.names, places)
        return [*([name] for name in first), *([hidden] if hidden else []), *([name] for name in last)]


def make_plan(graph: ClusterGraph) -> Plan:
    """Return the picture of a cluster before it is drawn."""
    parts = find_parts(graph)
    canvas = Canvas.of(graph, parts)
    whole = parts.part[parts.top]
    names = np.unique(whole[parts.level >= 0])
    wholes = _Wholes(canvas, names.tolist(), np.searchsorted(names, whole), whole[parts.tail] != whole[parts.head])
    # Whatever stands at the top beside others of its like, with no picture of its own, goes on a circle.
    arrange = {"ring": _ring, "grid": _grid}.get(graph.arrangement, _circle) if len(names) > 1 else _levels
    outer, note = arrange(wholes)
    inner = level_lines(parts, ~wholes.outer, canvas.item_of, canvas.items)
    return Plan(tuple(canvas.items), tuple(outer), tuple(inner), parts.classes, note)


def _levels(wholes: _Wholes) -> tuple[list[Line], str]:
    canvas = wholes.canvas
    canvas.choose(_WIDTH)
    canvas.put(canvas.parts.top, wholes.names[0], 0.0, 0.0)
    return [], ""


def _ring(wholes: _Wholes) -> tuple[list[Line], str]:
    """Place the parts on two rows that are joined at their ends."""
    canvas = wholes.canvas
    top = canvas.parts.top
    slot = canvas.choose(_RING_PART) + _RING_GAP
    most = 2 * int(_RING_WIDTH / slot)
    row = wholes.shown(most - (len(wholes.names) > most))
    above = ceil(len(row) / 2)
    step_below = slot * (above - 1) / max(1, len(row) - above - 1)
    height = canvas.height_of(top)
    for place, names in enumerate(row):
        upper = place < above
        x = place * slot if upper else (len(row) - 1 - place) * step_below
        if len(names) > 1:
            canvas.put_more(top, names, x, _RING_CHANNEL if upper else 0.0)
            continue
        left = x - canvas.width(top, names[0]) / 2
        canvas.put(top, names[0], left, _RING_CHANNEL + height if upper else -height, upside=-1 if upper else 1)
    return straight_lines(canvas.parts, wholes.outer, canvas.item_of, canvas.items), ""


def _circle(wholes: _Wholes) -> tuple[list[Line], str]:
    """Place the parts in frames on an ellipse, and join the frames."""
    canvas = wholes.canvas
    parts = canvas.parts
    # The level of groups has no switches of its own.
    groups = parts.top > parts.level.max()
    row = wholes.shown(_MOST_ON_CIRCLE - (len(wholes.names) > _MOST_ON_CIRCLE))
    canvas.choose(max(_CIRCLE_PART, _WIDTH / len(row)))
    width = max(canvas.width(parts.top, names[0]) for names in row if len(names) == 1) + 2 * _FRAME
    height = canvas.height_of(parts.top - groups) + (1.0 if groups else 0.5)
    angles = [pi / 2 - 2 * pi * place / len(row) for place in range(len(row))]
    # In widths and heights of a frame: neighbours are far enough apart in one of the two.
    radius = min(
        radius
        for radius in np.arange(0.6, 10.0, 0.05)
        if all(
            abs(cos(a) - cos(b)) * radius > 1.08 or abs(sin(a) - sin(b)) * radius > 1.15
            for a, b in combinations(angles, 2)
        )
    )
    frame_of = np.full(len(parts.level), -1, np.int64)
    for angle, names in zip(angles, row, strict=True):
        x, y = radius * max(width, height) * cos(angle), radius * height * sin(angle)
        frame_of[np.isin(parts.part[parts.top], names)] = len(canvas.items)
        if len(names) > 1:
            canvas.put_more(parts.top, names, x, y)
            continue
        title = f"group {wholes.names.index(names[0])}" if groups else ""
        canvas.add(Item(x, y, width, height, title, "group"))
        canvas.put(parts.top, names[0], x - canvas.width(parts.top, names[0]) / 2, y - height / 2 + 0.25)
    return straight_lines(parts, wholes.outer, frame_of, canvas.items), ""


def _grid(wholes: _Wholes) -> tuple[list[Line], str]:
    return put_grid(wholes.canvas, wholes.names, wholes.number_of, wholes.outer)
