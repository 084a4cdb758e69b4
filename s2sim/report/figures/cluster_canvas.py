"""Boxes and lines of the figure of a cluster, in inches."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.report.figures import cluster_sizes as sizes
from s2sim.report.figures.cluster_sizes import GraphParts
from s2sim.units import plural

# Limit of switches in a row that does not show all.
_MAX_OF_MANY, _MIN_SHOWN = 8, 2
_BOX_HEIGHT, _CELL_HEIGHT, _MORE_HEIGHT = 0.22, 0.2, 0.34


@dataclass(frozen=True, slots=True)
class Item:
    """A box, with its centre and size in inches."""

    x: float
    y: float
    width: float
    height: float
    text: str
    kind: str  # ``"gpu"``, ``"node"``, ``"switch"``, ``"dot"``, ``"group"``, or ``"more"`` for hidden parts

    def overlaps(self, other: "Item") -> bool:
        """Return whether two boxes share some area."""
        across, along = abs(self.x - other.x) * 2, abs(self.y - other.y) * 2
        return across < self.width + other.width and along < self.height + other.height


class Canvas:
    """The boxes that have been placed, and the greatest widths of parts of each level, in inches."""

    def __init__(self, parts: GraphParts) -> None:
        self.parts = parts
        whole = parts.part[parts.top]
        names = np.unique(whole[parts.level >= 0])
        # The parts of the highest level, several if the highest switches are linked to each other; the number among
        # them of each vertex, shape (V,); and which links are between two of them, shape (M,).
        self.names: list[int] = names.tolist()
        self.number_of = np.searchsorted(names, whole)
        self.outer = whole[parts.tail] != whole[parts.head]
        self.items: list[Item] = []
        # The box of each vertex, its own or that of hidden parts; -1 for none.
        self.item_of = np.full(len(parts.level), -1)
        # Number of shown parts of each level.
        self.limits: list[int] = []
        self.cell = max(sizes.MIN_CELL, len(str(parts.graph.gpus - 1)) * sizes.LETTER + sizes.PADDING / 2)
        # At each level, the most parts that any part of the level above holds.
        self._children: list[int] = []
        # At each level, the least width of a row of its own vertices.
        self._switches = [0.0]
        for level in range(1, parts.top + 1):
            inside = (parts.level >= 0) & (parts.level < level)
            child, first = np.unique(parts.part[level - 1][inside], return_index=True)
            parents = parts.part[level][inside][first]
            self._children.append(int(np.unique(parents, return_counts=True)[1].max()) if len(child) else 0)
            own = np.flatnonzero(parts.level == level)
            most = int(np.unique(parts.part[level][own], return_counts=True)[1].max(initial=0))
            self._switches.append(min(most, sizes.MIN_SWITCHES) * parts.slot_width(int(own[-1])) if len(own) else 0.0)

    def shown(self, places: int) -> list[list[int]]:
        """Return the names of the parts of the highest level, the hidden ones together at one position."""
        return sizes.shortened(self.names, places)

    def choose(self, width: float) -> float:
        """Choose the number of shown parts per level for ``width`` inches; return the width of the widest part."""
        top = self.parts.top
        self.limits = self._children[:top]
        while self._widest(top) > width and max(self.limits, default=0) > _MIN_SHOWN:
            # Of the longest rows, the outermost are sizes.shortened first.
            self.limits[top - 1 - self.limits[::-1].index(max(self.limits))] -= 1
        return self._widest(top)

    def _widest(self, level: int) -> float:
        """Return the greatest width of a part that shows up to the chosen number of parts of each level below."""
        width = self.cell
        for below in range(level):
            children, limit, gap = self._children[below], self.limits[below], sizes.part_gap(below)
            width = min(children, limit) * (width + gap) - gap
            if children > limit:
                width += gap + (self.cell if below == 0 else sizes.text_width("999999 more"))
            width = max(width, self._switches[below + 1])
        return width

    def add(self, item: Item, vertices: Ints | int | None = None) -> None:
        """Place a box that represents ``vertices``."""
        if vertices is not None:
            self.item_of[vertices] = len(self.items)
        self.items.append(item)

    def height_of(self, level: int) -> float:
        """Return the height of a level above the GPUs."""
        return sum(sizes.level_height(below, self._widest(below + 1)) for below in range(level))

    def width(self, level: int, part: int) -> float:
        """Return the width of a part with its hidden parts."""
        if level == 0:
            return self.cell
        widths = [width for _, width in self._row(level, part)]
        own = self.parts.own(level, part)
        least = 0.0
        if len(own):
            least = min(len(own), sizes.MIN_SWITCHES) * self.parts.slot_width(int(own[-1])) - sizes.part_gap(1)
        return max(sum(widths) + sizes.part_gap(level - 1) * (len(widths) - 1), least)

    def put(self, level: int, part: int, left: float, bottom: float, *, upside: int = 1) -> None:
        """Place a part, its GPUs at the height ``bottom`` and the rest above, or below where ``upside`` is -1."""
        width = self.width(level, part)
        if level > 0:
            row = self._row(level, part)
            x = left + (width - sum(wide for _, wide in row) - sizes.part_gap(level - 1) * (len(row) - 1)) / 2
            for children, wide in row:
                if len(children) > 1:
                    self.put_more(level - 1, children, x + wide / 2, bottom + upside * self.height_of(level - 1))
                else:
                    self.put(level - 1, children[0], x, bottom, upside=upside)
                x += wide + sizes.part_gap(level - 1)
        own = self.parts.own(level, part)
        if len(own):
            self._put_own(own, left, width, bottom + upside * self.height_of(level))

    def put_more(self, level: int, hidden: list[int], x: float, y: float) -> None:
        """Place a box for hidden parts."""
        text, width = self._more_text(level, hidden)
        height = _CELL_HEIGHT if level == 0 else _MORE_HEIGHT
        self.add(Item(x, y, width, height, text, "more"), np.flatnonzero(np.isin(self.parts.part[level], hidden)))

    def _row(self, level: int, part: int) -> list[tuple[list[int], float]]:
        """Return the parts below one with their widths, the hidden ones together at one position."""
        below, row = level - 1, sizes.shortened(self.parts.children(level, part), self.limits[level - 1])
        return [(each, self._more_text(below, each)[1] if each[1:] else self.width(below, each[0])) for each in row]

    def _more_text(self, level: int, hidden: list[int]) -> tuple[str, float]:
        if level == 0:
            return f"+{len(hidden)}", self.cell
        text = f"{len(hidden)} more\n{plural(len(hidden), self.parts.part_name(level, hidden[0]))}"
        return text, sizes.text_width(text)

    def _put_own(self, own: Ints, left: float, width: float, y: float) -> None:
        """Place the vertices of a part's own level side by side, as far as there is room."""
        places = max(sizes.MIN_SWITCHES, int((width + sizes.part_gap(1)) / self.parts.slot_width(int(own[-1]))))
        shown = places if len(own) <= places else min(places, _MAX_OF_MANY) - 1
        row = sizes.shortened(own.tolist(), shown)
        for place, (vertex, *hidden) in enumerate(row):
            x = left + (place + 0.5) * width / len(row)
            kind, name, number = self.parts.vertex_name(vertex)
            if hidden:
                text = f"{len(row[place])} more\n{plural(len(row[place]), name)}"
                self.add(Item(x, y, sizes.text_width(text), _MORE_HEIGHT, text, "more"), np.array(row[place]))
            elif kind == "gpu":
                self.add(Item(x, y, self.cell, _CELL_HEIGHT, str(number), kind), vertex)
            elif kind == "dot":
                self.add(Item(x, y, sizes.DOT, sizes.DOT, "", kind), vertex)
            else:
                text = f"{name} {number}"
                wide = width if kind == "node" and len(row) == 1 else sizes.text_width(text)
                self.add(Item(x, y, wide, _BOX_HEIGHT, text, kind), vertex)


