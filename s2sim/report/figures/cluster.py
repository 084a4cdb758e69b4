"""The figure of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path

from s2sim.report.figures.cluster_arrange import ClusterDrawing, lay_out_drawing, place_counts, point_on_line
from s2sim.report.figures.cluster_sizes import NO_LINK, ClusterGraph, base_class
from s2sim.report.figures.labels import headed_figure
from s2sim.report.figures.style import TEXT_SIZE, WHITE_BOX, figure_bytes, figure_style
from s2sim.report.format import rates_text
from s2sim.units import PS_PER_S, format_seconds

# Inches.
_MARGIN, _MIN_WIDTH, _LEGEND_LINE = 0.25, 8.0, 0.17
# Points.
_BOX_SIZE, _COUNT_SIZE = 6.5, 6.0
_THINNEST, _THICKEST, _PER_DOUBLING = 0.8, 3.6, 0.45
# Okabe and Ito's colours for all kinds of colour vision.
_COLOURS = {
    "nvlink": "#009e73",
    "pcie": "#cc79a7",
    "nic": "#0072b2",
    "leaf": "#e69f00",
    "aggregation": "#d55e00",
    "global": "#d55e00",
}
_OTHER_COLOURS = ("#e69f00", "#56b4e9", "#7a6a00")
_NO_LINK_COLOUR = "#999999"
_BOX_COLOURS = {
    "gpu": ("#e8f3e4", "#5d8a4c"),
    "node": ("#f2f2f2", "#888888"),
    "switch": ("#dfeaf5", "#33638f"),
    "dot": ("#555555", "#555555"),
    "more": ("#ffffff", "#777777"),
    "group": ("#fafafa", "#bbbbbb"),
}
_SHARP = frozenset({"gpu", "more"})
_CLASS_WORDS = {
    "nvlink": "NVLink",
    "pcie": "PCIe",
    "nic": "NIC with its link",
    "leaf": "leaf uplink",
    "aggregation": "aggregation uplink",
}


def draw_cluster(graph: ClusterGraph, file_format: str, *, title: str, facts: Sequence[str] = ()) -> bytes:
    """Return the figure of a cluster, the same bytes for the same cluster and release of matplotlib.

    Of repeated parts, only the first ones and the last are drawn; ``facts`` are lines below the title.
    """
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
        _draw_lines(axes, plan, slowest_Bps)
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
        words = _CLASS_WORDS.get(name, f"{name.replace('-', ' ')} link")
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
    return _COLOURS.get(plan.classes[code], _OTHER_COLOURS[code % len(_OTHER_COLOURS)])


def _draw_items(axes: Axes, plan: ClusterDrawing) -> None:
    for item in plan.items:
        left, bottom = item.x - item.width / 2, item.y - item.height / 2
        fill, edge = _BOX_COLOURS[item.kind]
        # From the back: lines between frames, frames, lines inside them, boxes, texts.
        shape = f"round,pad=0,rounding_size={0.0 if item.kind in _SHARP else 0.05}"
        dash, depth = "--" if item.kind == "more" else "-", 2 if item.kind == "group" else 4
        look: dict[str, Any] = {"facecolor": fill, "edgecolor": edge, "linewidth": 0.7, "linestyle": dash}
        axes.add_patch(FancyBboxPatch((left, bottom), item.width, item.height, boxstyle=shape, zorder=depth, **look))
        text: dict[str, Any] = {"fontsize": _BOX_SIZE, "zorder": 5}
        if item.kind == "group":
            axes.text(left + 0.08, bottom + item.height - 0.16, item.text, **text)
        else:
            axes.text(item.x, item.y, item.text, ha="center", va="center", linespacing=1.1, **text)


def _draw_lines(axes: Axes, plan: ClusterDrawing, slowest_Bps: float) -> None:
    for line, depth in (*((line, 1) for line in plan.outer), *((line, 3) for line in plan.inner)):
        # A parabola's control point is twice as far from the straight line as its middle.
        x, y = point_on_line(line, 0.5)
        curve = Path([line.start, (x, y + line.bend), line.end], [Path.MOVETO, Path.CURVE3, Path.CURVE3])
        look: dict[str, Any] = {"edgecolor": _colour(plan, line.link_class), "linestyle": ":" if line.hidden else "-"}
        width = _THINNEST if line.hidden else _thickness(line.rate_Bps, slowest_Bps)
        axes.add_patch(PathPatch(curve, facecolor="none", linewidth=width, zorder=depth, **look))
    for x, y, text in place_counts(plan):
        axes.text(x, y, text, fontsize=_COUNT_SIZE, ha="center", va="center", bbox=WHITE_BOX, zorder=3.5)
