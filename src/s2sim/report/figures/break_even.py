"""Where compression pays: speed-up over dense against a rate of the cluster."""

from __future__ import annotations

from collections import Counter
from math import log
from statistics import fmean
from typing import TYPE_CHECKING

from s2sim.report.figures.axes import (
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    WIDTH,
    blank_figure,
    log_limits,
    plain,
    set_log,
    text_size,
)
from s2sim.report.figures.colours import family_of, look_of
from s2sim.report.figures.figure_file import one_look
from s2sim.report.tables.texts import workers_text
from s2sim.units import format_rate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from s2sim.study.break_even.rate_curve import RateCurves
    from s2sim.study.measuring.result import Crossing

_STYLES = ("-", "--", ":", "-.")
# Inches: beside the axes, of the axes, and of a name.
_LEFT, _TOP, _BOTTOM = 0.65, 0.35, 0.5
_LEAST_WIDTH, _LEAST_HEIGHT = 3.4, 2.7
# Fonts are wider or narrower at another resolution, hence some air behind names.
_NAME_GAP, _NAME_HEIGHT, _NAME_AIR = 0.25, 0.15, 0.2
# Bytes per second of 1 Gbps: rates are sold in round numbers of bits.
_GBPS = 1.25e8


def break_even_figure(curves: RateCurves, crossings: Sequence[Crossing] = ()) -> Figure:
    """Return the speed-up of each reducer over dense against the rate; above the line at 1 it pays.

    Parameters
    ----------
    crossings : sequence of Crossing
        The verdict's ``break_even``, marked and told where they lie in the picture.
    """
    rates = curves.rates_Bps
    shown = [item for item in crossings if item.field == curves.field and min(rates) <= item.at_Bps <= max(rates)]
    names = {reducer: _name(reducer, shown) for reducer in ("dense", *curves.speedups)}
    with one_look():
        axes = _make_axes(list(names.values()))
        plain(axes)
        every = [value for speedups in curves.speedups.values() for value in speedups]
        set_log(axes, "y", log_limits(every, include=1.0), lambda value: f"{value:g}x")
        set_log(axes, "x", (min(rates) * 0.9, max(rates)), format_rate, unit=_GBPS)
        _draw_curves(axes, curves)
        axes.scatter(
            [item.at_Bps for item in shown],
            [1.0] * len(shown),
            s=28,
            facecolor="white",
            edgecolor=[look_of(family_of(item.reducer)).colour for item in shown],
            linewidth=1.4,
            zorder=4,
        )
        axes.set_xlabel(f"{curves.field} (bits per second)", fontsize=TEXT_SIZE)
        compared = "iterations" if curves.compute else "communication phases"
        axes.set_ylabel(f"speed-up of {compared} over dense", fontsize=TEXT_SIZE)
        mark = ", extrapolated" if curves.extrapolated else ""
        rings = "; rings: break-even, and the side on which the reducer pays" if shown else ""
        axes.set_title(f"{workers_text(curves.workers)}{mark}{rings}", fontsize=TITLE_SIZE, loc="left")
        _write_names(axes, curves, names)
        figure = axes.get_figure(root=True)
        assert figure is not None
        return figure


def _name(reducer: str, crossings: Sequence[Crossing]) -> str:
    """Return what is written beside a curve: what it is, and where it crosses."""
    own = [f"{item.pays} {format_rate(item.at_Bps)}" for item in crossings if item.reducer == reducer]
    return ", ".join([reducer, *own])


def _make_axes(names: Sequence[str]) -> Axes:
    """Return axes that have room on their right for names, one below the other."""
    inner_height = max(_LEAST_HEIGHT, _NAME_HEIGHT * len(names))
    height = _TOP + inner_height + _BOTTOM
    figure = blank_figure(height)
    figure.set_layout_engine("none")
    right = _NAME_GAP + max(float(text_size(figure, name)[0]) for name in names) + _NAME_AIR
    width = max(WIDTH, _LEFT + _LEAST_WIDTH + right)
    figure.set_size_inches(width, height)
    return figure.add_axes((_LEFT / width, _BOTTOM / height, (width - _LEFT - right) / width, inner_height / height))


def _draw_curves(axes: Axes, curves: RateCurves) -> None:
    axes.axhline(1.0, color=look_of("dense").colour, linewidth=1.2, zorder=1.5)
    drawn: Counter[str] = Counter()
    for reducer, speedups in curves.speedups.items():
        family = family_of(reducer)
        look = look_of(family)
        axes.plot(
            curves.rates_Bps,
            speedups,
            color=look.colour,
            linestyle=_STYLES[drawn[family] % len(_STYLES)],
            marker=look.marker,
            markersize=4.0,
            markevery=max(1, len(speedups) // 5),
            linewidth=1.4,
            label=reducer,
        )
        drawn[family] += 1


def _write_names(axes: Axes, curves: RateCurves, names: Mapping[str, str]) -> None:
    """Write names on the right of the axes, each joined with the end of its curve."""
    ends = {"dense": 1.0} | {reducer: speedups[-1] for reducer, speedups in curves.speedups.items()}
    # A speed-up without limit leaves the picture at its top.
    low, high = axes.get_ylim()
    share = {reducer: log(min(end, high) / low) / log(high / low) for reducer, end in ends.items()}
    order = sorted(share, key=share.__getitem__)
    dpi = axes.figure.dpi
    places = spread([share[reducer] for reducer in order], _NAME_HEIGHT * dpi / axes.bbox.height)
    gap = _NAME_GAP * dpi / axes.bbox.width
    for reducer, place in zip(order, places, strict=True):
        axes.plot(
            [1.0 + 0.1 * gap, 1.0 + 0.7 * gap, 1.0 + 0.9 * gap],
            [share[reducer], place, place],
            color=look_of(family_of(reducer)).colour,
            linewidth=0.8,
            transform=axes.transAxes,
            clip_on=False,
        )
        axes.text(1.0 + gap, place, names[reducer], transform=axes.transAxes, va="center", fontsize=SMALL_SIZE)


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Return increasing places from 0 to 1 at least ``gap`` apart, near the increasing ones that are wanted.

    >>> spread([0.0, 0.25, 0.25], 0.125)
    [0.0, 0.1875, 0.3125]
    """
    # Less what the gaps before a place take, places must not decrease: neighbours that do are pooled at their mean.
    pools: list[list[float]] = []
    for number, wish in enumerate(wanted):
        pools.append([wish - number * gap])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    level = [fmean(pool) for pool in pools for _ in pool]
    highest = max(0.0, 1.0 - (len(wanted) - 1) * gap)
    return [min(max(base, 0.0), highest) + number * gap for number, base in enumerate(level)]
