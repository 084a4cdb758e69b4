"""Where the time of each reducer goes, as stacked bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.figures.axes import (
    GREY,
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    blank_figure,
    plain,
    rows_title,
    settle,
    time_text,
)
from s2sim.report.figures.colours import look_of
from s2sim.report.figures.figure_file import one_look
from s2sim.report.tables.texts import error_text, factor_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from s2sim.study.measuring.result import Row

PHASES = ("encode", "communication", "decode")

_HATCHES = {"encode": "//////", "communication": "", "decode": "......"}
# Inches.
_BAR, _FRAME = 0.27, 1.1
_BAR_SHARE = 0.68
# Share of the longest bar that the text behind it takes.
_TEXT_ROOM = 0.42


def phase_s(row: Row) -> tuple[float, float, float]:
    """Return the seconds of each of `PHASES`."""
    return row.encode_s, row.communication_s, row.decode_s


def breakdown_figure(rows: Sequence[Row]) -> Figure:
    """Return a bar for each reducer, of encode, communication and decode; the axis is linear, so that lengths add up.

    A tick on each bar shows the bandwidth bound: communication cannot end before it.
    """
    title = rows_title(rows)
    with one_look():
        figure = blank_figure(_FRAME + _BAR * len(rows))
        axes = figure.subplots()
        colours = [look_of(row.reducer).colour for row in rows]
        places = range(len(rows))
        ends = [0.0] * len(rows)
        for number, phase in enumerate(PHASES):
            lengths = [phase_s(row)[number] for row in rows]
            axes.barh(
                places,
                lengths,
                _BAR_SHARE,
                left=ends,
                color=colours,
                edgecolor="white",
                linewidth=0.4,
                hatch=_HATCHES[phase],
                label=phase,
            )
            ends = [end + length for end, length in zip(ends, lengths, strict=True)]
        _mark_bounds(axes, rows)
        for place, row in zip(places, rows, strict=True):
            axes.annotate(
                _summary(row),
                (row.total_s, place),
                (5, 0),
                textcoords="offset points",
                va="center",
                fontsize=SMALL_SIZE,
            )
        _set_axes(axes, rows, title)
        settle(figure)
        return figure


def _summary(row: Row) -> str:
    error = "exact" if row.exact else f"error {error_text(row.error.relative_l2)}"
    return f"{time_text(row.total_s)}, {factor_text(row.speedup_vs_dense)}, {error}"


def _mark_bounds(axes: Axes, rows: Sequence[Row]) -> None:
    from matplotlib.patheffects import withStroke

    for place, row in enumerate(rows):
        axes.vlines(
            row.encode_s + row.lower_bound_s,
            place - _BAR_SHARE / 2,
            place + _BAR_SHARE / 2,
            color="black",
            linewidth=1.2,
            path_effects=[withStroke(linewidth=3.0, foreground="white")],
        )


def _set_axes(axes: Axes, rows: Sequence[Row], title: str) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    plain(axes, grid="x")
    longest = max(row.total_s for row in rows) or 1.0
    end = longest * (1 + _TEXT_ROOM)
    ticks = [tick for tick in MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(0, end) if tick <= end]
    axes.set(xlim=(0, end), ylim=(len(rows) - 0.5, -0.5))
    axes.set_xticks(ticks, [time_text(tick) for tick in ticks])
    axes.set_yticks(range(len(rows)), [row.option_string for row in rows], fontsize=TEXT_SIZE)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("time of the communication phase on the slowest rank", fontsize=TEXT_SIZE)
    compared = "" if rows[0].iteration_s is None else " of iterations"
    beside = f"beside the bars: total, speed-up{compared} over dense, relative L2 error"
    axes.set_title(f"{title}; {beside}", fontsize=TITLE_SIZE, loc="left")
    samples = [Patch(facecolor=GREY, edgecolor="white", hatch=_HATCHES[phase], label=phase) for phase in PHASES]
    bound = Line2D([], [], color="black", marker="|", linestyle="", markersize=9, label="lower bound of communication")
    axes.legend(
        handles=[*samples, bound],
        fontsize=SMALL_SIZE,
        frameon=False,
        ncols=4,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.42 / (_BAR * len(rows))),
    )
