"""Loss and accuracy of several reducers against iterations and against simulated time, with bands over seeds."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from s2sim.report.figures.axes import GREY, SMALL_SIZE, TEXT_SIZE, WIDTH, blank_figure, plain
from s2sim.report.figures.colours import family_of, look_of
from s2sim.report.figures.figure_file import figure_bytes, one_look
from s2sim.words import number_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from s2sim.arrays import Floats
    from s2sim.study.convergence.curve import Curve
    from s2sim.study.convergence.result import Trained

# Inches.
_HEIGHT, _LETTER = 5.0, 0.058
# Lines of one family, which share its colour.
_DASHES = ("-", "--", ":", "-.")


def draw_training(result: Trained, file_format: str) -> bytes:
    """Return the picture of a training: the same bytes for the same result and release of matplotlib."""
    with one_look():
        figure = blank_figure(_HEIGHT)
        axes = figure.subplots(2, 2, sharey="row", sharex="col")
        handles: list[Line2D] = []
        for row, what in enumerate(("loss", "accuracy")):
            for column, against in enumerate(("iterations", "time")):
                drawn = _draw_panel(axes[row][column], result, what, against)
                handles = drawn if not row and not column else handles
        axes[0][0].set_ylabel("loss on held-out data", fontsize=TEXT_SIZE)
        axes[1][0].set_ylabel(f"right: {result.score}", fontsize=TEXT_SIZE)
        axes[1][0].set_xlabel("iterations", fontsize=TEXT_SIZE)
        axes[1][1].set_xlabel(f"simulated time ({_unit(result)[1]})", fontsize=TEXT_SIZE)
        names = [row.reducer for row in result.rows]
        widest = max(map(len, names)) * _LETTER + 0.4
        figure.legend(
            handles,
            names,
            loc="outside lower center",
            ncols=max(1, int(WIDTH / widest)),
            fontsize=SMALL_SIZE,
            frameon=False,
        )
        seeds = number_of(result.spec.seeds, "seed")
        told = f"{result.headline}. Lines are means over {seeds}, bands from the least to the most of them."
        figure.suptitle("\n".join(wrap(told, int(WIDTH / _LETTER))), fontsize=SMALL_SIZE, x=0.01, ha="left", color=GREY)
        return figure_bytes(figure, file_format)


def _draw_panel(axes: Axes, result: Trained, what: str, against: str) -> list[Line2D]:
    handles: list[Line2D] = []
    families: dict[str, int] = {}
    for row in result.rows:
        curves = [each for each in result.curves if each.reducer == row.reducer]
        family = family_of(row.reducer)
        dash = _DASHES[families.get(family, 0) % len(_DASHES)]
        families[family] = families.get(family, 0) + 1
        points = min(len(each.iterations) for each in curves)
        iterations = curves[0].iterations[:points]
        values = np.array([_values(each, what)[:points] for each in curves])
        scale = _unit(result)[0]
        times = np.mean([each.time_s[:points] for each in curves], axis=0) / scale
        where = iterations if against == "iterations" else times
        colour = look_of(family).colour
        handles += axes.plot(where, values.mean(axis=0), dash, color=colour, linewidth=1.2)
        axes.fill_between(where, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    if result.target is not None and result.target.what == what:
        axes.axhline(result.target.value, color=GREY, linewidth=0.6, linestyle=":")
    _frame(axes, result, what)
    return handles


def _frame(axes: Axes, result: Trained, what: str) -> None:
    """Show what dense and its like do: what diverges leaves the picture at the top."""
    starts = [_values(each, what)[0] for each in result.curves]
    lows = [_values(each, what).min() for each in result.curves]
    highs = [_values(each, what).max() for each in result.curves]
    top = max(starts) * 1.1 if what == "loss" else min(1.0, max(highs) * 1.1)
    bottom = min(lows) - 0.05 * (top - min(lows)) if what == "loss" else 0.0
    axes.set_ylim(bottom, top)
    axes.set_xlim(left=0)
    axes.tick_params(labelsize=SMALL_SIZE)
    plain(axes)


def _values(curve: Curve, what: str) -> Floats:
    return curve.eval_loss if what == "loss" else curve.accuracy


def _unit(result: Trained) -> tuple[float, str]:
    longest = max(float(each.time_s[-1]) for each in result.curves)
    return (1.0, "s") if longest >= 1 else (1e-3, "ms")
