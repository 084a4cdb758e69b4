"""The price of an error: relative L2 error against bytes and against time."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from s2sim.report.figures.axes import (
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    blank_figure,
    log_limits,
    plain,
    rows_title,
    set_log,
    settle,
    time_text,
)
from s2sim.report.figures.colours import look_of
from s2sim.report.figures.families import find_series
from s2sim.report.figures.figure_file import one_look
from s2sim.report.figures.labels import place_labels
from s2sim.study.measuring.result import ROUNDING_ERROR
from s2sim.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from s2sim.study.measuring.result import Row

# Inches.
_MAIN, _FRAME, _LINE, _NOTE = 2.5, 1.0, 0.17, 0.3
_MARKER_SIZE = 5.5
_NEVER_WINS = "#f0f0f0"
_BAND = f"exact\n(≤ {ROUNDING_ERROR:.0e})".replace("e-0", "e-")


class _Quantity(NamedTuple):
    """A quantity that a panel shows the error against."""

    title: str
    of: Callable[[Row], float]
    text: Callable[[float], str]


_SENT = _Quantity("bytes sent by the rank that sends most", lambda row: row.bytes_sent_per_rank, format_bytes)
_PAYLOAD = _Quantity("bytes that it would hand to a network", lambda row: row.payload_bytes_per_rank, format_bytes)
_TIME = _Quantity("time of the communication phase", lambda row: row.total_s, time_text)


def _quantities(rows: Sequence[Row]) -> tuple[_Quantity, _Quantity]:
    """Return what errors are shown against: one rank alone sends nothing."""
    return (_PAYLOAD if all(row.workers == 1 for row in rows) else _SENT), _TIME


class _Panels(NamedTuple):
    """The axes of one quantity: errors on a logarithmic axis, and below them a line for each exact reducer."""

    quantity: _Quantity
    main: Axes
    exact: Axes | None


def error_figure(rows_by_workers: Mapping[int, Sequence[Row]]) -> Figure:
    """Return, for each number of workers, the error against bytes and against time.

    Rows that differ in one number among their options are joined by a line. Errors up to `ROUNDING_ERROR` are rounding,
    which no logarithmic axis should spread out: those rows stand in a band of their own.
    """
    titles = {workers: rows_title(rows) for workers, rows in rows_by_workers.items()}
    heights = [_FRAME + _MAIN + _LINE * len(_exact(rows)) for rows in rows_by_workers.values()]
    with one_look():
        hidden = {workers: _hidden(rows) for workers, rows in rows_by_workers.items()}
        figure = blank_figure(sum(heights))
        parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        groups = []
        for part, (workers, rows) in zip(parts, rows_by_workers.items(), strict=True):
            shown = [row for row in rows if row.option_string not in hidden[workers]]
            part.suptitle(
                f"{titles[workers]}; shaded: further from the mean than zeros are",
                fontsize=TITLE_SIZE,
                x=0.01,
                ha="left",
            )
            groups.append((_panels(part, shown), shown))
            if hidden[workers]:
                part.supxlabel(_hidden_note(hidden[workers]), fontsize=SMALL_SIZE, x=0.01, ha="left")
        for panels, shown in groups:
            _draw(panels, shown)
        # Where texts fit is known once everything has its place.
        settle(figure)
        for panels, shown in groups:
            _label(panels, shown)
        return figure


def _error(row: Row) -> float:
    """Return the relative L2 error of a row that is shown."""
    assert row.error.relative_l2 is not None
    return row.error.relative_l2


def _exact(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.exact]


def _hidden(rows: Sequence[Row]) -> dict[str, str]:
    """Return why rows cannot be shown, by option string."""
    reasons = {}
    for row in rows:
        if row.error.relative_l2 is None or not isfinite(row.error.relative_l2):
            reasons[row.option_string] = "error undefined"
        elif any(quantity.of(row) == 0 for quantity in _quantities(rows)):
            reasons[row.option_string] = "takes nothing"
    return reasons


def _hidden_note(reasons: Mapping[str, str]) -> str:
    return "not shown: " + ", ".join(f"{text} ({reason})" for text, reason in reasons.items())


def _panels(part: SubFigure, rows: Sequence[Row]) -> list[_Panels]:
    exact = len(_exact(rows))
    quantities = _quantities(rows)
    if not exact:
        mains = part.subplots(1, 2, sharey=True)
        return [_Panels(quantity, axes, None) for quantity, axes in zip(quantities, mains, strict=True)]
    grid = part.subplots(
        2, 2, sharex="col", sharey="row", height_ratios=(_MAIN, _LINE * exact), gridspec_kw={"hspace": 0.02}
    )
    return [_Panels(quantity, *axes) for quantity, axes in zip(quantities, grid.T, strict=True)]


def _draw(panels: Sequence[_Panels], rows: Sequence[Row]) -> None:
    exact = _exact(rows)
    errors = [_error(row) for row in rows if row not in exact]
    limits = log_limits(errors, include=1.5)
    for quantity, main, band in panels:
        plain(main)
        set_log(main, "y", limits, lambda value: f"{value:g}")
        set_log(main, "x", log_limits(map(quantity.of, rows), air=0.12), quantity.text, most=5)
        main.axhspan(1, limits[1], color=_NEVER_WINS, zorder=0)
        for series in find_series([row for row in rows if row not in exact]):
            look = look_of(series.rows[0].reducer)
            main.plot(
                [quantity.of(row) for row in series.rows],
                [_error(row) for row in series.rows],
                color=look.colour,
                marker=look.marker,
                markersize=_MARKER_SIZE,
                linewidth=1.2,
                label=series.rows[0].reducer,
            )
        if band is not None:
            _draw_band(band, quantity, exact)
        (band or main).set_xlabel(quantity.title, fontsize=TEXT_SIZE)
    left = panels[0]
    left.main.set_ylabel("relative L2 error of the mean gradient", fontsize=TEXT_SIZE)
    if left.exact is not None:
        left.exact.set_ylabel(_BAND, fontsize=TEXT_SIZE)


def _draw_band(band: Axes, quantity: _Quantity, exact: Sequence[Row]) -> None:
    """Draw exact rows, a line each."""
    plain(band)
    for place, row in enumerate(exact):
        look = look_of(row.reducer)
        band.plot(
            [quantity.of(row)],
            [place],
            color=look.colour,
            marker=look.marker,
            markersize=_MARKER_SIZE,
            linestyle="",
            label=row.option_string,
            clip_on=False,
        )
    band.set_yticks(range(len(exact)), [row.option_string for row in exact], fontsize=SMALL_SIZE)
    band.tick_params(axis="y", length=0)
    band.set_ylim(len(exact) - 0.4, -0.6)
    band.set_facecolor("#f8fbf8")


def _label(panels: Sequence[_Panels], rows: Sequence[Row]) -> None:
    """Name every point."""
    for quantity, main, _ in panels:
        points: list[tuple[float, float, str]] = []
        lines = []
        for series in find_series([row for row in rows if not row.exact]):
            places = [(quantity.of(row), _error(row)) for row in series.rows]
            points += [(*place, text) for place, text in zip(places, series.labels(), strict=True)]
            lines.append(np.array(places, np.float64))
        place_labels(main, points, lines)