# Inches between links of several classes that join the same two boxes.
_BEND = 0.06
_MIN_BEND, _MAX_BEND = 0.1, 0.45


@dataclass(frozen=True, slots=True)
class DrawnLink:
    """One or several parallel links between two boxes, in inches."""

    start: tuple[float, float]
    end: tuple[float, float]
    link_class: int
    rate_Bps: float  # Of the fastest
    count: int  # Parallel links, one way
    hidden: bool = False  # Whether it stands for links of parts that are left out
    bend: float = 0.0  # Inches by which its middle is above the straight line


def bundle_links(parts: GraphParts, which: Mask, item_of_vertex: Ints) -> Iterator[tuple[int, int, int, float, int]]:
    """Yield bundles of links between items: numbers, class, fastest rate, links a way; hidden vertices have item -1."""
    one, other = item_of_vertex[parts.tail], item_of_vertex[parts.head]
    taken = which & (one >= 0) & (other >= 0) & (one != other)
    one, other = one[taken], other[taken]
    ends = np.stack([np.minimum(one, other), np.maximum(one, other), parts.link_class[taken]])
    rows, bundle = np.unique(ends, axis=1, return_inverse=True)
    bundle, number = bundle.ravel(), rows.shape[1]
    count = np.maximum(*(np.bincount(bundle[direction], minlength=number) for direction in (one < other, one > other)))
    rate_Bps = np.zeros(number)
    np.maximum.at(rate_Bps, bundle, parts.rate_Bps[taken])
    for (low, high, code), fastest, parallel in zip(rows.T.tolist(), rate_Bps.tolist(), count.tolist(), strict=True):
        yield low, high, code, fastest, parallel


