"""Names of curves on the right of their axes, each joined with the end of its curve."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from s2sim.report.figures.axes import SMALL_SIZE, text_size
from s2sim.report.figures.colours import family_of, look_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches. Fonts are wider or narrower at another resolution, hence some air behind names.
_GAP, _HEIGHT, _AIR = 0.25, 0.15, 0.2

PALE = 0.3
"""How much of its colour is left to what never wins."""


def named(reducer: str, rejected: Mapping[str, str]) -> str:
    """Return a reducer with why it is out of the choice, if it is."""
    return f"{reducer} ({rejected[reducer]})" if reducer in rejected else reducer


def names_width(figure: Figure, names: Iterable[str]) -> float:
    """Return the inches that names take on the right of axes, what joins them included."""
    return _GAP + max(float(text_size(figure, name)[0]) for name in names) + _AIR


def names_height(count: int) -> float:
    """Return the inches that so many names take, one below the other."""
    return _HEIGHT * count


def write_names(axes: Axes, ends: Mapping[str, float], names: Mapping[str, str]) -> None:
    """Write a name for each curve.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        With its final limits.
    ends : dict of str to float
        Where the curve of each option string ends, in data coordinates.
    names : dict of str to str
        What is written.
    """
    # What has no limit leaves the picture at its top.
    low, high = axes.get_ylim()
    to_share = axes.transData + axes.transAxes.inverted()
    left, _ = axes.get_xlim()
    share = {reducer: float(to_share.transform((left, max(low, min(end, high))))[1]) for reducer, end in ends.items()}
    order = sorted(share, key=share.__getitem__)
    dpi = axes.figure.dpi
    places = spread([share[reducer] for reducer in order], _HEIGHT * dpi / axes.bbox.height)
    gap = _GAP * dpi / axes.bbox.width
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
