"""Charts of any numbers, curves of training, when gradients are ready, times on testbeds, messages of schedules."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from s2sim.arrays import Floats
from s2sim.claims.paper import Chart, HeatMap
from s2sim.report.figures import style
from s2sim.report.figures.labels import figure_with_head, write_legend
from s2sim.report.figures.style import GREY, SMALL_SIZE, TEXT_SIZE, WHITE_BOX, figure_bytes, figure_style, label_axes
from s2sim.report.log_comparison import rate_text
from s2sim.report.traffic_tables import MessageRow, place_name, spans_text
from s2sim.training.curve import Curve
from s2sim.training.result import TrainResult
from s2sim.units import format_bytes, format_count, format_number_of, format_seconds
from s2sim.validation.testbed import ComparedTime, PredictionComparison

# Inches.
_WIDTH, _HEIGHT = 7.2, 3.6
_CELL_WIDTH, _CELL_HEIGHT, _NAMES_WIDTH, _HEAD = 0.62, 0.26, 2.0, 1.5
# Tol's "bright" scheme (SRON/EPS/TN/09-002) and black.
_COLOURS = ("#000000", "#EE6677", "#228833", "#4477AA", "#CCBB44", "#66CCEE", "#AA3377", "#888888")
_MARKERS = ("s", "v", "o", "^", "D", "P", "X", "*")
_DARK = 0.6  # share of the range from the middle colour to either end above which letters are white


def chart_figure(picture: Chart | HeatMap) -> Figure:
    """Return a picture as a figure, to be written by `s2sim.report.figures.style.figure_bytes`."""
    with style.figure_style():
        return _draw_chart(picture) if isinstance(picture, Chart) else _draw_heat_map(picture)


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
            fields = ("x",) if which == "x" else ("y", "low", "high")
            limits = style.log_limits(value for line in chart.lines for of in fields for value in getattr(line, of))
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


# Inches.
_TRAINING_HEIGHT = 4.6


def draw_training(result: TrainResult, file_format: str) -> bytes:
    """Return the picture of a training: the same bytes for the same result and release of matplotlib."""
    seeds = format_number_of(result.spec.seeds, "seed")
    bands = f"Lines are means over {seeds}, bands from the least to the most of them."
    with style.figure_style():
        figure, body = figure_with_head(f"{result.headline}.", bands, _TRAINING_HEIGHT)
        axes = body.subplots(2, 2, sharey="row", sharex="col")
        for row, what in zip(axes, ("loss", "accuracy"), strict=True):
            for panel, against in zip(row, ("iterations", "time"), strict=True):
                _draw_training_panel(panel, result, what, against)
        style.label_axes(axes[0][0], y="loss on held-out data")
        style.label_axes(axes[1][0], "iterations", f"right: {result.score}")
        style.label_axes(axes[1][1], f"simulated time ({_unit(result)[1]})")
        write_legend(body, axes[0][0].lines[: len(result.rows)])
        return style.figure_bytes(figure, file_format)


def _draw_training_panel(axes: Axes, result: TrainResult, what: str, against: str) -> None:
    for reducer, dash in style.line_styles(row.reducer for row in result.rows).items():
        curves = [curve for curve in result.curves if curve.reducer == reducer]
        points = min(len(curve.iterations) for curve in curves)
        values = np.array([_values(curve, what)[:points] for curve in curves])
        times = np.mean([curve.time_s[:points] for curve in curves], axis=0) / _unit(result)[0]
        where = curves[0].iterations[:points] if against == "iterations" else times
        colour = style.family_style(style.family_of(reducer)).colour
        axes.plot(where, values.mean(axis=0), dash, color=colour, linewidth=1.2, label=reducer)
        axes.fill_between(where, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    if result.target is not None and result.target.what == what:
        axes.axhline(result.target.value, color=style.GREY, linewidth=0.6, linestyle=":")
    # Curves that diverge leave the figure at the top.
    drawn = [_values(curve, what) for curve in result.curves]
    starts, lows, highs = zip(*((values[0], values.min(), values.max()) for values in drawn), strict=True)
    top = max(starts) * 1.1 if what == "loss" else min(1.0, max(highs) * 1.1)
    axes.set_ylim(min(lows) - 0.05 * (top - min(lows)) if what == "loss" else 0.0, top)
    axes.set_xlim(left=0)
    axes.tick_params(labelsize=style.SMALL_SIZE)
    style.style_axes(axes)


def _values(curve: Curve, what: str) -> Floats:
    return curve.eval_loss if what == "loss" else curve.accuracy


def _unit(result: TrainResult) -> tuple[float, str]:
    longest_s = max(float(curve.time_s[-1]) for curve in result.curves)
    return (1.0, "s") if longest_s >= 1 else (1e-3, "ms")


_PROFILE_HEIGHT = 3.2
# Share of all bytes from which tensors have their name next to the curve.
_NAMED_SHARE = 0.08


def profile_figure(described: Mapping[str, Any]) -> Figure:
    """Return the bytes of gradients that are ready over the time of backward, from the description of a profile."""
    whole, backward_s = described["gradient_bytes"], described["backward_s"]
    times = [0.0, *(tensor["ready_s"] for tensor in described["tensors"])]
    ready = [0, *(tensor["ready_bytes"] for tensor in described["tensors"])]
    parameters = f"{format_count(described['parameters'])} parameters, {len(described['tensors'])} tensors"
    about = f"{described['gpu']}, {described['batch']} x {described['sample']}"
    with style.figure_style():
        figure, below = figure_with_head(
            f"When gradients of {described['model']} are ready in backward ({described['kind']})",
            f"{parameters}, {format_bytes(whole)} in float32; {about}; {described['source']}",
            _PROFILE_HEIGHT,
        )
        axes = below.subplots()
        style.style_axes(axes)
        axes.step(times, ready, where="post", color=style.FAMILY_STYLES["owner-reduce"].colour, linewidth=1.4)
        axes.plot([0, backward_s], [0, whole], color=style.GREY, linewidth=0.8, linestyle=":", zorder=1)
        for tensor in described["tensors"]:
            if tensor["bytes"] >= _NAMED_SHARE * whole:
                late = tensor["ready_s"] > backward_s / 2
                text = f"{tensor['name']}, {format_bytes(tensor['bytes'])} "
                point = (tensor["ready_s"], tensor["ready_bytes"] - tensor["bytes"] / 2)
                look = {"ha": "right" if late else "left", "va": "center", "color": style.GREY, "bbox": style.WHITE_BOX}
                style.label_point(axes, text, point, (-4 if late else 4, 0), **look)
        axes.set(xlim=(0, backward_s * 1.02 or 1.0), ylim=(0, whole * 1.04))
        axes.xaxis.set_major_formatter(lambda value, _: format_seconds(value))
        axes.yaxis.set_major_formatter(lambda value, _: format_bytes(value) if value else "0")
        style.label_axes(axes, "since backward began (dotted: bytes in proportion to time)")
        axes.set_title("gradients ready", fontsize=style.TEXT_SIZE, loc="left")
        return figure


# Inches: the height of a panel, and of title and legend.
_PANEL, _AROUND = 2.1, 0.9


def times_figure(result: PredictionComparison) -> Figure:
    """Return a panel per number of workers and collective: dots are measured, lines predicted, by rate."""
    points = [point for point in result.points if point.kind == "collectives"]
    kinds = list(dict.fromkeys(point.what for point in points))
    workers = sorted({point.workers for point in points})
    rates = sorted({point.rate_Bps for point in points})
    with style.figure_style():
        about = "measured (dots, 10 to 90 %) and predicted (lines)"
        title = f"Time of collectives: {about}; told by {result.calibrated_on}"
        shape = max(len(workers), 1), max(len(kinds), 1)
        figure = Figure((style.WIDTH, _PANEL * shape[0] + _AROUND), layout="constrained")
        figure.suptitle(title, fontsize=style.TEXT_SIZE)
        panels = figure.subplots(*shape, sharex=True, sharey=True, squeeze=False)
        for row, count in zip(panels, workers, strict=False):
            for axes, kind in zip(row, kinds, strict=False):
                _draw_times(axes, [p for p in points if (p.workers, p.what) == (count, kind)], rates)
                axes.set_title(f"{kind}, {count} workers", fontsize=style.SMALL_SIZE)
        # One legend for the lines of all panels.
        lines = {line.get_label(): line for axes in panels.flat for line in axes.lines}
        write_legend(figure, [lines[name] for name in map(rate_text, rates) if name in lines])
    return figure


def _draw_times(axes: Axes, points: Sequence[ComparedTime], rates: Sequence[float]) -> None:
    for number, rate_Bps in enumerate(rates):
        own = sorted((point for point in points if point.rate_Bps == rate_Bps), key=lambda point: point.payload_bytes)
        if not own:
            continue
        sizes = [point.payload_bytes for point in own]
        colour = f"C{number % 10}"
        axes.plot(sizes, [p.predicted_s for p in own], color=colour, linewidth=1, label=rate_text(rate_Bps))
        spread = [[p.measured_s - p.low_s for p in own], [p.high_s - p.measured_s for p in own]]
        axes.errorbar(sizes, [p.measured_s for p in own], spread, fmt="o", color=colour, markersize=2.5, elinewidth=0.7)
    set_log_scales(axes)
    axes.xaxis.set_major_formatter(lambda size, _: format_bytes(size))
    axes.yaxis.set_major_formatter(lambda seconds, _: format_seconds(seconds))


def set_log_scales(axes: Axes) -> None:
    """Make both axes logarithmic."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.tick_params(labelsize=style.SMALL_SIZE)


