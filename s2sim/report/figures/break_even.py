"""Where compression pays: speed-up over dense against a rate of the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from s2sim.experiment.rate_curve import RateCurves
from s2sim.experiment.row_parts import Crossing
from s2sim.report.figures.labels import (
    PALE,
    head_height,
    head_lines,
    label_with_rejection,
    names_height,
    names_width,
    write_head,
    write_names,
)
from s2sim.report.figures.style import (
    GREY,
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    WIDTH,
    blank_figure,
    family_of,
    family_style,
    figure_style,
    log_limits,
    log_ticks,
    set_log,
    style_axes,
)
from s2sim.report.format import workers_text
from s2sim.units import format_bytes, format_rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


STYLES = ("-", "--", ":", "-.")
"""Of the curves of one family, one after the other."""

# Inches: beside the axes, and of the axes.
_BREAK_EVEN_LEFT, _BREAK_EVEN_TOP, _BREAK_EVEN_BOTTOM = 0.65, 0.5, 0.5
_BREAK_EVEN_LEAST_WIDTH, _BREAK_EVEN_LEAST_HEIGHT = 3.4, 2.7
# Bytes per second of 1 Gbps: rates are sold in round numbers of bits.
_GBPS = 1.25e8


def break_even_figure(
    curves_by_workers: Mapping[int, RateCurves], subtitle: str = "", rejected: Mapping[str, str] | None = None
) -> Figure:
    """Return, for each number of workers, the speed-up of each reducer over dense against the rate; above 1 it pays.

    Parameters
    ----------
    rejected : dict, optional
        Why reducers are out of the choice, by option string; their curves are pale.
    """
    every, rejected = list(curves_by_workers.values()), rejected or {}
    names = [_names(curves, rejected) for curves in every]
    with figure_style():
        right = max(names_width(blank_figure(1.0), own.values()) for own in names)
        width = max(WIDTH, _BREAK_EVEN_LEFT + _BREAK_EVEN_LEAST_WIDTH + right)
        lines = head_lines(subtitle, width)
        inner = [max(_BREAK_EVEN_LEAST_HEIGHT, names_height(len(own))) for own in names]
        height = head_height(lines) + sum(_BREAK_EVEN_TOP + one + _BREAK_EVEN_BOTTOM for one in inner)
        figure = blank_figure(height, width)
        figure.set_layout_engine("none")
        write_head(figure, _title(every), lines)
        top = height - head_height(lines)
        for curves, own, tall in zip(every, names, inner, strict=True):
            bottom = top - _BREAK_EVEN_TOP - tall
            box = (_BREAK_EVEN_LEFT / width, bottom / height, (width - _BREAK_EVEN_LEFT - right) / width, tall / height)
            _draw_break_even_panel(figure.add_axes(box), curves, own, rejected)
            top = bottom - _BREAK_EVEN_BOTTOM
        return figure


def _title(every: Sequence[RateCurves]) -> str:
    compared = "iterations" if every[0].compute else "communication phases"
    rings = "; rings: break-even" if any(map(_shown, every)) else ""
    return f"Speed-up of {compared} over dense, at other rates{rings}"


def _shown(curves: RateCurves) -> list[Crossing]:
    low, high = min(curves.rates_Bps), max(curves.rates_Bps)
    return [item for item in curves.crossings if low <= item.at_Bps <= high]


def _names(curves: RateCurves, rejected: Mapping[str, str]) -> dict[str, str]:
    """Return what is written beside each curve: what it is, and on which side of its crossings it pays."""

    def name(reducer: str) -> str:
        own = [f"{item.pays} {format_rate(item.at_Bps)}" for item in _shown(curves) if item.reducer == reducer]
        return ", ".join([label_with_rejection(reducer, rejected), *own])

    return {reducer: name(reducer) for reducer in (curves.baseline, *curves.speedups)}


def _draw_break_even_panel(
    axes: Axes, curves: RateCurves, names: Mapping[str, str], rejected: Mapping[str, str]
) -> None:
    rates = curves.rates_Bps
    limits = (min(rates) * 0.9, max(rates))
    style_axes(axes)
    every = [value for speedups in curves.speedups.values() for value in speedups]
    set_log(axes, "y", log_limits(every, include=1.0), lambda value: f"{value:g}x")
    set_log(axes, "x", limits, format_rate, unit=_GBPS)
    _write_bytes(axes, limits)
    _draw_curves(axes, curves, rejected)
    _mark_own_rate(axes, curves)
    shown = _shown(curves)
    axes.scatter(
        [item.at_Bps for item in shown],
        [1.0] * len(shown),
        s=28,
        facecolor="white",
        edgecolor=[family_style(family_of(item.reducer)).colour for item in shown],
        linewidth=1.4,
        zorder=4,
    )
    axes.set_xlabel(f"{curves.field} (bits per second; above: bytes)", fontsize=TEXT_SIZE)
    axes.set_ylabel("speed-up over dense", fontsize=TEXT_SIZE)
    mark = ", extrapolated" if curves.extrapolated else ""
    axes.set_title(f"{workers_text(curves.workers)}{mark}", fontsize=TITLE_SIZE, loc="left")
    ends = {curves.baseline: 1.0} | {reducer: speedups[-1] for reducer, speedups in curves.speedups.items()}
    write_names(axes, ends, names)


def _write_bytes(axes: Axes, limits: tuple[float, float]) -> None:
    """Write the rates in bytes per second above the axes."""
    from matplotlib.ticker import NullLocator

    above = axes.secondary_xaxis("top")
    ticks = log_ticks(*limits, most=5)
    above.set_xticks(ticks, [f"{format_bytes(tick)}/s" for tick in ticks])
    above.xaxis.set_minor_locator(NullLocator())
    above.tick_params(labelsize=SMALL_SIZE, color=GREY, labelcolor=GREY, length=2)
    above.spines["top"].set_color(GREY)


def _mark_own_rate(axes: Axes, curves: RateCurves) -> None:
    """Draw a line at the rate that the cluster has."""
    axes.axvline(curves.own_Bps, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    low, high = axes.get_xlim()
    # Where there is room for it.
    side = 1 if curves.own_Bps**2 < low * high else -1
    axes.annotate(
        f"here: {format_rate(curves.own_Bps)}",
        (curves.own_Bps, 0.0),
        (3 * side, 3),
        ha="left" if side > 0 else "right",
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        fontsize=SMALL_SIZE,
        color=GREY,
        bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"},
    )


def _draw_curves(axes: Axes, curves: RateCurves, rejected: Mapping[str, str]) -> None:
    axes.axhline(1.0, color=family_style("dense").colour, linewidth=1.2, zorder=1.5)
    drawn: Counter[str] = Counter()
    for reducer, speedups in curves.speedups.items():
        family = family_of(reducer)
        look = family_style(family)
        axes.plot(
            curves.rates_Bps,
            speedups,
            color=look.colour,
            linestyle=STYLES[drawn[family] % len(STYLES)],
            marker=look.marker,
            markersize=4.0,
            markevery=max(1, len(speedups) // 5),
            linewidth=1.4,
            alpha=PALE if reducer in rejected else 1.0,
            label=reducer,
        )
        drawn[family] += 1
