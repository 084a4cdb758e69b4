"""Lines per reducer over rates and over workers, and regime maps: who wins by rate, density, overlap and latency."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch, Polygon
from matplotlib.ticker import MaxNLocator, NullLocator

from s2sim.errors import OptionError
from s2sim.experiment.rate_curve import RateCurves
from s2sim.experiment.row_parts import Crossing
from s2sim.experiment.rows import Row
from s2sim.regimes.map import Cell, RegimeMap
from s2sim.report.figures import labels, style
from s2sim.report.figures.reducers import ITERATION, TIME
from s2sim.report.format import workers_text
from s2sim.report.run_tables import scaling_efficiencies
from s2sim.report.study_tables import axis_values
from s2sim.units import format_bytes, format_rate, format_seconds

# Inches: a panel with its labels at least, and what labels take of its height.
_MIN_WIDTH, _MIN_SCALING_WIDTH, _MIN_HEIGHT, _FRAME = 4.0, 3.0, 2.7, 1.05
# Ratio of the largest to the smallest value below which an axis is linear.
_NARROW = 1.5


def break_even_figure(
    curves_by_workers: Mapping[int, RateCurves], subtitle: str = "", rejected: Mapping[str, str] | None = None
) -> Figure:
    """Return speed-ups over dense against the rate by workers; ``rejected`` reducers, with reasons, are pale."""
    panels, rejected = list(curves_by_workers.values()), rejected or {}
    names = []
    for curves in panels:
        reducers = (curves.baseline, *curves.speedups)
        names.append({reducer: labels.label_with_rejection(reducer, rejected) for reducer in reducers})
        # With the sides of its crossings on which it pays.
        for item in _shown_crossings(curves):
            names[-1][item.reducer] += f", {item.pays} {format_rate(item.at_Bps)}"
    compared = "iterations" if panels[0].compute else "communication phases"
    rings = "; rings: break-even" if any(map(_shown_crossings, panels)) else ""
    title = f"Speed-up of {compared} over dense, at other rates{rings}"
    with style.figure_style():
        sizes = [labels.names_size(panel.values()) for panel in names]
        heights = [_FRAME + max(_MIN_HEIGHT, height) for _, height in sizes]
        width = max(style.WIDTH, _MIN_WIDTH + max(width for width, _ in sizes))
        figure, body = labels.figure_with_head(title, subtitle, sum(heights), width)
        drawn = body.subplots(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
        for axes, curves in zip(drawn, panels, strict=True):
            _draw_break_even_panel(axes, curves, rejected)
        figure.draw_without_rendering()
        for axes, curves, panel_names in zip(drawn, panels, names, strict=True):
            ends = {curves.baseline: 1.0} | {reducer: speedups[-1] for reducer, speedups in curves.speedups.items()}
            labels.write_names(axes, ends, panel_names)
        style.fix_layout(figure)
        return figure


def _shown_crossings(curves: RateCurves) -> list[Crossing]:
    low, high = min(curves.rates_Bps), max(curves.rates_Bps)
    return [item for item in curves.crossings if low <= item.at_Bps <= high]


def _draw_break_even_panel(axes: Axes, curves: RateCurves, rejected: Mapping[str, str]) -> None:
    low, high = limits = (min(curves.rates_Bps) * 0.9, max(curves.rates_Bps))
    style.style_axes(axes)
    values = [value for speedups in curves.speedups.values() for value in speedups]
    style.set_log(axes, "y", style.log_limits(values, include=1.0), lambda value: f"{value:g}x")
    style.set_log(axes, "x", limits, format_rate, unit=style.GBPS)
    above = axes.secondary_xaxis("top")
    ticks = style.log_ticks(*limits, most=5)
    above.set_xticks(ticks, [f"{format_bytes(tick)}/s" for tick in ticks])
    above.xaxis.set_minor_locator(NullLocator())
    above.tick_params(labelsize=style.SMALL_SIZE, color=style.GREY, labelcolor=style.GREY, length=2)
    above.spines["top"].set_color(style.GREY)
    axes.axhline(1.0, color=style.family_style("dense").colour, linewidth=1.2, zorder=1.5)
    for reducer, dash in style.line_styles(curves.speedups).items():
        line, speedups = _line_style(reducer, dash, rejected), curves.speedups[reducer]
        axes.plot(curves.rates_Bps, speedups, **line, label=reducer, markevery=max(1, len(speedups) // 5))
    axes.axvline(curves.own_Bps, color=style.GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    # On the side that has more room.
    side = 1 if curves.own_Bps**2 < low * high else -1
    look = {"xycoords": ("data", "axes fraction"), "ha": "left" if side > 0 else "right", "bbox": style.WHITE_BOX}
    text = f"here: {format_rate(curves.own_Bps)}"
    style.label_point(axes, text, (curves.own_Bps, 0.0), (3 * side, 3), color=style.GREY, **look)
    crossings = _shown_crossings(curves)
    edges = [style.family_style(style.family_of(item.reducer)).colour for item in crossings]
    rings: dict[str, Any] = {"s": 28, "facecolor": "white", "edgecolor": edges, "linewidth": 1.4, "zorder": 4}
    axes.scatter([item.at_Bps for item in crossings], [1.0] * len(crossings), **rings)
    title = f"{workers_text(curves.workers)}{', extrapolated' if curves.extrapolated else ''}"
    style.label_axes(axes, f"{curves.field} (bits per second; above: bytes)", "speed-up over dense", title)


def _line_style(reducer: str, dash: str, rejected: Mapping[str, str]) -> dict[str, Any]:
    look, alpha = style.family_style(style.family_of(reducer)), labels.PALE if reducer in rejected else 1.0
    line = {"color": look.colour, "linestyle": dash, "linewidth": 1.4, "alpha": alpha}
    return {**line, "marker": look.marker, "markersize": 5.0}


def scaling_figure(
    rows_by_workers: Mapping[int, Sequence[Row]], subtitle: str = "", rejected: Mapping[str, str] | None = None
) -> Figure:
    """Return time and efficiency of each reducer against the number of workers.

    If iterations were simulated, efficiency is the throughput per worker over that with the fewest workers. If compute
    was only added, it is the share of an iteration in which GPUs compute; without compute, the speed-up over dense
    replaces it. ``rejected`` is as in `break_even_figure`. `OptionError` for a single number of workers.
    """
    if len(rows_by_workers) < 2:
        counts = ", ".join(map(str, rows_by_workers)) or "none"
        raise OptionError(f"scaling needs several numbers of workers, but found {counts}: --workers 8,16,32")
    rows = [row for rows in rows_by_workers.values() for row in rows]
    rejected = rejected or {}
    names = {row.reducer: labels.label_with_rejection(row.option_string, rejected) for row in rows}
    quantities = _scaling_quantities(rows)
    mark = "; hollow: extrapolated" if any(row.extrapolated for row in rows) else ""
    title = f"How reducers scale with the number of workers{mark}"
    with style.figure_style():
        names_width, names_height = labels.names_size(names.values())
        width = max(style.WIDTH, 2 * _MIN_SCALING_WIDTH + names_width)
        figure, body = labels.figure_with_head(title, subtitle, _FRAME + max(_MIN_HEIGHT, names_height), width)
        for axes, quantity in zip(body.subplots(1, 2), quantities, strict=True):
            _draw_scaled(axes, quantity, rows, rejected)
        figure.draw_without_rendering()
        largest = {row.reducer: quantities[-1].of(row) for row in sorted(rows, key=lambda row: row.workers)}
        labels.write_names(axes, largest, names)
        style.fix_layout(figure)
        return figure


def _scaling_quantities(rows: Sequence[Row]) -> tuple[style.PlottedQuantity, style.PlottedQuantity]:
    percent = "{:.0%}".format

    def efficiency(row: Row) -> float:
        assert row.iteration_s is not None
        return 1 - row.time_s.total / row.iteration_s if row.iteration_s else 1.0

    if all(row.iteration is not None for row in rows):
        names = dict.fromkeys(row.reducer for row in rows)
        shares = {name: scaling_efficiencies(row for row in rows if row.reducer == name) for name in names}
        title = f"throughput of a worker over that of {min(row.workers for row in rows)}"
        return (
            ITERATION,
            style.PlottedQuantity(title, lambda row: shares[row.reducer][row.workers], percent, mark=1.0, share=True),
        )
    if rows[0].iteration_s is not None:
        return TIME, style.PlottedQuantity("time that GPUs compute", efficiency, percent, mark=1.0, share=True)
    return TIME, style.PlottedQuantity(
        "speed-up over dense", lambda row: row.speedup_vs_dense, lambda value: f"{value:g}x", mark=1.0
    )


def _draw_scaled(axes: Axes, quantity: style.PlottedQuantity, rows: Sequence[Row], rejected: Mapping[str, str]) -> None:
    style.style_axes(axes)
    counts = sorted({row.workers for row in rows})
    values = [value for value in map(quantity.shown, rows) if isfinite(value)]
    if quantity.share:
        axes.set_ylim(max(0.0, floor(10 * min(values) - 0.2) / 10), max(1.02, 1.02 * max(values)))
    if quantity.share or (quantity.mark is None and values and max(values) < _NARROW * min(values)):
        # Round numbers of a logarithmic axis would be too far apart.
        axes.yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(lambda value, _: quantity.text(value))
    else:
        style.set_log(axes, "y", style.log_limits(map(quantity.of, rows), include=quantity.mark), quantity.text)
    style.set_log(axes, "x", style.log_limits(counts, air=0.06), lambda value: f"{value:g}")
    axes.set_xticks(counts, map(str, counts))
    if quantity.mark is not None:
        axes.axhline(quantity.mark, color=style.GREY, linewidth=1.0, zorder=1)
    for name, dash in style.line_styles(dict.fromkeys(row.reducer for row in rows)).items():
        points = sorted((row for row in rows if row.reducer == name), key=lambda row: row.workers)
        line = _line_style(name, dash, rejected)
        axes.plot([row.workers for row in points], [quantity.shown(row) for row in points], **line, label=name)
        hollow = [row for row in points if row.extrapolated]
        line |= {"linestyle": "", "markerfacecolor": "white"}
        axes.plot([row.workers for row in hollow], [quantity.shown(row) for row in hollow], **line)
    style.label_axes(axes, "workers", title=quantity.title)
    axes.tick_params(axis="x", labelsize=style.SMALL_SIZE)


MAX_CELLS = 4000
"""Limit of drawn fields."""

# Inches: a field, the least size of a panel with its titles, labels and legend around the panels, and the figure.
_FIELD_WIDTH, _FIELD_HEIGHT, _PANEL_WIDTH, _PANEL_HEIGHT = 0.52, 0.3, 1.95, 1.0
_AROUND_WIDTH, _AROUND_HEIGHT, _MAP_WIDTH = 1.2, 1.4, 5.2
# Hatches of the reducers of one family, in order.
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\")
_EMPTY = "#f2f2f2"
# Luminance (ITU-R BT.709) above which black reads better than white.
_BRIGHT = 0.42


@dataclass(frozen=True, slots=True)
class _CellStyle:
    colour: str
    hatch: str

    @property
    def ink(self) -> str:
        """The colour of numbers on the field."""
        red, green, blue = (int(self.colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > _BRIGHT else "white"


def draw_regimes(result: RegimeMap, file_format: str) -> bytes:
    """Return the figure of a map, missing cells empty: the same bytes for the same map and release of matplotlib."""
    check_picture_size(result.spec.cells)
    densities, overlaps, rates, latencies = axis_values(result.cells)
    fills = _cell_styles(result)
    width = max(_MAP_WIDTH, _AROUND_WIDTH + len(overlaps) * max(_PANEL_WIDTH, _FIELD_WIDTH * len(rates)))
    height = _AROUND_HEIGHT + len(latencies) * max(_PANEL_HEIGHT, _FIELD_HEIGHT * len(densities))
    note = f"Colour: fastest with a relative L2 error up to {result.spec.max_error:g}. Number: its speed-up over dense."
    if any(cell.ties for cell in result.cells):
        note += " Corner: what ties within 1 %."
    if never := [reducer for reducer in result.spec.reducers if reducer not in fills]:
        note += f"\nFastest nowhere: {', '.join(never)}."
    with style.figure_style():
        figure, body = labels.figure_with_head(result.cluster, note, height, width)
        if result.cells:
            _draw_panels(body, result.cells, fills)
        look: dict[str, Any] = {"edgecolor": "white", "linewidth": 0}
        handles = [Patch(facecolor=fill.colour, hatch=fill.hatch, label=name, **look) for name, fill in fills.items()]
        labels.write_legend(body, handles)
        return style.figure_bytes(figure, file_format)


def _draw_panels(body: SubFigure, cells: Sequence[Cell], fills: dict[str, _CellStyle]) -> None:
    densities, overlaps, rates, latencies = axis_values(cells)
    known = {(cell.overlap, cell.latency_s, cell.density, cell.rate_Bps): cell for cell in cells}
    panels = body.subplots(len(latencies), len(overlaps), sharex=True, sharey=True, squeeze=False)
    for latency, row in zip(latencies, panels, strict=True):
        for overlap, axes in zip(overlaps, row, strict=True):
            fields = [[known.get((overlap, latency, density, rate)) for rate in rates] for density in densities]
            _draw_panel(axes, fields, fills)
        row[-1].yaxis.set_label_position("right")
        row[-1].set_ylabel(f"latency {format_seconds(latency)}", fontsize=style.TEXT_SIZE, rotation=270, labelpad=12)
    for overlap, axes in zip(overlaps, panels[0], strict=True):
        meaning = {0.0: " (each rank its own rows)", 1.0: " (all ranks the same rows)"}.get(overlap, "")
        axes.set_title(f"overlap {overlap:g}{meaning}", fontsize=style.TEXT_SIZE, pad=4)
    for axes in panels[-1]:
        style.label_axes(axes, "rate of a NIC")
    rate_names = [format_rate(rate).replace(" ", "\n") for rate in rates]
    panels[-1, 0].set_xticks([x + 0.5 for x in range(len(rates))], rate_names)
    panels[-1, 0].set_yticks([y + 0.5 for y in range(len(densities))], [f"{density:g}" for density in densities])
    body.supylabel("density: share of the rows\nthat one rank holds", fontsize=style.TEXT_SIZE)


def check_picture_size(cells: int) -> None:
    """Raise `OptionError` for a figure that would be too large to read."""
    if cells > MAX_CELLS:
        raise OptionError(f"a picture of {cells} cells was asked for: it shows at most {MAX_CELLS}; take fewer values")


def _cell_styles(result: RegimeMap) -> dict[str, _CellStyle]:
    drawn = {reducer for cell in result.cells for reducer in (cell.winner, *cell.ties)}
    families = {reducer: style.family_of(reducer) for reducer in result.spec.reducers if reducer in drawn}
    hatches = style.vary_in_family(families.values(), _HATCHES)
    looks = zip(families.items(), hatches, strict=True)
    return {reducer: _CellStyle(style.family_style(family).colour, hatch) for (reducer, family), hatch in looks}


def _draw_panel(axes: Axes, fields: Sequence[Sequence[Cell | None]], fills: dict[str, _CellStyle]) -> None:
    axes.set(xlim=(0, len(fields[0])), ylim=(0, len(fields)))
    axes.tick_params(length=0, labelsize=style.SMALL_SIZE, pad=3)
    axes.spines[:].set_visible(False)
    for y, row in enumerate(fields):
        for x, cell in enumerate(row):
            fill = _CellStyle(_EMPTY, "") if cell is None else fills[cell.winner]
            _draw_shape(axes, [(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)], fill)
            if cell is None:
                continue
            if cell.ties:
                _draw_shape(axes, [(x + 1, y + 0.3), (x + 1, y + 1), (x + 0.68, y + 1)], fills[cell.ties[0]])
            text = axes.text(x + (0.45 if cell.ties else 0.5), y + 0.48, _speedup_text(cell.speedup_vs_dense))
            text.set(fontsize=style.SMALL_SIZE, color=fill.ink, ha="center", va="center")
            if fill.hatch:
                text.set_bbox({"boxstyle": "square,pad=0.12", "facecolor": fill.colour, "edgecolor": "none"})


def _draw_shape(axes: Axes, corners: Sequence[tuple[float, float]], fill: _CellStyle) -> None:
    axes.add_patch(Polygon(corners, facecolor=fill.colour, hatch=fill.hatch, edgecolor="white", linewidth=0.0))
    axes.add_patch(Polygon(corners, fill=False, edgecolor="white", linewidth=0.9))


def _speedup_text(value: float) -> str:
    """Return a ratio with three digits or more.

    >>> _speedup_text(1.3), _speedup_text(11.04), _speedup_text(1234.5)
    ('1.30×', '11.0×', '1234×')
    """
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f}\N{MULTIPLICATION SIGN}"