# Inches: around the axes, a rank, a round, and the width of the figure.
_AROUND_HEIGHT, _PLACE, _ROUND_WIDTH, _MIN_WIDTH, _MAX_WIDTH = 1.3, 0.42, 0.9, 8.5, 19.0
_LABEL_SIZE = 6.0  # points
_LABEL: dict[str, Any] = {"fontsize": _LABEL_SIZE, "ha": "center", "va": "center", "bbox": WHITE_BOX}
_ARROW: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 7, "shrinkA": 0, "shrinkB": 0, "linewidth": 1.1}
# Limits of messages and of letters up to which messages have labels.
_MAX_LABELS, _MAX_LABEL = 40, 12
# Their position as a share of the arrow: near the source, where arrows are apart.
_LABEL_AT = 0.2
_REPLACES = (0, (4, 2))
# Units of a time axis, the largest first.
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"), (1e-12, "ps"))


def draw_schedule(
    messages: Sequence[MessageRow], file_format: str, *, ranks: int, helpers: int = 0, title: str
) -> bytes:
    """Return the figure of a schedule's timed messages between ranks, helpers, and a switch if a message needs it."""
    places: list[int | None] = list(range(ranks + helpers))
    if any(message.src is None or message.dst is None for message in messages):
        places.append(None)
    times_s = [(message.start_s or 0.0, message.end_s or 0.0) for message in messages]
    end_s = max((end for _, end in times_s), default=0.0)
    unit_s, unit = next((each for each in _UNITS if end_s >= each[0]), _UNITS[-1])
    times = [(start / unit_s, end / unit_s) for start, end in times_s]
    rounds = len({(message.step, message.time) for message in messages})
    width = min(_MAX_WIDTH, max(_MIN_WIDTH, _ROUND_WIDTH * rounds))
    with figure_style():
        figure, body = figure_with_head(title, "", _AROUND_HEIGHT + _PLACE * max(2, len(places)), width)
        axes = body.subplots()
        for y in range(len(places)):
            axes.axhline(y, color="#c8c8c8", linewidth=0.9, zorder=1)
        for x in sorted({start for start, _ in times}):
            axes.axvline(x, color="#e6e6e6", linewidth=0.6, zorder=0)
        axes.set_yticks(range(len(places)), [place_name(place, ranks) for place in places], fontsize=TEXT_SIZE)
        axes.tick_params(length=0, labelsize=TEXT_SIZE)
        axes.spines[:].set_visible(False)
        label_axes(axes, f"time ({unit})", "rank")
        end = end_s / unit_s or 1.0
        axes.set(xlim=(-0.01 * end, 1.01 * end), ylim=(len(places) - 0.4, -0.6))
        # Of messages by the first position that they carry; the palest of the map cannot be seen on white.
        firsts = [_first_position(message) for message in messages if message.spans] or [0]
        shades = [colormaps["viridis"](share * 0.9 / 255) for share in range(256)]
        scale = LinearSegmentedColormap.from_list("positions", shades)
        colours = ScalarMappable(Normalize(min(firsts), max(firsts)), scale)
        longest = max((len(spans_text(message.spans, most=1)) for message in messages), default=0)
        several = len(set(colours.get_clim())) > 1
        labelled = several and len(messages) <= _MAX_LABELS and longest <= _MAX_LABEL
        tints = colours.to_rgba(np.array([_first_position(message) for message in messages], np.float64))
        for message, (left, right), colour in zip(messages, times, tints, strict=True):
            start, end_point = (left, places.index(message.src)), (right, places.index(message.dst))
            dash = "-" if message.adds else _REPLACES
            axes.add_patch(FancyArrowPatch(start, end_point, **_ARROW, color=colour, linestyle=dash, zorder=3))
            axes.plot(*start, marker="o", markersize=2.6, color=colour, zorder=4)
            if labelled:
                at_x, at_y = (first + _LABEL_AT * (last - first) for first, last in zip(start, end_point, strict=True))
                axes.text(at_x, at_y, spans_text(message.spans, most=1), **_LABEL, color=colour, zorder=5)
        present = {message.adds for message in messages}
        added = Line2D([], [], color=GREY, linewidth=1.2, label="is added to what the rank has")
        replaced = Line2D([], [], color=GREY, linewidth=1.2, linestyle=_REPLACES, label="replaces what the rank has")
        write_legend(body, [sample for adds, sample in ((True, added), (False, replaced)) if adds in present])
        if several:
            ends = colours.get_clim()
            look: dict[str, Any] = {"shrink": 0.25, "aspect": 22, "anchor": (1.0, 0.0), "pad": 0.02}
            key = body.colorbar(colours, ax=axes, location="bottom", **look)
            key.set_ticks(ends, labels=[f"{end:,.0f}" for end in ends])
            key.outline.set_visible(False)
            key.ax.tick_params(labelsize=_LABEL_SIZE, length=0, pad=2)
            key.ax.set_title("first position that a message carries", fontsize=SMALL_SIZE, pad=3)
        return figure_bytes(figure, file_format)


def _first_position(message: MessageRow) -> int:
    return message.spans[0][0] if message.spans else 0
