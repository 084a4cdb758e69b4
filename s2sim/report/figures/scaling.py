"""How reducers scale: time, and what becomes of the GPUs, against the number of workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import floor, isfinite, nan
from typing import TYPE_CHECKING, NamedTuple

from s2sim.errors import OptionError
from s2sim.experiment.rows import Row
from s2sim.report.figures.break_even import STYLES
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
    set_log,
    style_axes,
)
from s2sim.report.iteration_tables import iteration_of, scaling_efficiencies
from s2sim.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator


# Inches: beside the axes, between them, and of them.
_SCALING_LEFT, _BETWEEN, _SCALING_TOP, _SCALING_BOTTOM = 0.7, 0.65, 0.3, 0.6
_SCALING_LEAST_WIDTH, _SCALING_LEAST_HEIGHT = 2.3, 2.7
# Less than that from the least to the most is shown on a linear axis.
_NARROW = 1.5


class _Quantity(NamedTuple):
    """What a panel shows against the number of workers; a share is shown up to 1."""

    title: str
    of: Callable[[Row], float]
    text: Callable[[float], str]
    mark: float | None = None
    share: bool = False

    def shown(self, row: Row) -> float:
        """Return the value, or NaN where a logarithmic axis has no place for it: one worker alone takes no time."""
        value = self.of(row)
        return value if self.share or (isfinite(value) and value > 0) else nan


def scaling_figure(
    rows_by_workers: Mapping[int, Sequence[Row]], subtitle: str = "", rejected: Mapping[str, str] | None = None
) -> Figure:
    """Return time and efficiency of each reducer against the number of workers.

    Where iterations were simulated, efficiency is the throughput of a worker over that with the fewest workers. Where
    compute was only added, it is the share of an iteration in which GPUs compute; without compute there is none, and
    the speed-up over dense stands in its place.

    Parameters
    ----------
    rejected : dict, optional
        Why reducers are out of the choice, by option string; their lines are pale.

    Raises
    ------
    OptionError
        For one number of workers alone.
    """
    if len(rows_by_workers) < 2:
        found = ", ".join(map(str, rows_by_workers)) or "none"
        raise OptionError(f"scaling needs several numbers of workers, but found {found}: --workers 8,16,32")
    every = [row for rows in rows_by_workers.values() for row in rows]
    rejected = rejected or {}
    names = {row.reducer: label_with_rejection(row.option_string, rejected) for row in every}
    quantities = _quantities(every)
    with figure_style():
        right = names_width(blank_figure(1.0), names.values())
        width = max(WIDTH, _SCALING_LEFT + 2 * _SCALING_LEAST_WIDTH + _BETWEEN + right)
        lines = head_lines(subtitle, width)
        inner_width, inner = (
            (width - _SCALING_LEFT - _BETWEEN - right) / 2,
            max(_SCALING_LEAST_HEIGHT, names_height(len(names))),
        )
        height = head_height(lines) + _SCALING_TOP + inner + _SCALING_BOTTOM
        figure = blank_figure(height, width)
        figure.set_layout_engine("none")
        mark = "; hollow: extrapolated" if any(row.extrapolated for row in every) else ""
        write_head(figure, f"How reducers scale with the number of workers{mark}", lines)
        for place, quantity in enumerate(quantities):
            left = _SCALING_LEFT + place * (inner_width + _BETWEEN)
            axes = figure.add_axes((left / width, _SCALING_BOTTOM / height, inner_width / width, inner / height))
            _draw_scaling_panel(axes, quantity, every, rejected)
        largest = {row.reducer: quantities[-1].of(row) for row in sorted(every, key=lambda row: row.workers)}
        write_names(axes, largest, names)
        return figure


def _quantities(rows: Sequence[Row]) -> tuple[_Quantity, _Quantity]:
    if all(row.iteration is not None for row in rows):
        return _Quantity("time of an iteration", lambda row: iteration_of(row).total_s, format_seconds), _scaling(rows)
    time = _Quantity("time of the communication phase", lambda row: row.time_s.total, format_seconds)
    if rows[0].iteration_s is None:
        return time, _Quantity(
            "speed-up over dense", lambda row: row.speedup_vs_dense, lambda value: f"{value:g}x", mark=1.0
        )
    return time, _Quantity("time that GPUs compute", _efficiency, lambda value: f"{value:.0%}", mark=1.0, share=True)


def _scaling(rows: Sequence[Row]) -> _Quantity:
    """Return the scaling efficiency of each of the rows, among those of its reducer."""
    names = dict.fromkeys(row.reducer for row in rows)
    shares = {name: scaling_efficiencies(row for row in rows if row.reducer == name) for name in names}
    fewest = min(row.workers for row in rows)
    title = f"throughput of a worker over that of {fewest}"
    return _Quantity(
        title, lambda row: shares[row.reducer][row.workers], lambda value: f"{value:.0%}", mark=1.0, share=True
    )


def _efficiency(row: Row) -> float:
    assert row.iteration_s is not None
    return 1 - row.time_s.total / row.iteration_s if row.iteration_s else 1.0


def _round_ticks() -> Locator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(8, steps=[1, 2, 5, 10])


def _draw_scaling_panel(axes: Axes, quantity: _Quantity, rows: Sequence[Row], rejected: Mapping[str, str]) -> None:
    style_axes(axes)
    counts = sorted({row.workers for row in rows})
    values = [value for value in map(quantity.shown, rows) if isfinite(value)]
    if quantity.share:
        axes.set_ylim(max(0.0, floor(10 * min(values) - 0.2) / 10), max(1.02, 1.02 * max(values)))
        axes.yaxis.set_major_locator(_round_ticks())
        axes.yaxis.set_major_formatter(lambda value, _: quantity.text(value))
    elif quantity.mark is None and values and max(values) < _NARROW * min(values):
        # Round numbers of a logarithmic axis are too far from each other.
        axes.yaxis.set_major_locator(_round_ticks())
        axes.yaxis.set_major_formatter(lambda value, _: quantity.text(value))
    else:
        set_log(axes, "y", log_limits(map(quantity.of, rows), include=quantity.mark), quantity.text)
    set_log(axes, "x", log_limits(counts, air=0.06), lambda value: f"{value:g}")
    axes.set_xticks(counts, map(str, counts))
    if quantity.mark is not None:
        axes.axhline(quantity.mark, color=GREY, linewidth=1.0, zorder=1)
    drawn: Counter[str] = Counter()
    for name in dict.fromkeys(row.reducer for row in rows):
        own = sorted((row for row in rows if row.reducer == name), key=lambda row: row.workers)
        family = family_of(name)
        look = family_style(family)
        alpha = PALE if name in rejected else 1.0
        axes.plot(
            [row.workers for row in own],
            [quantity.shown(row) for row in own],
            color=look.colour,
            linestyle=STYLES[drawn[family] % len(STYLES)],
            linewidth=1.4,
            alpha=alpha,
            label=name,
        )
        for row in own:
            face = "white" if row.extrapolated else look.colour
            axes.plot(
                [row.workers],
                [quantity.shown(row)],
                marker=look.marker,
                markersize=5.0,
                markerfacecolor=face,
                markeredgecolor=look.colour,
                alpha=alpha,
            )
        drawn[family] += 1
    axes.set_xlabel("workers", fontsize=TEXT_SIZE)
    axes.set_title(quantity.title, fontsize=TITLE_SIZE, loc="left")
    axes.tick_params(axis="x", labelsize=SMALL_SIZE)
