"""Where the boxes of a picture of a cluster stand, in inches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.report.figures.cluster.names import Names, shortened
from s2sim.report.figures.cluster.sizes import DOT, LEAST_SWITCHES, Sizes, find_sizes, gap, rise, slot, text_width
from s2sim.words import plural

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.report.figures.cluster.graph import ClusterGraph, Parts

# Where not all switches of a row are shown, the picture is clearer with few.
_MOST_OF_MANY = 8
_BOX_HEIGHT, _CELL_HEIGHT, _MORE_HEIGHT = 0.22, 0.2, 0.34


@dataclass(frozen=True, slots=True)
class Item:
    """One box; places and sizes are in inches, ``x`` and ``y`` those of its middle.

    Attributes
    ----------
    kind : str
        ``"gpu"``, ``"node"``, ``"switch"``, ``"dot"``, ``"group"``, or ``"more"`` for what is left out.
    """

    x: float
    y: float
    width: float
    height: float
    text: str
    kind: str


@dataclass(slots=True, eq=False)
class Canvas:
    """Boxes, as far as they have been placed.

    Attributes
    ----------
    limits : list of int
        How many parts of each level are shown.
    item_of : int64 array, shape (V,)
        The box that stands for each vertex, its own or that of what is left out; -1 for none.
    """

    graph: ClusterGraph
    parts: Parts
    names: Names
    sizes: Sizes
    limits: list[int]
    items: list[Item]
    item_of: Ints

    @classmethod
    def of(cls, graph: ClusterGraph, parts: Parts) -> Canvas:
        """Return an empty canvas for a graph."""
        names = Names(graph, parts)
        return cls(graph, parts, names, find_sizes(graph, parts, names), [], [], np.full(len(parts.level), -1))

    def choose(self, width: float) -> float:
        """Choose how many parts of each level are shown for ``width`` inches, and return what the widest one takes."""
        self.limits = self.sizes.fitting(self.parts.top, width)
        return self.sizes.width(self.parts.top, self.limits)

    def add(self, item: Item, vertices: Ints | int | None = None) -> None:
        """Place a box that stands for ``vertices``."""
        if vertices is not None:
            self.item_of[vertices] = len(self.items)
        self.items.append(item)

    def height_of(self, level: int) -> float:
        """Return how far above the GPUs a level stands."""
        return sum(rise(below, self.sizes.width(below + 1, self.limits)) for below in range(level))

    def width(self, level: int, part: int) -> float:
        """Return the width of a part as it is shown."""
        if level == 0:
            return self.sizes.cell
        widths = [width for _, width in self._row(level, part)]
        own = self.parts.own(level, part)
        least = min(len(own), LEAST_SWITCHES) * slot(self.names, int(own[-1])) - gap(1) if len(own) else 0.0
        return max(sum(widths) + gap(level - 1) * (len(widths) - 1), least)

    def put(self, level: int, part: int, left: float, bottom: float, *, upside: int = 1) -> None:
        """Place a part, its GPUs at the height ``bottom`` and the rest above, or below where ``upside`` is -1."""
        width = self.width(level, part)
        if level > 0:
            row = self._row(level, part)
            x = left + (width - sum(wide for _, wide in row) - gap(level - 1) * (len(row) - 1)) / 2
            for children, wide in row:
                if len(children) > 1:
                    self.put_more(level - 1, children, x + wide / 2, bottom + upside * self.height_of(level - 1))
                else:
                    self.put(level - 1, children[0], x, bottom, upside=upside)
                x += wide + gap(level - 1)
        own = self.parts.own(level, part)
        if len(own):
            self._put_own(own, left, width, bottom + upside * self.height_of(level))

    def put_more(self, level: int, hidden: list[int], x: float, y: float) -> None:
        """Place a box for parts that are left out, with all that they hold."""
        text = self._more_text(level, hidden)
        height = _CELL_HEIGHT if level == 0 else _MORE_HEIGHT
        inside = np.isin(self.parts.part[level], hidden)
        self.add(Item(x, y, self._more_width(level, hidden), height, text, "more"), np.flatnonzero(inside))

    def _row(self, level: int, part: int) -> list[tuple[list[int], float]]:
        """Return the parts below one with their widths, those that are left out together in one place."""
        first, hidden, last = shortened(self.parts.children(level, part), self.limits[level - 1])
        row = [([child], self.width(level - 1, child)) for child in first]
        if hidden:
            row.append((hidden, self._more_width(level - 1, hidden)))
        return row + [([child], self.width(level - 1, child)) for child in last]

    def _more_text(self, level: int, hidden: list[int]) -> str:
        if level == 0:
            return f"+{len(hidden)}"
        return f"{len(hidden)} more\n{plural(len(hidden), self.names.of_part(level, hidden[0]))}"

    def _more_width(self, level: int, hidden: list[int]) -> float:
        return self.sizes.cell if level == 0 else text_width(self._more_text(level, hidden))

    def _put_own(self, own: Ints, left: float, width: float, y: float) -> None:
        """Place the vertices of a part's own level side by side, as many as there is room for."""
        places = max(LEAST_SWITCHES, int((width + gap(1)) / slot(self.names, int(own[-1]))))
        first, hidden, last = shortened(own.tolist(), places if len(own) <= places else min(places, _MOST_OF_MANY) - 1)
        row = [*first, *hidden[:1], *last]
        for place, vertex in enumerate(row):
            x = left + (place + 0.5) * width / len(row)
            kind, name, number = self.names.of_vertex(vertex)
            if vertex in hidden:
                text = f"{len(hidden)} more\n{plural(len(hidden), name)}"
                self.add(Item(x, y, text_width(text), _MORE_HEIGHT, text, "more"), np.array(hidden))
            elif kind == "gpu":
                self.add(Item(x, y, self.sizes.cell, _CELL_HEIGHT, str(number), kind), vertex)
            elif kind == "dot":
                self.add(Item(x, y, DOT, DOT, "", kind), vertex)
            else:
                text = f"{name} {number}"
                wide = width if kind == "node" and len(row) == 1 else text_width(text)
                self.add(Item(x, y, wide, _BOX_HEIGHT, text, kind), vertex)
