"""Where the time of each reducer's communication phase goes, as stacked bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.figures.axes import GREY
from s2sim.report.figures.bars import Bars, bars_figure
from s2sim.report.figures.colours import look_of
from s2sim.report.tables.texts import ENDS_WITH, error_text, factor_text
from s2sim.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from s2sim.study.measuring.result import Row

PHASES = ("communication", "encode", "decode")
"""Communication first, though encoding comes before it: so its lower bound stands at the time that it is."""

# How much of a family's colour is left in each phase; hatches would make an SVG of megabytes.
_STRENGTHS = {"communication": 1.0, "encode": 0.6, "decode": 0.3}
# Inches of a bar with its surroundings, and its share of them.
_BAR = 0.25
_BAR_SHARE = 0.68


def phase_s(row: Row) -> tuple[float, float, float]:
    """Return the seconds of each of `PHASES`."""
    return row.time_s.communication, row.time_s.encode, row.time_s.decode


def breakdown_figure(rows_by_workers: Mapping[int, Sequence[Row]], subtitle: str = "") -> Figure:
    """Return, for each number of workers, a bar for each reducer; the axis is linear, so that lengths add up.

    A tick on each bar shows the bandwidth bound: communication cannot end before it.
    """
    iterations = all(row.iteration_s is not None for rows in rows_by_workers.values() for row in rows)
    compared = " of iterations" if iterations else ""
    bars = Bars(
        f"Where the time goes, with total, speed-up{compared} over dense and relative L2 error",
        "time of the communication phase on the slowest rank",
        _BAR,
        _draw_bars,
        lambda row: row.time_s.total,
        _summary,
    )
    return bars_figure(bars, rows_by_workers, subtitle, _legend)


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
            color=[_tint(look_of(row.name).colour, phase) for row in rows],
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


def _summary(row: Row) -> str:
    return f"{format_seconds(row.time_s.total)}, {factor_text(row.speedup_vs_dense)}, {loss_text(row)}"


def loss_text(row: Row) -> str:
    """Return for reading beside a bar how far what ranks end with is from the mean."""
    known = "exact" if row.exact else f"error {error_text(row.error.relative_l2)}"
    return ENDS_WITH.get(row.estimates, known)


def _legend() -> list[Artist]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    samples = [Patch(facecolor=_tint(GREY, phase), label=phase) for phase in PHASES]
    bound = Line2D([], [], color="black", marker="|", linestyle="", markersize=9, label="lower bound of communication")
    return [*samples, bound]
