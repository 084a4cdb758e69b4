"""The figure of a cluster: in levels, on a ring, in a grid or on a circle, with numbers on links."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, combinations, product
from math import ceil, cos, log2, pi, sin
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path

from s2sim.arrays import Ints
from s2sim.report.figures.cluster_canvas import Canvas, DrawnLink, Item, bundle_links, level_lines, straight_lines
from s2sim.report.figures.cluster_sizes import NO_LINK, ClusterGraph, base_class, find_parts, shortened, text_width
from s2sim.report.figures.labels import headed_figure
from s2sim.report.figures.style import COLOURS, TEXT_SIZE, WHITE_BOX, figure_bytes, figure_style
from s2sim.report.format import rates_text
from s2sim.units import PS_PER_S, format_seconds, plural

# Inches: the figure, a part, its offset from its switch, gaps to the next part and the next plane.
_GRID_WIDTH, _PART, _ASIDE, _GAP, _PLANE_GAP = 11.0, 1.3, 0.25, 0.25, 0.5
_STUB, _MORE_HEIGHT = 0.33, 0.34
_MAX_PLANES, _MAX_ROWS = 2, 4
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
    row = shortened(range(size), size if size == most + 1 else most)
    ends = accumulate((room if names[1:] else 1.0 for names in row), initial=0.0)
    return {names[0]: end for names, end in zip(row, ends, strict=False) if not names[1:]}


def _left_out(sizes: tuple[int, ...], axes: Sequence[Mapping[int, float]]) -> Iterator[tuple[str, Place]]:
    """Yield the text and the place of a box for the hidden part of each axis, of rows and columns one per plane."""
    last = [max(places.values()) for places in axes]
    for axis, name in enumerate(("plane", "row", "column")):
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


# Inches.
_MARGIN, _MIN_WIDTH, _LEGEND_LINE = 0.25, 8.0, 0.17
# Points.
_BOX_SIZE, _COUNT_SIZE = 6.5, 6.0
_THINNEST, _THICKEST, _PER_DOUBLING = 0.8, 3.6, 0.45
_OTHER_COLOURS = ("#e69f00", "#56b4e9", "#7a6a00")
_NO_LINK_COLOUR = "#999999"


def draw_cluster(graph: ClusterGraph, file_format: str, *, title: str, facts: Sequence[str] = ()) -> bytes:
    """Return the figure of a cluster, the first and last of repeated parts; ``facts`` are lines below the title."""
    plan = lay_out_drawing(graph)
    # All corners of boxes, and points of lines, in inches.
    corners = [(item.x + i * item.width / 2, item.y + i * item.height / 2) for item in plan.items for i in (-1, 1)]
    points = [point_on_line(line, share) for line in plan.lines for share in (0.0, 0.5, 1.0)]
    (left, bottom), (right, top) = (find([*corners, *points], axis=0).tolist() for find in (np.min, np.max))
    width = max(_MIN_WIDTH, right - left) + 2 * _MARGIN
    legend = legend_rows(graph, plan)
    below = len(legend) * _LEGEND_LINE + 2 * _MARGIN
    with figure_style():
        subtitle = "\n".join([*facts, reading_note(plan)])
        figure, above = headed_figure(title, subtitle, below + top - bottom + _MARGIN, width)
        figure.set_layout_engine("none")
        # One unit of the axes is one inch.
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        middle = (left + right) / 2
        axes.set(xlim=(middle - width / 2, middle + width / 2), ylim=(bottom - below, top + _MARGIN + above))
        # The slowest link is the thinnest line.
        slowest_Bps = min((line.rate_Bps for line in plan.lines if line.rate_Bps), default=1.0)
        _draw_items(axes, plan)
        for line, depth in (*((line, 1) for line in plan.outer), *((line, 3) for line in plan.inner)):
            # A parabola's control point is twice as far from the straight line as its middle.
            x, y = point_on_line(line, 0.5)
            curve = Path([line.start, (x, y + line.bend), line.end], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
            dash, thickness = (":", _THINNEST) if line.hidden else ("-", _thickness(line.rate_Bps, slowest_Bps))
            look: dict[str, Any] = {"facecolor": "none", "edgecolor": _colour(plan, line.link_class), "linestyle": dash}
            axes.add_patch(PathPatch(curve, linewidth=thickness, zorder=depth, **look))
        for x, y, text in place_counts(plan):
            axes.text(x, y, text, fontsize=_COUNT_SIZE, ha="center", va="center", bbox=WHITE_BOX, zorder=3.5)
        samples = [
            Line2D([], [], color=_colour(plan, code), linewidth=_thickness(rate_Bps, slowest_Bps), label=text)
            for code, rate_Bps, text in legend
        ]
        figure.legend(handles=samples, loc="lower left", fontsize=TEXT_SIZE, frameon=False)
        return figure_bytes(figure, file_format)


def legend_rows(graph: ClusterGraph, plan: ClusterDrawing) -> list[tuple[int, float, str]]:
    """Return the class, greatest rate and description of each class of links."""
    class_of_link = np.array([plan.classes.index(base_class(name)) for name in graph.class_names])[graph.link_class]
    rows: list[tuple[int, float, str]] = []
    for code, name in enumerate(plan.classes):
        rates_Bps, latency_ps = graph.rate_Bps[class_of_link == code], graph.latency_ps[class_of_link == code]
        ends_ps = (int(latency_ps.min()), int(latency_ps.max()))
        parts = [
            _range([rates_text(float(rate)) for rate in (rates_Bps.min(), rates_Bps.max())]),
            _range([format_seconds(ps / PS_PER_S) if ps else "no latency given" for ps in ends_ps]),
        ]
        counts = [line.count for line in plan.lines if line.link_class == code and not line.hidden]
        if max(counts, default=1) > 1:
            parts.append(f"{_range([str(min(counts)), str(max(counts))])} in parallel")
        _, words = COLOURS["links"].get(name, ("", f"{name.replace('-', ' ')} link"))
        rows.append((code, float(rates_Bps.max()), f"{words}: {', '.join(parts)}"))
    return rows


def reading_note(plan: ClusterDrawing) -> str:
    """Return the note on how to read the drawing."""
    notes = ["The number of a GPU is its rank."]
    if any(item.kind == "more" for item in plan.items):
        notes.append("Dashed and dotted: left out to keep the picture readable.")
    return " ".join([*notes, plan.note]).strip()


def _range(texts: list[str]) -> str:
    return texts[0] if texts[0] == texts[1] else f"{texts[0]} to {texts[1]}"


def _thickness(rate_Bps: float, slowest_Bps: float) -> float:
    return min(_THICKEST, _THINNEST + _PER_DOUBLING * log2(max(1.0, rate_Bps / slowest_Bps)))


def _colour(plan: ClusterDrawing, code: int) -> str:
    if code == NO_LINK:
        return _NO_LINK_COLOUR
    found: str = COLOURS["links"].get(plan.classes[code], _OTHER_COLOURS[code % len(_OTHER_COLOURS) :])[0]
    return found


def _draw_items(axes: Axes, plan: ClusterDrawing) -> None:
    for item in plan.items:
        left, bottom = item.x - item.width / 2, item.y - item.height / 2
        fill, edge = COLOURS["boxes"][item.kind]
        # From the back: lines between frames, frames, lines inside them, boxes, texts.
        shape = f"round,pad=0,rounding_size={0.0 if item.kind in {'gpu', 'more'} else 0.05}"
        dash, depth = "--" if item.kind == "more" else "-", 2 if item.kind == "group" else 4
        look: dict[str, Any] = {"facecolor": fill, "edgecolor": edge, "linewidth": 0.7, "linestyle": dash}
        axes.add_patch(FancyBboxPatch((left, bottom), item.width, item.height, boxstyle=shape, zorder=depth, **look))
        text: dict[str, Any] = {"fontsize": _BOX_SIZE, "zorder": 5}
        if item.kind == "group":
            axes.text(left + 0.08, bottom + item.height - 0.16, item.text, **text)
        else:
            axes.text(item.x, item.y, item.text, ha="center", va="center", linespacing=1.1, **text)
