"""Curves of training, and predicted against measured times of collectives on one page."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log2, log10

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from s2sim.arrays import Floats
from s2sim.report.figures import style
from s2sim.report.figures.labels import figure_with_head, write_legend
from s2sim.report.format import signed_text
from s2sim.training.curve import Curve
from s2sim.training.result import TrainResult
from s2sim.units import format_number_of, format_seconds
from s2sim.validation.curve_result import CurveErrors

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
    starts, lows, highs = zip(
        *((values[0], values.min(), values.max()) for values in (_values(curve, what) for curve in result.curves)),
        strict=True,
    )
    top = max(starts) * 1.1 if what == "loss" else min(1.0, max(highs) * 1.1)
    bottom = min(lows) - 0.05 * (top - min(lows)) if what == "loss" else 0.0
    axes.set_ylim(bottom, top)
    axes.set_xlim(left=0)
    axes.tick_params(labelsize=style.SMALL_SIZE)
    style.style_axes(axes)


def _values(curve: Curve, what: str) -> Floats:
    return curve.eval_loss if what == "loss" else curve.accuracy


def _unit(result: TrainResult) -> tuple[float, str]:
    longest_s = max(float(curve.time_s[-1]) for curve in result.curves)
    return (1.0, "s") if longest_s >= 1 else (1e-3, "ms")


# Inches.
_WIDTH, _CURVES_HEIGHT = 3.3, 2.3
_CURVES_LEFT, _RIGHT, _CURVES_TOP, _CURVES_BOTTOM = 0.62, 0.12, 0.45, 0.35
_COLUMNS = 3
_MEASURED, _PREDICTED = "#222222", "#d1495b"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def curves_svg(curves: Sequence[CurveErrors]) -> str:
    """Return an SVG with a panel per curve: time over size, both logarithmic."""
    rows, columns = ceil(len(curves) / _COLUMNS), min(_COLUMNS, len(curves))
    width, height = columns * _WIDTH, rows * _CURVES_HEIGHT
    across, along = _CURVES_LEFT + _RIGHT, _CURVES_TOP + _CURVES_BOTTOM
    edges = (_CURVES_LEFT / width, _CURVES_BOTTOM / height, 1 - _RIGHT / width, 1 - _CURVES_TOP / height)
    with style.figure_style():
        figure = Figure(figsize=(width, height), facecolor="white")
        figure.subplots_adjust(*edges, across / (_WIDTH - across), along / (_CURVES_HEIGHT - along))
        for number, curve in enumerate(curves, 1):
            _draw_curve_panel(figure.add_subplot(rows, columns, number), curve)
    return style.svg_text(figure)


def _draw_curve_panel(axes: Axes, curve: CurveErrors) -> None:
    sizes = [log2(point.size_bytes) for point in curve.points]
    predicted = [(size, log10(p.predicted_s)) for size, p in zip(sizes, curve.points, strict=True) if p.predicted_s > 0]
    measured = [log10(point.measured_s) for point in curve.points]
    axes.plot(sizes, measured, "o", color=_MEASURED, markersize=2.5)
    axes.plot([size for size, _ in predicted], [time for _, time in predicted], color=_PREDICTED, linewidth=1.2)
    # Logarithms by hand: axes of decades take ten times as long to draw.
    times = [*measured, *(time for _, time in predicted)]
    decades = range(floor(min(times)), ceil(max(times)) + 1)
    axes.set_yticks(list(decades), [format_seconds(10.0**decade) for decade in decades])
    first, last = round(min(sizes)), round(max(sizes))
    powers = [power for power in range(0, last + 1, 5) if power >= first] or [first]
    axes.set_xticks(powers, [f"{2 ** (power % 10)} {_UNITS[power // 10]}" for power in powers])
    axes.tick_params(labelsize=style.SMALL_SIZE, color=style.GREY, length=2)
    axes.grid(visible=True, color="#e4e4e4", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    mark = "" if curve.counts else " (apart)"
    bias = f"{signed_text(curve.signed_log_error_large)} / {signed_text(curve.signed_log_error_small)}"
    axes.set_title(f"{curve.id}{mark}\n{bias}", fontsize=style.SMALL_SIZE, loc="left")
