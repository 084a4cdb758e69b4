"""Where the time of each reducer goes, as stacked bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.figures.axes import (
    GREY,
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
from s2sim.report.figures.colours import look_of
from s2sim.report.figures.figure_file import one_look
from s2sim.report.figures.head import headed
from s2sim.report.tables.texts import ENDS_WITH, error_text, factor_text
from s2sim.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from s2sim.study.measuring.result import Row

PHASES = ("communication", "encode", "decode")
"""Communication first, though encoding comes before it: so its lower bound stands at the time that it is."""

# How much of a family's colour is left in each phase; hatches would make an SVG of megabytes.
_STRENGTHS = {"communication": 1.0, "encode": 0.6, "decode": 0.3}
# Inches: of a bar, of what surrounds the bars of a panel, of the legend; at least for bars and what stands beside them.
_BAR, _FRAME, _LEGEND = 0.25, 0.8, 0.3
_LEAST_INNER = 4.6
_BAR_SHARE = 0.68
# Points between a bar and its text.
_GAP = 5.0


def phase_s(row: Row) -> tuple[float, float, float]:
    """Return the seconds of each of `PHASES`."""
    return row.communication_s, row.encode_s, row.decode_s


def breakdown_figure(rows_by_workers: Mapping[int, Sequence[Row]], subtitle: str = "") -> Figure:
    """Return, for each number of workers, a bar for each reducer; the axis is linear, so that lengths add up.

    A tick on each bar shows the bandwidth bound: communication cannot end before it.
    """
    titles = {workers: rows_title(rows) for workers, rows in rows_by_workers.items()}
    heights = [_FRAME + _BAR * len(rows) for rows in rows_by_workers.values()]
    every = [row for rows in rows_by_workers.values() for row in rows]
    with one_look():
        sample = blank_figure(1.0)
        name_width = max(float(text_size(sample, row.option_string)[0]) for row in every) * TEXT_SIZE / SMALL_SIZE
        compared = "" if every[0].iteration_s is None else " of iterations"
        figure, body = headed(
            f"Where the time goes, with total, speed-up{compared} over dense and relative L2 error",
            subtitle,
            sum(heights) + _LEGEND,
            max(WIDTH, name_width + _LEAST_INNER),
        )
        parts = body.subfigures(len(heights) + 1, 1, height_ratios=[*heights, _LEGEND], squeeze=False)[:, 0]
        panels = []
        for part, (workers, rows) in zip(parts, rows_by_workers.items(), strict=False):
            axes = part.subplots()
            _draw_bars(axes, rows)
            axes.set_title(titles[workers], fontsize=TITLE_SIZE, loc="left")
            panels.append((axes, rows))
        _write_legend(parts[-1])
        # How much room texts leave for bars is known once the names have theirs.
        settle(figure)
        for axes, rows in panels:
            _write_beside(axes, rows)
        return figure


def _tint(colour: str, phase: str) -> tuple[float, float, float]:
    """Return a colour as it is in a phase: mixed with white."""
    from matplotlib.colors import to_rgb

    strength = _STRENGTHS[phase]
    red, green, blue = (1 - strength + strength * part for part in to_rgb(colour))
    return red, green, blue


def _draw_bars(axes: Axes, rows: Sequence[Row]) -> None:
    from matplotlib.patheffects import withStroke

    places = range(len(rows))
    ends = [0.0] * len(rows)
    for number, phase in enumerate(PHASES):
        lengths = [phase_s(row)[number] for row in rows]
        axes.barh(
            places,
            lengths,
            _BAR_SHARE,
            left=ends,
            color=[_tint(look_of(row.reducer).colour, phase) for row in rows],
            edgecolor="white",
            linewidth=0.4,
            label=phase,
        )
        ends = [end + length for end, length in zip(ends, lengths, strict=True)]
    for place, row in zip(places, rows, strict=True):
        axes.vlines(
            row.lower_bound_s,
            place - _BAR_SHARE / 2,
            place + _BAR_SHARE / 2,
            color="black",
            linewidth=1.2,
            path_effects=[withStroke(linewidth=3.0, foreground="white")],
        )
    plain(axes, grid="x")
    axes.set(ylim=(len(rows) - 0.5, -0.5))
    # Any will do for the layout: ticks are set once limits are known.
    axes.set_xticks([0.0], ["0 s"])
    axes.set_yticks(places, [row.option_string for row in rows], fontsize=TEXT_SIZE)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("time of the communication phase on the slowest rank", fontsize=TEXT_SIZE)


def _summary(row: Row) -> str:
    known = "exact" if row.exact else f"error {error_text(row.error.relative_l2)}"
    error = ENDS_WITH.get(row.estimates, known)
    return f"{format_seconds(row.total_s)}, {factor_text(row.speedup_vs_dense)}, {error}"


def _write_beside(axes: Axes, rows: Sequence[Row]) -> None:
    """Write beside each bar what it amounts to, on an axis that is as long as bars and texts need."""
    from matplotlib.ticker import MaxNLocator

    figure = axes.get_figure(root=True)
    assert figure is not None
    width = axes.bbox.width / figure.dpi
    taken = [float(text_size(figure, _summary(row))[0]) + 2 * _GAP / 72 for row in rows]
    end = max(row.total_s * width / (width - text) for row, text in zip(rows, taken, strict=True)) or 1.0
    # A tick at the very end would have no room for its text.
    ticks = [tick for tick in MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(0, end) if tick <= 0.96 * end]
    axes.set_xlim(0, end)
    axes.set_xticks(ticks, [format_seconds(tick) for tick in ticks])
    for place, row in enumerate(rows):
        axes.annotate(
            _summary(row),
            (row.total_s, place),
            (_GAP, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL_SIZE,
            in_layout=False,
        )


def _write_legend(part: SubFigure) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    samples = [Patch(facecolor=_tint(GREY, phase), label=phase) for phase in PHASES]
    bound = Line2D([], [], color="black", marker="|", linestyle="", markersize=9, label="lower bound of communication")
    part.legend(handles=[*samples, bound], fontsize=SMALL_SIZE, frameon=False, ncols=4, loc="center")
