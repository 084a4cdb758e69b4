"""Axes whose ticks are round numbers of the unit that people count in."""

from __future__ import annotations

from math import ceil, floor, isfinite, log10
from typing import TYPE_CHECKING, Literal

import numpy as np

from s2sim.errors import OptionError
from s2sim.report.tables.texts import workers_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from s2sim.arrays import Floats
    from s2sim.study.measuring.result import Row

WIDTH = 7.2
"""Inches: two columns of a paper."""
DOTS_PER_INCH = 150
"""Texts are as wide as they are measured only where a figure is laid out as it is written."""

# Points.
TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 9.0, 8.0, 7.0
GREY = "#666666"
_GRID = "#e4e4e4"
_HAIR = 1e-9


def blank_figure(height: float, width: float = WIDTH) -> Figure:
    """Return an empty figure of so many inches, whose axes make room for their texts."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained", facecolor="white")
    # Whoever places texts must know how large they are.
    FigureCanvasAgg(figure)
    return figure


def text_size(figure: Figure, text: str) -> Floats:
    """Return width and height of a small text in inches, float64 of shape (2,)."""
    sample = figure.text(0, 0, text, fontsize=SMALL_SIZE)
    size = np.array(sample.get_window_extent().size, np.float64) / figure.dpi
    sample.remove()
    return size


def settle(figure: Figure) -> None:
    """Lay out a figure once for all: what is placed by hand afterwards stays right, and its files are the same."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def log_ticks(low: float, high: float, unit: float = 1.0, most: int = 7) -> list[float]:
    """Return round numbers of ``unit`` from low to high, ``most`` at most: fewer of each decade the more decades.

    >>> log_ticks(0.8, 60)
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    >>> log_ticks(1e8, 1e9, unit=1.25e8)
    [125000000.0, 187500000.0, 250000000.0, 375000000.0, 625000000.0, 875000000.0]
    >>> log_ticks(1, 1e12)
    [1.0, 100.0, 10000.0, 1000000.0, 100000000.0, 10000000000.0, 1000000000000.0]
    """
    first, last = floor(log10(low / unit)), ceil(log10(high / unit))

    def ticks(parts: Sequence[float], step: int) -> list[float]:
        every = (part * 10.0**power * unit for power in range(first, last + 1, step) for part in parts)
        return [tick for tick in every if low * (1 - _HAIR) <= tick <= high * (1 + _HAIR)]

    for parts in ((1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        found = ticks(parts, 1)
        if len(found) <= most:
            return found
    return ticks((1.0,), ceil((last - first) / most))


def log_limits(values: Iterable[float], *, include: float | None = None, air: float = 0.08) -> tuple[float, float]:
    """Return limits around the values that a log axis can show, and around ``include``.

    Parameters
    ----------
    values : iterable of float
        What is drawn; zeros, infinities and NaN do not count.
    include : float, optional
        One more value that must be in sight.
    air : float
        Room on either side, as a share of the span.
    """
    shown = [value for value in values if isfinite(value) and value > 0]
    if include is not None:
        shown.append(include)
    if not shown:
        return 1.0, 10.0
    low, high = min(shown), max(shown)
    factor = max(1.12, (high / low) ** air)
    return low / factor, high * factor


def set_log(
    axes: Axes,
    which: str,
    limits: tuple[float, float],
    text: Callable[[float], str],
    *,
    unit: float = 1.0,
    most: int = 7,
) -> None:
    """Make the x or y axis logarithmic, with ticks that read as ``text`` says.

    Parameters
    ----------
    limits : (float, float)
        In the unit of the data.
    text : callable
        From a value to what its tick reads.
    unit : float
        Ticks are round numbers of this.
    """
    from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

    axes.set(**{f"{which}scale": "log", f"{which}lim": limits})
    axis = axes.xaxis if which == "x" else axes.yaxis
    ticks = log_ticks(*limits, unit, most)
    if len(ticks) < 2:
        # Round numbers of a decade are too far from each other.
        low, high = limits
        evenly = MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(low / unit, high / unit)
        ticks = [float(tick) * unit for tick in evenly if low <= tick * unit <= high]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FixedFormatter([text(tick) for tick in ticks]))
    axis.set_minor_locator(NullLocator())


def plain(axes: Axes, grid: Literal["both", "x"] = "both") -> None:
    """Leave of the frame what carries ticks, and draw a grid that stays behind."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(labelsize=TEXT_SIZE, color=GREY, length=3)
    axes.grid(visible=True, axis=grid, color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)


def rows_title(rows: Sequence[Row]) -> str:
    """Return how many workers rows are of, and whether they go beyond what was recorded; refuse none, and a mixture."""
    counts = sorted({row.workers for row in rows})
    if len(counts) != 1:
        found = ", ".join(map(str, counts)) or "no rows"
        raise OptionError(f"rows of one number of workers belong into one picture, but found {found}: filter them")
    return f"{workers_text(counts[0])}{', extrapolated' if any(row.extrapolated for row in rows) else ''}"
