"""How wide the parts of a cluster are in its picture, and how many of each to show so that it fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.report.figures.cluster.graph import ClusterGraph, Parts
    from s2sim.report.figures.cluster.names import Names

# Inches. Letters are counted as 6.5 points high, so that no text is wider than its box.
_LETTER, _PADDING, _LEAST_CELL = 0.058, 0.12, 0.2
DOT = 0.12
# Between neighbours of each level, and from each level up to the next; the last for all above.
_GAPS = (0.03, 0.12, 0.35, 0.6)
_RISES = (0.42, 0.75, 1.1)
# More where lines have far to go sideways: for each inch of width.
_SLOPES = (0.0, 0.03, 0.05)
LEAST_SWITCHES = 4
_LEAST_SHOWN = 2


def text_width(text: str) -> float:
    """Return the inches that a box needs to hold a text of one or more lines."""
    return max(map(len, text.split("\n"))) * _LETTER + _PADDING


def gap(level: int) -> float:
    """Return the inches between two parts of a level."""
    return _GAPS[min(level, len(_GAPS) - 1)]


def rise(level: int, width: float) -> float:
    """Return the inches from a level up to the next, whose parts are so wide."""
    step = min(level, len(_RISES) - 1)
    return _RISES[step] + _SLOPES[step] * width


@dataclass(frozen=True, slots=True)
class Sizes:
    """How wide parts of each level become at most.

    Attributes
    ----------
    cell : float
        Width of a GPU, in inches.
    children : tuple of int
        At each level, the most parts that any part of the level above holds.
    switches : tuple of float
        At each level, the least width of a row of its own vertices, in inches.
    """

    cell: float
    children: tuple[int, ...]
    switches: tuple[float, ...]

    def width(self, level: int, limits: Sequence[int]) -> float:
        """Return the greatest width of a part when no more than ``limits`` of each level below are shown."""
        width = self.cell
        for below in range(level):
            places = min(self.children[below], limits[below])
            width = places * (width + gap(below)) - gap(below)
            if self.children[below] > limits[below]:
                width += gap(below) + (self.cell if below == 0 else text_width("999999 more"))
            width = max(width, self.switches[below + 1])
        return width

    def fitting(self, level: int, width: float) -> list[int]:
        """Return how many parts of each level to show so that a part of ``level`` is no wider than ``width``."""
        limits = list(self.children[:level])
        while self.width(level, limits) > width and max(limits, default=0) > _LEAST_SHOWN:
            # Of those that are shown most often, the outermost are shortened first.
            limits[level - 1 - limits[::-1].index(max(limits))] -= 1
        return limits


def find_sizes(graph: ClusterGraph, parts: Parts, names: Names) -> Sizes:
    """Return the sizes of a graph's parts."""
    children, switches = [], [0.0]
    for level in range(1, parts.top + 1):
        inside = (parts.level >= 0) & (parts.level < level)
        child, first = np.unique(parts.part[level - 1][inside], return_index=True)
        of = parts.part[level][inside][first]
        children.append(int(np.unique(of, return_counts=True)[1].max()) if len(child) else 0)
        own = np.flatnonzero(parts.level == level)
        most = int(np.unique(parts.part[level][own], return_counts=True)[1].max(initial=0))
        widest = slot(names, int(own[-1])) if len(own) else 0.0
        switches.append(min(most, LEAST_SWITCHES) * widest)
    cell = max(_LEAST_CELL, len(str(graph.gpus - 1)) * _LETTER + _PADDING / 2)
    return Sizes(cell, tuple(children), tuple(switches))


def slot(names: Names, vertex: int) -> float:
    """Return the inches that a switch or node takes in a row, with the gap to the next."""
    kind, name, number = names.of_vertex(vertex)
    return (DOT if kind == "dot" else text_width(f"{name} {number}")) + gap(1)
