"""The picture of a cluster whose switches form a grid, as a torus does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from s2sim.report.figures.cluster.canvas import Item
from s2sim.report.figures.cluster.lines import Line, bundles
from s2sim.report.figures.cluster.names import shortened
from s2sim.report.figures.cluster.sizes import text_width
from s2sim.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s2sim.arrays import Ints, Mask
    from s2sim.report.figures.cluster.canvas import Canvas

# Inches: the picture, a part, how far it stands aside from its switch, to the next one, to the next plane.
_WIDTH, _PART, _ASIDE, _GAP, _PLANE_GAP = 11.0, 1.3, 0.25, 0.25, 0.5
_STUB, _MORE_HEIGHT = 0.33, 0.34
_MOST_PLANES, _MOST_ROWS = 2, 4
_AXES = ("plane", "row", "column")
# Where the next switch along each axis is; the planes before and after both lie upwards, for parts hang below.
_FORWARD = ((0.7, 0.7), (0.0, -1.0), (1.0, 0.0))
_BACKWARD = ((-0.7, 0.7), (0.0, 1.0), (-1.0, 0.0))
# Room for what is left out along each axis, in planes, rows and columns.
_LEFT_OUT = (0.25, 0.6, 0.6)

Place = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class _Grid:
    """Numbers of planes, rows and columns, and at which place each one that is shown stands."""

    sizes: tuple[int, ...]
    places: tuple[dict[int, float], ...]
    steps: tuple[float, float]  # to the next column and row, in inches

    def corner(self, place: Place) -> tuple[float, float]:
        """Return where the switch at a place stands, in inches."""
        plane, row, column = place
        width, height = self.steps
        across = (max(self.places[2].values()) + 1) * width + _PLANE_GAP
        return plane * across + column * width, -row * height

    def place(self, number: int) -> Place | None:
        """Return the place of a switch, or None where it is left out."""
        found = [axis.get(i) for axis, i in zip(self.places, self.index(number), strict=True)]
        plane, row, column = found
        return None if plane is None or row is None or column is None else (plane, row, column)

    def index(self, number: int) -> tuple[int, ...]:
        """Return the plane, row and column of a switch."""
        return tuple(int(i) for i in np.unravel_index(number, self.sizes))

    def way(self, one: int, other: int) -> tuple[float, float]:
        """Return in which direction the link from one switch to another leaves it."""
        here, there = self.index(one), self.index(other)
        axis = next(axis for axis in range(3) if here[axis] != there[axis])
        forward = (there[axis] - here[axis]) % self.sizes[axis] == 1
        return (_FORWARD if forward else _BACKWARD)[axis]


def put_grid(canvas: Canvas, names: list[int], number_of: Ints, outer: Mask) -> tuple[list[Line], str]:
    """Place parts row by row, the planes of a grid of three dimensions beside each other; return lines and a note.

    Parameters
    ----------
    names : list of int
        The parts, the last axis of the grid fastest.
    number_of : int64 array, shape (V,)
        Place in ``names`` of the part of each vertex.
    """
    parts, shape = canvas.parts, canvas.graph.grid
    sizes = (*(1,) * (3 - len(shape)), *shape)
    canvas.choose(_PART)
    width = max(canvas.width(parts.top, names[end]) for end in (0, -1)) + _ASIDE + _GAP
    rise = canvas.height_of(parts.top)
    planes = sizes[0] if sizes[0] <= _MOST_PLANES else _MOST_PLANES + _LEFT_OUT[0]
    columns = int((_WIDTH / planes - _PLANE_GAP) / width)
    columns = max(2, columns if sizes[2] <= columns else columns - 1)
    most = (_MOST_PLANES, _MOST_ROWS, columns)
    places = tuple(_places(*along) for along in zip(sizes, most, _LEFT_OUT, strict=True))
    grid = _Grid(sizes, places, (width, rise + _GAP))
    for (plane, at_plane), (row, at_row), (column, at_column) in product(*(axis.items() for axis in places)):
        number = int(np.ravel_multi_index((plane, row, column), sizes))
        x, y = grid.corner((at_plane, at_row, at_column))
        canvas.put(parts.top, names[number], x + _ASIDE, y - rise)
        for box in canvas.item_of[parts.own(parts.top, names[number])]:
            canvas.items[box] = replace(canvas.items[box], x=x)
    for axis in range(3):
        _put_left_out(canvas, grid, axis)
    note = "Short lines lead round the edge"
    lines = [line for bundle in bundles(parts, outer, number_of) for line in _lines(grid, *bundle)]
    return lines, f"{note} or to the same place of the next plane." if sizes[0] > 1 else f"{note}."


def _places(size: int, most: int, room: float) -> dict[int, float]:
    """Return the place of each number along an axis that is shown, with room for those that are left out.

    One more than ``most`` takes no more room than that.
    """
    first, hidden, last = shortened(range(size), size if size == most + 1 else most)
    places = {number: float(place) for place, number in enumerate(first)}
    return places | dict.fromkeys(last, len(first) + (room if hidden else 0.0))


def _put_left_out(canvas: Canvas, grid: _Grid, axis: int) -> None:
    """Place a box for what is left out along an axis, of rows and columns one in each plane."""
    left_out = grid.sizes[axis] - len(grid.places[axis])
    if not left_out:
        return
    text = f"{left_out} more\n{plural(left_out, _AXES[axis])}"
    last = [max(places.values()) for places in grid.places]
    gap = last[axis] - _LEFT_OUT[axis] / 2
    for plane in [gap] if axis == 0 else grid.places[0].values():
        row = gap if axis == 1 else min(last[1], 1.0) / 2
        column = (0.0, last[2] / 2, gap)[axis]
        canvas.add(Item(*grid.corner((plane, row, column)), text_width(text), _MORE_HEIGHT, text, "more"))


def _lines(grid: _Grid, one: int, other: int, code: int, rate_Bps: float, count: int) -> Iterator[Line]:
    """Yield the line between two neighbours, or a short one from each that leads to where the other is."""
    place, goal = grid.place(one), grid.place(other)
    if place and goal and place[0] == goal[0] and abs(place[1] - goal[1]) + abs(place[2] - goal[2]) == 1:
        yield Line(grid.corner(place), grid.corner(goal), code, rate_Bps, count)
        return
    for at, far, way in ((place, goal, (one, other)), (goal, place, (other, one))):
        if at is not None:
            x, y = grid.corner(at)
            right, up = grid.way(*way)
            end = (x + right * _STUB, y + up * _STUB)
            yield Line((x, y), end, code, rate_Bps, count, hidden=far is None)
