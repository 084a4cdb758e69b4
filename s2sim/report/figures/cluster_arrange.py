"""Positions of the parts of a cluster: in levels, on a ring, in a grid or on a circle; and of numbers on links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from math import ceil, cos, pi, sin

import numpy as np

from s2sim.arrays import Ints
from s2sim.report.figures.cluster_canvas import Canvas, DrawnLink, Item, bundle_links, level_lines, straight_lines
from s2sim.report.figures.cluster_sizes import ClusterGraph, find_parts, shortened, text_width
from s2sim.units import plural

# Inches: the figure, a part, its offset from its switch, gaps to the next part and the next plane.
_GRID_WIDTH, _PART, _ASIDE, _GAP, _PLANE_GAP = 11.0, 1.3, 0.25, 0.25, 0.5
_STUB, _MORE_HEIGHT = 0.33, 0.34
_MAX_PLANES, _MAX_ROWS = 2, 4
_AXES = ("plane", "row", "column")
# Direction of the next switch along each axis; other planes are upwards, since parts are below their switches.
_FORWARD = ((0.7, 0.7), (0.0, -1.0), (1.0, 0.0))
_BACKWARD = ((-0.7, 0.7), (0.0, 1.0), (-1.0, 0.0))
# Room for the hidden part of each axis, in planes, rows and columns.
_ELLIPSIS = (0.25, 0.6, 0.6)

Place = tuple[float, float, float]
"""Plane, row and column; fractions for the hidden part of an axis."""


def _arrange_grid(canvas: Canvas) -> list[DrawnLink]:
    """Place parts row by row, the planes of a grid of three dimensions side by side; return the links between them."""
    parts, names, shape = canvas.parts, canvas.names, canvas.parts.graph.grid
    sizes = (*(1,) * (3 - len(shape)), *shape)
    canvas.choose(_PART)
    width = max(canvas.width(parts.top, names[end]) for end in (0, -1)) + _ASIDE + _GAP
    rise = canvas.height_of(parts.top)
    planes = sizes[0] if sizes[0] <= _MAX_PLANES else _MAX_PLANES + _ELLIPSIS[0]
    columns = int((_GRID_WIDTH / planes - _PLANE_GAP) / width)
    columns = max(2, columns if sizes[2] <= columns else columns - 1)
    axes = [_places(*along) for along in zip(sizes, (_MAX_PLANES, _MAX_ROWS, columns), _ELLIPSIS, strict=True)]
    across = (max(axes[2].values()) + 1) * width + _PLANE_GAP

    def corner(place: Place) -> tuple[float, float]:
        """Return the position of the switch at a place in inches."""
        plane, row, column = place
        return plane * across + column * width, -row * (rise + _GAP)

    place_of: dict[int, Place] = {}
    for (plane, at_plane), (row, at_row), (column, at_column) in product(*(axis.items() for axis in axes)):
        number = int(np.ravel_multi_index((plane, row, column), sizes))
        place_of[number] = (at_plane, at_row, at_column)
        x, y = corner(place_of[number])
        canvas.put(parts.top, names[number], x + _ASIDE, y - rise)
        for box in canvas.item_of[parts.own(parts.top, names[number])]:
            canvas.items[box] = replace(canvas.items[box], x=x)
    for text, place in _left_out(sizes, axes):
        canvas.add(Item(*corner(place), text_width(text), _MORE_HEIGHT, text, "more"))
    lines = []
    for one, other, code, rate_Bps, count in bundle_links(parts, canvas.outer, canvas.number_of):
        start, end = place_of.get(one), place_of.get(other)
        if start and end and start[0] == end[0] and abs(start[1] - end[1]) + abs(start[2] - end[2]) == 1:
            lines.append(DrawnLink(corner(start), corner(end), code, rate_Bps, count))
            continue
        # A short line from each towards the other.
        for near, far in ((one, other), (other, one)):
            if near in place_of:
                x, y = corner(place_of[near])
                ends = np.unravel_index((near, far), sizes)
                axis = next(axis for axis, (tail, head) in enumerate(ends) if tail != head)
                tail, head = ends[axis]
                right, up = (_FORWARD if (head - tail) % sizes[axis] == 1 else _BACKWARD)[axis]
                stub = (x + right * _STUB, y + up * _STUB)
                lines.append(DrawnLink((x, y), stub, code, rate_Bps, count, hidden=far not in place_of))
    return lines


def _places(size: int, most: int, room: float) -> dict[int, float]:
    """Return the positions of the shown numbers along an axis, with room for the hidden ones."""
    first, hidden, last = shortened(range(size), size if size == most + 1 else most)
    places = {number: float(place) for place, number in enumerate(first)}
    return places | dict.fromkeys(last, len(first) + (room if hidden else 0.0))


def _left_out(sizes: tuple[int, ...], axes: Sequence[Mapping[int, float]]) -> Iterator[tuple[str, Place]]:
    """Yield the text and the place of a box for the hidden part of each axis, of rows and columns one per plane."""
    last = [max(places.values()) for places in axes]
    for axis, name in enumerate(_AXES):
        gap = last[axis] - _ELLIPSIS[axis] / 2
        if left_out := sizes[axis] - len(axes[axis]):
            row = gap if axis == 1 else min(last[1], 1.0) / 2
            column = (0.0, last[2] / 2, gap)[axis]
            for plane in [gap] if axis == 0 else axes[0].values():
                yield f"{left_out} more\n{plural(left_out, name)}", (plane, row, column)


# Inches: the figure, a ring, and one part of a ring or a circle.
_FIGURE_WIDTH, _RING_WIDTH, _RING_PART, _CIRCLE_PART = 19.0, 10.5, 2.5, 3.2
_RING_CHANNEL, _RING_GAP, _FRAME = 1.0, 0.3, 0.2
_MAX_ON_CIRCLE = 8


@dataclass(frozen=True, slots=True)
class ClusterDrawing:
    """All boxes and lines of a figure, in inches, and its note."""

    items: tuple[Item, ...]
    # outer, inner: links between the arranged parts, drawn below their frames, and inside them
    outer: tuple[DrawnLink, ...]
    inner: tuple[DrawnLink, ...]
    classes: tuple[str, ...]
    note: str  # Explanation of the arrangement, may be empty

    @property
    def lines(self) -> tuple[DrawnLink, ...]:
        """All lines."""
        return self.outer + self.inner


def lay_out_drawing(graph: ClusterGraph) -> ClusterDrawing:
    """Return the boxes and lines of the figure of a cluster."""
    parts = find_parts(graph)
    canvas = Canvas(parts)
    note, outer = "", list[DrawnLink]()
    if len(canvas.names) == 1:
        canvas.choose(_FIGURE_WIDTH)
        canvas.put(parts.top, canvas.names[0], 0.0, 0.0)
    elif graph.arrangement == "grid":
        outer = _arrange_grid(canvas)
        note = "Short lines lead round the edge"
        note += " or to the same place of the next plane." if len(graph.grid) > 2 and graph.grid[0] > 1 else "."
    else:
        # Parts without another arrangement are on a circle.
        frames = _arrange_ring(canvas) if graph.arrangement == "ring" else _arrange_circle(canvas)
        outer = straight_lines(parts, canvas.outer, frames, canvas.items)
    inner = level_lines(parts, ~canvas.outer, canvas.item_of, canvas.items)
    return ClusterDrawing(tuple(canvas.items), tuple(outer), tuple(inner), parts.classes, note)


def _arrange_ring(canvas: Canvas) -> Ints:
    """Place the parts in two rows that are linked at their ends; return the box of each vertex."""
    top = canvas.parts.top
    slot = canvas.choose(_RING_PART) + _RING_GAP
    most = 2 * int(_RING_WIDTH / slot)
    row = canvas.shown(most - (len(canvas.names) > most))
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
    return canvas.item_of


def _arrange_circle(canvas: Canvas) -> Ints:
    """Place the parts in frames on an ellipse; return the frame of each vertex."""
    parts = canvas.parts
    # The level of groups has no switches of its own.
    groups = parts.top > parts.level.max()
    row = canvas.shown(_MAX_ON_CIRCLE - (len(canvas.names) > _MAX_ON_CIRCLE))
    canvas.choose(max(_CIRCLE_PART, _FIGURE_WIDTH / len(row)))
    width = max(canvas.width(parts.top, names[0]) for names in row if len(names) == 1) + 2 * _FRAME
    height = canvas.height_of(parts.top - groups) + (1.0 if groups else 0.5)
    angles = [pi / 2 - 2 * pi * place / len(row) for place in range(len(row))]
    # In widths and heights of a frame; neighbours do not overlap.
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
        title = f"group {canvas.names.index(names[0])}" if groups else ""
        canvas.add(Item(x, y, width, height, title, "group"))
        canvas.put(parts.top, names[0], x - canvas.width(parts.top, names[0]) / 2, y - height / 2 + 0.25)
    return frame_of


# Positions of a number on its line, as shares from the start, in order of preference.
_SHARES = (0.4, 0.6, 0.3, 0.7, 0.5, 0.25, 0.75, 0.35, 0.65, 0.2, 0.8)
_HEIGHT = 0.13


def place_counts(plan: ClusterDrawing) -> list[tuple[float, float, str]]:
    """Return the centre and the text of numbers of parallel links that overlap nothing."""
    # Lines between frames run below them.
    taken, frames = ([item for item in plan.items if (item.kind == "group") == group] for group in (False, True))
    placed = []
    for number, line in enumerate(plan.lines):
        if line.count < 2 or line.hidden:
            continue
        text = f"{line.count}\N{MULTIPLICATION SIGN}"
        covered = frames if number < len(plan.outer) else []
        for share in _SHARES:
            box = Item(*point_on_line(line, share), text_width(text) - 0.06, _HEIGHT, text, "number")
            if not any(box.overlaps(other) for other in chain(taken, covered)):
                taken.append(box)
                placed.append((box.x, box.y, text))
                break
    return placed


def point_on_line(line: DrawnLink, share: float) -> tuple[float, float]:
    """Return the point at a share of a line, which is a parabola if it is bent."""
    (x, y), (end_x, end_y) = line.start, line.end
    return x + share * (end_x - x), y + share * (end_y - y) + 4 * share * (1 - share) * line.bend
