"""Charts and heat maps of any figures, as SVG for pages."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from s2sim.claims.paper import Chart, HeatMap
from s2sim.report.figures.style import (
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    blank_figure,
    figure_bytes,
    figure_style,
    log_limits,
    set_log,
    style_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Inches.
_WIDTH, _HEIGHT = 7.2, 3.6
_CELL_WIDTH, _CELL_HEIGHT, _NAMES_WIDTH, _HEAD = 0.62, 0.26, 2.0, 1.5
# Tol's "bright" scheme (SRON/EPS/TN/09-002) and black; a marker each, so that nobody depends on colour.
_COLOURS = ("#000000", "#EE6677", "#228833", "#4477AA", "#CCBB44", "#66CCEE", "#AA3377", "#888888")
_MARKERS = ("s", "v", "o", "^", "D", "P", "X", "*")
_DARK = 0.6  # of the way to either end of the colours, where white letters read better


def chart_figure(picture: Chart | HeatMap) -> Figure:
    """Return a picture as a figure, to be written by `s2sim.report.figures.style.figure_bytes`."""
    with figure_style():
        return _draw_chart(picture) if isinstance(picture, Chart) else _draw_heat_map(picture)


def chart_svg(picture: Chart | HeatMap) -> str:
    """Return a picture as SVG, the same text for the same picture and release of matplotlib."""
    svg = figure_bytes(chart_figure(picture), "svg").decode()
    return svg[svg.index("<svg") :]


def _draw_chart(chart: Chart) -> Figure:
    figure = blank_figure(_HEIGHT, _WIDTH)
    axes = figure.add_subplot()
    for place, line in enumerate(chart.lines):
        colour, marker = _COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)]
        # A mark a point would hide a long line.
        every = max(1, len(line.x) // 12)
        drawn = axes.plot(line.x, line.y, color=colour, marker=marker, markersize=3.5, linewidth=1.2, label=line.name)
        drawn[0].set_markevery(every)
        if line.low:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
    style_axes(axes)
    _scale(axes, chart)
    figure.suptitle(chart.title, fontsize=TITLE_SIZE, x=0.01, ha="left")
    axes.set_xlabel(chart.x, fontsize=TEXT_SIZE)
    axes.set_ylabel(chart.y, fontsize=TEXT_SIZE)
    figure.legend(fontsize=SMALL_SIZE, frameon=False, loc="outside right center")
    return figure


def _scale(axes: Axes, chart: Chart) -> None:
    if chart.log_x:
        set_log(axes, "x", log_limits(chain.from_iterable(line.x for line in chart.lines)), _short)
    if chart.log_y:
        set_log(axes, "y", log_limits(chain.from_iterable(line.y for line in chart.lines)), _short)


def _short(value: float) -> str:
    return f"{value:g}"


def _draw_heat_map(heat: HeatMap) -> Figure:
    values = np.array([[np.nan if value is None else value for value in row] for row in heat.values], np.float64)
    height = _HEAD + _CELL_HEIGHT * len(heat.rows)
    figure = blank_figure(height, _NAMES_WIDTH + _CELL_WIDTH * len(heat.columns))
    axes = figure.add_subplot()
    # As many times more as less than the middle is as far from it.
    shades = np.log(np.maximum(values, 1e-9) / heat.middle)
    finite = shades[np.isfinite(shades)]
    most = float(np.abs(finite).max()) if len(finite) else 1.0
    axes.imshow(shades, cmap="RdBu", vmin=-(most or 1.0), vmax=most or 1.0, aspect="auto")
    axes.set_xticks(range(len(heat.columns)), heat.columns, rotation=45, ha="left", fontsize=SMALL_SIZE)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(heat.rows)), heat.rows, fontsize=SMALL_SIZE)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for row, column in np.ndindex(values.shape):
        if np.isfinite(values[row, column]):
            dark = abs(shades[row, column]) > _DARK * most
            axes.text(
                column,
                row,
                f"{values[row, column]:.2f}",
                ha="center",
                va="center",
                fontsize=SMALL_SIZE,
                color="white" if dark else "black",
            )
    axes.set_title(heat.title, fontsize=TITLE_SIZE, loc="left")
    return figure
