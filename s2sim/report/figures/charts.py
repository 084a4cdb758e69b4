"""Charts and heat maps of any numbers, for pages and for the results of sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from s2sim.claims.paper import Chart, HeatMap, Line
from s2sim.errors import OptionError
from s2sim.report.figures import style
from s2sim.sweeps.study import Scale
from s2sim.tables import Table

# Inches.
_WIDTH, _HEIGHT = 7.2, 3.6
_CELL_WIDTH, _CELL_HEIGHT, _NAMES_WIDTH, _HEAD = 0.62, 0.26, 2.0, 1.5
# Tol's "bright" scheme (SRON/EPS/TN/09-002) and black.
_COLOURS = ("#000000", "#EE6677", "#228833", "#4477AA", "#CCBB44", "#66CCEE", "#AA3377", "#888888")
_MARKERS = ("s", "v", "o", "^", "D", "P", "X", "*")
_WIDE = 10.0  # ratio of the largest to the smallest value from which an axis is logarithmic
_DARK = 0.6  # share of the range from the middle colour to either end above which letters are white


def chart_figure(picture: Chart | HeatMap) -> Figure:
    """Return a picture as a figure, to be written by `s2sim.report.figures.style.figure_bytes`."""
    with style.figure_style():
        return _draw_chart(picture) if isinstance(picture, Chart) else _draw_heat_map(picture)


def table_chart(table: Table, x: str, y: str, colour: str) -> Chart:
    """Return a chart of two columns of a table, with a line for each value of a third one.

    Where several rows have the same x on a line, it goes through their median, inside a band from the least to the
    largest. Texts with units, such as ``25Gbps``, are numbers of the unit of the first; `OptionError` for other texts.
    """
    points: dict[str, dict[float, list[float]]] = {}
    kept = [row for row in table.rows if row[x] is not None and row[y] is not None]
    (x_label, x_values), (y_label, y_values) = (_numbers(name, [row[name] for row in kept]) for name in (x, y))
    for row, at, value in zip(kept, x_values, y_values, strict=True):
        points.setdefault(str(row[colour]), {}).setdefault(at, []).append(value)
    lines = []
    for name, found in points.items():
        columns = [(at, median(values), min(values), max(values)) for at, values in sorted(found.items())]
        ats, middles, lows, highs = zip(*columns, strict=True)
        lines.append(Line(name, ats, middles, *(((lows, highs)) if lows != highs else ())))
    several = any(line.low for line in lines)
    title = f"{y_label} over {x_label} by {colour}{'; medians, least to largest shaded' if several else ''}"
    return Chart(title, x_label, y_label, tuple(lines), log_x=_is_wide(x_values), log_y=_is_wide(y_values))


def _numbers(name: str, values: Sequence[Any]) -> tuple[str, list[float]]:
    """Return the label of a column, with the unit, and its values as numbers."""
    if not values:
        raise OptionError(f"nothing to draw: no row has {name}")
    try:
        scale = Scale.of(name, values[0], values[0])
    except OptionError:
        raise OptionError(f"--plot {name}: {values[0]!r} is a text: draw a column of numbers") from None
    return f"{name} ({scale.unit})" if scale.unit else name, [scale.number(value) / scale.size for value in values]


def _is_wide(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) > _WIDE * min(values)


def _draw_chart(chart: Chart) -> Figure:
    figure = style.blank_figure(_HEIGHT, _WIDTH)
    axes = figure.add_subplot()
    for place, line in enumerate(chart.lines):
        colour, marker = _COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)]
        # A marker per point would hide a long line.
        look: dict[str, Any] = {"marker": marker, "markersize": 3.5, "markevery": max(1, len(line.x) // 12)}
        axes.plot(line.x, line.y, color=colour, label=line.name, linewidth=1.2, **look)
        if line.low:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
    style.style_axes(axes)
    for which, is_log in (("x", chart.log_x), ("y", chart.log_y)):
        if is_log:
            bounds = () if which == "x" else ("low", "high")
            limits = style.log_limits(
                value for line in chart.lines for of in (which, *bounds) for value in getattr(line, of)
            )
            style.set_log(axes, which, limits, lambda value: f"{value:g}")
    figure.suptitle(chart.title, fontsize=style.TITLE_SIZE, x=0.01, ha="left")
    style.label_axes(axes, chart.x, chart.y)
    figure.legend(fontsize=style.SMALL_SIZE, frameon=False, loc="outside right center")
    return figure


def _draw_heat_map(heat: HeatMap) -> Figure:
    values = np.array([[np.nan if value is None else value for value in row] for row in heat.values], np.float64)
    height = _HEAD + _CELL_HEIGHT * len(heat.rows)
    figure = style.blank_figure(height, _NAMES_WIDTH + _CELL_WIDTH * len(heat.columns))
    axes = figure.add_subplot()
    # Equal ratios to the middle have equal shades.
    shades = np.log(np.maximum(values, 1e-9) / heat.middle)
    finite = shades[np.isfinite(shades)]
    most = float(np.abs(finite).max()) if len(finite) else 1.0
    axes.imshow(shades, cmap="RdBu", vmin=-(most or 1.0), vmax=most or 1.0, aspect="auto")
    axes.set_xticks(range(len(heat.columns)), heat.columns, rotation=45, ha="left", fontsize=style.SMALL_SIZE)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(heat.rows)), heat.rows, fontsize=style.SMALL_SIZE)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for row, column in np.ndindex(values.shape):
        if np.isfinite(values[row, column]):
            dark = abs(shades[row, column]) > _DARK * most
            place: dict[str, Any] = {"ha": "center", "va": "center", "color": "white" if dark else "black"}
            axes.text(column, row, f"{values[row, column]:.2f}", fontsize=style.SMALL_SIZE, **place)
    style.label_axes(axes, title=heat.title)
    return figure
