"""Bars of time, one a reducer, in a panel a number of workers: what their pictures have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from s2sim.experiment.rows import Row
from s2sim.report.figures.labels import figure_with_head
from s2sim.report.figures.style import (
    GREY,
    ITERATION_PARTS,
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    WIDTH,
    blank_figure,
    family_style,
    figure_style,
    fix_layout,
    style_axes,
    text_size,
    workers_title,
)
from s2sim.report.format import ENDS_WITH, error_text, factor_text, throughput_text
from s2sim.report.iteration_tables import exchange_text, iteration_of
from s2sim.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Inches: of what surrounds the bars of a panel, of the legend; at least for bars and what stands beside them.
_FRAME, _LEGEND = 0.8, 0.3
_MIN_INNER = 4.6
# Points between a bar and its text.
_GAP = 5.0


class Bars(NamedTuple):
    """What a picture of bars shows."""

    # title, of_time: what it is, and of what the time on its axis
    title: str
    of_time: str
    inches: float  # Height of a row's place
    draw: Callable[[Axes, Sequence[Row]], None]  # Draws the bars of rows, at 0, 1, ... from the top.
    length_s: Callable[[Row], float]  # How long a row's bar is
    text: Callable[[Row], str]  # What stands beside it


def bars_figure(
    bars: Bars, rows_by_workers: Mapping[int, Sequence[Row]], subtitle: str, legend: Callable[[], Sequence[Artist]]
) -> Figure:
    """Return, for each number of workers, a bar for each reducer; the axis is linear, so that lengths add up.

    Parameters
    ----------
    legend : callable
        Returns what a legend below all bars explains; in a row as long as there is room.
    """
    titles = {workers: workers_title(rows) for workers, rows in rows_by_workers.items()}
    heights = [_FRAME + bars.inches * len(rows) for rows in rows_by_workers.values()]
    every = [row for rows in rows_by_workers.values() for row in rows]
    with figure_style():
        sample = blank_figure(1.0)
        name_width = max(float(text_size(sample, row.reducer)[0]) for row in every) * TEXT_SIZE / SMALL_SIZE
        width = max(WIDTH, name_width + _MIN_INNER)
        figure, body = figure_with_head(bars.title, subtitle, sum(heights) + _LEGEND, width)
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
        fix_layout(figure)
        for axes, rows in panels:
            _write_beside(axes, rows, bars)
        return figure


def _frame(axes: Axes, rows: Sequence[Row], of_time: str) -> None:
    style_axes(axes, grid="x")
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


PHASES = ("communication", "encode", "decode")
"""Communication first, though encoding comes before it: so its lower bound stands at the time that it is."""

# How much of a family's colour is left in each phase; hatches would make an SVG of megabytes.
_STRENGTHS = {"communication": 1.0, "encode": 0.6, "decode": 0.3}
# Inches of a bar with its surroundings, and its share of them.
_PHASE_BAR = 0.25
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
        _PHASE_BAR,
        _draw_phase_bars,
        lambda row: row.time_s.total,
        _phase_summary,
    )
    return bars_figure(bars, rows_by_workers, subtitle, _phase_legend)


def _tint(colour: str, phase: str) -> tuple[float, float, float]:
    """Return a colour as it is in a phase: mixed with white."""
    from matplotlib.colors import to_rgb

    strength = _STRENGTHS[phase]
    red, green, blue = (1 - strength + strength * part for part in to_rgb(colour))
    return red, green, blue


def _draw_phase_bars(axes: Axes, rows: Sequence[Row]) -> None:
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
            color=[_tint(family_style(row.name).colour, phase) for row in rows],
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


def _phase_summary(row: Row) -> str:
    return f"{format_seconds(row.time_s.total)}, {factor_text(row.speedup_vs_dense)}, {loss_text(row)}"


def loss_text(row: Row) -> str:
    """Return for reading beside a bar how far what ranks end with is from the mean."""
    known = "exact" if row.exact else f"error {error_text(row.error.relative_l2)}"
    return ENDS_WITH.get(row.estimates, known)


def _phase_legend() -> list[Artist]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    samples = [Patch(facecolor=_tint(GREY, phase), label=phase) for phase in PHASES]
    bound = Line2D([], [], color="black", marker="|", linestyle="", markersize=9, label="lower bound of communication")
    return [*samples, bound]


*STACKED, HIDDEN = ITERATION_PARTS
"""The parts that add up to an iteration, in the order in which they are drawn; and what runs beside them."""

# Inches of a bar with its surroundings; shares of them: the stack and, below it, what is hidden.
_ITERATION_BAR = 0.3
_STACK, _THIN = 0.6, 0.18


def part_s(row: Row, part: str) -> float:
    """Return the seconds of one of the parts of a row's iteration, by its name in a legend."""
    found: float = getattr(iteration_of(row), part.replace(" ", "_"))
    return found


def iterations_figure(rows_by_workers: Mapping[int, Sequence[Row]], subtitle: str = "") -> Figure:
    """Return, for each number of workers, a bar for each reducer, the fastest first; its parts add up to an iteration.

    A thin bar below it is communication that costs nothing: it ends where that begins which does.
    """
    fastest_first = {workers: sorted(rows, key=_length_s) for workers, rows in rows_by_workers.items()}
    how = exchange_text([row for rows in fastest_first.values() for row in rows])
    bars = Bars(
        "Where an iteration goes, with its time, speed-up over dense, throughput and relative L2 error",
        "time of an iteration on the slowest rank",
        _ITERATION_BAR,
        _draw_iteration_bars,
        _length_s,
        _iteration_summary,
    )
    return bars_figure(bars, fastest_first, f"{how}; {subtitle}" if subtitle else how, _iteration_legend)


def _length_s(row: Row) -> float:
    return iteration_of(row).total_s


def _draw_iteration_bars(axes: Axes, rows: Sequence[Row]) -> None:
    places = range(len(rows))
    ends = [0.0] * len(rows)
    exposed_from = ends
    for part in STACKED:
        lengths = [part_s(row, part) for row in rows]
        if part == "exposed communication":
            exposed_from = ends
        axes.barh(
            places,
            lengths,
            _STACK,
            left=ends,
            color=ITERATION_PARTS[part],
            edgecolor="white",
            linewidth=0.3,
            label=part,
        )
        ends = [end + length for end, length in zip(ends, lengths, strict=True)]
    hidden = [part_s(row, HIDDEN) for row in rows]
    axes.barh(
        [place + (_STACK + _THIN) / 2 for place in places],
        hidden,
        _THIN,
        left=[max(0.0, end - length) for end, length in zip(exposed_from, hidden, strict=True)],
        color=ITERATION_PARTS[HIDDEN],
        label=HIDDEN,
    )


def _iteration_summary(row: Row) -> str:
    known = iteration_of(row).samples_per_s
    throughput = "" if known is None else f"{throughput_text(known)}/s, "
    return f"{format_seconds(_length_s(row))}, {factor_text(row.speedup_vs_dense)}, {throughput}{loss_text(row)}"


def _iteration_legend() -> list[Artist]:
    from matplotlib.patches import Patch

    return [Patch(facecolor=colour, label=part) for part, colour in ITERATION_PARTS.items()]