def straight_lines(parts: GraphParts, which: Mask, box_of: Ints, items: Sequence[Item]) -> list[DrawnLink]:
    """Return lines from centre to centre."""
    return [
        DrawnLink(
            (items[a].x, items[a].y), (items[b].x, items[b].y), code, rate_Bps, count, _is_hidden(items[a], items[b])
        )
        for a, b, code, rate_Bps, count in bundle_links(parts, which, box_of)
    ]


def level_lines(parts: GraphParts, which: Mask, box_of: Ints, items: Sequence[Item]) -> list[DrawnLink]:
    """Return lines, straight between levels and bent between neighbours of one level."""
    joined = list(bundle_links(parts, which, box_of))
    several = Counter((a, b) for a, b, *_ in joined)
    drawn = Counter[tuple[int, int]]()
    lines = []
    for low, high, code, rate_Bps, count in joined:
        a, b, pair = items[low], items[high], (low, high)
        aside = _BEND * (drawn[pair] - (several[pair] - 1) / 2)
        drawn[pair] += 1
        if a.y == b.y:
            side = -1 if "gpu" in (a.kind, b.kind) else 1
            bend = side * min(_MIN_BEND * (1 + abs(a.x - b.x)), _MAX_BEND)
            start, end = ((item.x, item.y + side * item.height / 2 + aside) for item in (a, b))
        else:
            bend = 0.0
            # From the upper edge of the lower box to the lower edge of the upper one.
            up = 1 if a.y < b.y else -1
            start = (_clip_to_item(a, b) + aside, a.y + up * a.height / 2)
            end = (_clip_to_item(b, a) + aside, b.y - up * b.height / 2)
        lines.append(DrawnLink(start, end, code, rate_Bps, count, _is_hidden(a, b), bend))
    return lines


def _is_hidden(a: Item, b: Item) -> bool:
    return "more" in (a.kind, b.kind)


def _clip_to_item(item: Item, other: Item) -> float:
    """Return the x position at which a line to ``other`` leaves an item; lines from nodes are vertical if possible."""
    return other.x if item.kind == "node" and abs(other.x - item.x) <= item.width / 2 else item.x
