"""Bars of time, one a reducer, in a panel a number of workers: what their pictures have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from s2sim.report.figures.axes import (
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    WIDTH,
    blank_figure,
    plain,
    rows_title,
    settle,
    text_size,
)
from s2sim.report.figures.figure_file import one_look
from s2sim.report.figures.head import headed
from s2sim.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from s2sim.study.measuring.result import Row

# Inches: of what surrounds the bars of a panel, of the legend; at least for bars and what stands beside them.
_FRAME, _LEGEND = 0.8, 0.3
_LEAST_INNER = 4.6
# Points between a bar and its text.
_GAP = 5.0


class Bars(NamedTuple):
    """What a picture of bars shows.

    Attributes
    ----------
    title, of_time : str
        What it is, and of what the time on its axis.
    inches : float
        Height of a row's place.
    draw : callable
        Draws the bars of rows, at 0, 1, ... from the top.
    length_s : callable
        How long a row's bar is.
    text : callable
        What stands beside it.
    """

    title: str
    of_time: str
    inches: float
    draw: Callable[[Axes, Sequence[Row]], None]
    length_s: Callable[[Row], float]
    text: Callable[[Row], str]


def bars_figure(
    bars: Bars, rows_by_workers: Mapping[int, Sequence[Row]], subtitle: str, legend: Callable[[], Sequence[Artist]]
) -> Figure:
    """Return, for each number of workers, a bar for each reducer; the axis is linear, so that lengths add up.

    Parameters
    ----------
    legend : callable
        Returns what a legend below all bars explains; in a row as long as there is room.
    """
    titles = {workers: rows_title(rows) for workers, rows in rows_by_workers.items()}
    heights = [_FRAME + bars.inches * len(rows) for rows in rows_by_workers.values()]
    every = [row for rows in rows_by_workers.values() for row in rows]
    with one_look():
        sample = blank_figure(1.0)
        name_width = max(float(text_size(sample, row.reducer)[0]) for row in every) * TEXT_SIZE / SMALL_SIZE
        width = max(WIDTH, name_width + _LEAST_INNER)
        figure, body = headed(bars.title, subtitle, sum(heights) + _LEGEND, width)
        parts = body.subfigures(len(heights) + 1, 1, height_ratios=[*heights, _LEGEND], squeeze=False)[:, 0]
        panels = []
        for part, (workers, rows) in zip(parts, rows_by_workers.items(), strict=False):
            axes = part.subplots()
            bars.draw(axes, rows)
            _frame(axes, rows, bars.of_time)
            axes.set_title(titles[workers], fontsize=TITLE_SIZE, loc="left")
            panels.append((axes, rows))
        shown = list(legend())
        parts[-1].legend(
            handles=shown, fontsize=SMALL_SIZE, frameon=False, ncols=len(shown), loc="center", columnspacing=1.2
        )
        # How much room texts leave for bars is known once the names have theirs.
        settle(figure)
        for axes, rows in panels:
            _write_beside(axes, rows, bars)
        return figure


def _frame(axes: Axes, rows: Sequence[Row], of_time: str) -> None:
    plain(axes, grid="x")
    axes.set(ylim=(len(rows) - 0.5, -0.5))
    # Any will do for the layout: ticks are set once limits are known.
    axes.set_xticks([0.0], ["0 s"])
    axes.set_yticks(range(len(rows)), [row.reducer for row in rows], fontsize=TEXT_SIZE)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(of_time, fontsize=TEXT_SIZE)


def _write_beside(axes: Axes, rows: Sequence[Row], bars: Bars) -> None:
    """Write beside each bar what it amounts to, on an axis that is as long as bars and texts need."""
    from matplotlib.ticker import MaxNLocator

    figure = axes.get_figure(root=True)
    assert figure is not None
    width = axes.bbox.width / figure.dpi
    taken = [float(text_size(figure, bars.text(row))[0]) + 2 * _GAP / 72 for row in rows]
    end = max(bars.length_s(row) * width / (width - text) for row, text in zip(rows, taken, strict=True)) or 1.0
    # A tick at the very end would have no room for its text.
    ticks = [tick for tick in MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(0, end) if tick <= 0.96 * end]
    axes.set_xlim(0, end)
    axes.set_xticks(ticks, [format_seconds(tick) for tick in ticks])
    for place, row in enumerate(rows):
        axes.annotate(
            bars.text(row),
            (bars.length_s(row), place),
            (_GAP, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL_SIZE,
            in_layout=False,
        )
