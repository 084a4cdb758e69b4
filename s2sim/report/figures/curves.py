"""Curves of training, and predicted against measured times of collectives on one page."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from s2sim.arrays import Floats
from s2sim.report.figures import style
from s2sim.report.figures.labels import figure_with_head, write_legend
from s2sim.training.curve import Curve
from s2sim.training.result import TrainResult
from s2sim.units import format_number_of

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
