"""Where the time of each reducer's iteration goes, as stacked bars with hidden communication below them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.report.figures.bars import Bars, bars_figure
from s2sim.report.figures.breakdown import loss_text
from s2sim.report.figures.colours import PARTS
from s2sim.report.tables.iteration_parts import exchange_text, iteration_of
from s2sim.report.tables.texts import factor_text, throughput_text
from s2sim.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from s2sim.study.measuring.result import Row

*STACKED, HIDDEN = PARTS
"""The parts that add up to an iteration, in the order in which they are drawn; and what runs beside them."""

# Inches of a bar with its surroundings; shares of them: the stack and, below it, what is hidden.
_BAR = 0.3
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
        _BAR,
        _draw_bars,
        _length_s,
        _summary,
    )
    return bars_figure(bars, fastest_first, f"{how}; {subtitle}" if subtitle else how, _legend)


def _length_s(row: Row) -> float:
    return iteration_of(row).total_s


def _draw_bars(axes: Axes, rows: Sequence[Row]) -> None:
    places = range(len(rows))
    ends = [0.0] * len(rows)
    exposed_from = ends
    for part in STACKED:
        lengths = [part_s(row, part) for row in rows]
        if part == "exposed communication":
            exposed_from = ends
        axes.barh(places, lengths, _STACK, left=ends, color=PARTS[part], edgecolor="white", linewidth=0.3, label=part)
        ends = [end + length for end, length in zip(ends, lengths, strict=True)]
    hidden = [part_s(row, HIDDEN) for row in rows]
    axes.barh(
        [place + (_STACK + _THIN) / 2 for place in places],
        hidden,
        _THIN,
        left=[max(0.0, end - length) for end, length in zip(exposed_from, hidden, strict=True)],
        color=PARTS[HIDDEN],
        label=HIDDEN,
    )


def _summary(row: Row) -> str:
    known = iteration_of(row).samples_per_s
    throughput = "" if known is None else f"{throughput_text(known)}/s, "
    return f"{format_seconds(_length_s(row))}, {factor_text(row.speedup_vs_dense)}, {throughput}{loss_text(row)}"


def _legend() -> list[Artist]:
    from matplotlib.patches import Patch

    return [Patch(facecolor=colour, label=part) for part, colour in PARTS.items()]
