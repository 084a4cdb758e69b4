"""The price of an error: relative L2 error against bytes and against time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from s2sim.arrays import Floats
from s2sim.experiment.rows import ROUNDING_ERROR, Row
from s2sim.report.figures.break_even import STYLES
from s2sim.report.figures.labels import Label, figure_with_head, place_labels
from s2sim.report.figures.style import (
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    Series,
    draw_rings,
    draw_steps,
    family_style,
    figure_style,
    find_series,
    fix_layout,
    front_corners,
    log_limits,
    set_log,
    style_axes,
    workers_title,
)
from s2sim.report.format import ENDS_WITH
from s2sim.report.iteration_tables import iteration_of
from s2sim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


# Inches: of a panel, of what surrounds it, of a line of exact rows, of the legend and of a note.
_MAIN, _FRAME, _LINE, _KEY, _NOTE = 2.6, 0.85, 0.17, 0.16, 0.16
_KEY_COLUMNS = 3
_MARKER_SIZE = 5.5
_NEVER_WINS = "#f0f0f0"
# What belongs to one family is told apart by these, one after the other.
_FILLS = ("full", "none", "left", "bottom", "right", "top")
_BAND = f"exact (≤ {ROUNDING_ERROR:.0e}):".replace("e-0", "e-")


class _Quantity(NamedTuple):
    """A quantity that a panel shows the error against."""

    title: str
    of: Callable[[Row], float]
    text: Callable[[float], str]


_SENT = _Quantity("bytes sent by the rank that sends most", lambda row: row.bytes_sent_per_rank, format_bytes)
_PAYLOAD = _Quantity("bytes that it would hand to a network", lambda row: row.payload_bytes_per_rank, format_bytes)
_TIME = _Quantity("time of the communication phase", lambda row: row.time_s.total, format_seconds)
_ITERATION = _Quantity("time of an iteration", lambda row: iteration_of(row).total_s, format_seconds)


def _quantities(rows: Sequence[Row]) -> tuple[_Quantity, _Quantity]:
    """Return what errors are shown against: one rank alone sends nothing."""
    time = _TIME if any(row.iteration is None for row in rows) else _ITERATION
    return (_PAYLOAD if all(row.workers == 1 for row in rows) else _SENT), time


class _Panels(NamedTuple):
    """The axes of one quantity: errors on a logarithmic axis, and below them a line for each exact reducer."""

    quantity: _Quantity
    front: frozenset[str]
    main: Axes
    exact: Axes | None


class _Group(NamedTuple):
    """What is shown of one number of workers, and which series have which filling."""

    rows: list[Row]
    hidden: dict[str, str]
    series: list[tuple[Series, str]]

    @property
    def exact(self) -> list[Row]:
        """Rows without an error."""
        return [row for row in self.rows if row.exact]

    @property
    def height(self) -> float:
        """Inches."""
        key = _KEY * ceil(len(self.series) / _KEY_COLUMNS)
        band = _LINE * (1 + len(self.exact)) if self.exact else 0.0
        return _FRAME + _MAIN + band + key + (_NOTE if self.hidden else 0.0)


def error_figure(
    rows_by_workers: Mapping[int, Sequence[Row]],
    fronts: Mapping[int, tuple[frozenset[str], frozenset[str]]] | None = None,
    subtitle: str = "",
) -> Figure:
    """Return, for each number of workers, the error against bytes and against time.

    Rows that differ in one number among their options are joined by a line. Errors up to `ROUNDING_ERROR` are rounding,
    which no logarithmic axis should spread out: those rows stand in a band of their own.

    Parameters
    ----------
    fronts : dict, optional
        By number of workers, the option strings of what nothing beats in error and bytes, and in error and time: they
        are ringed, and joined by a grey line.
    """
    titles = {workers: workers_title(rows) for workers, rows in rows_by_workers.items()}
    groups = {workers: _make_group(rows) for workers, rows in rows_by_workers.items()}
    heights = [group.height for group in groups.values()]
    ringed = "" if fronts is None else "; ringed: nothing beats it"
    with figure_style():
        title = f"What a byte and a second buy{ringed}; shaded: further from the mean than zeros are"
        figure, body = figure_with_head(title, subtitle, sum(heights))
        parts = body.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        drawn = []
        for part, (workers, group) in zip(parts, groups.items(), strict=True):
            panels = _panels(part, group, (fronts or {}).get(workers, (frozenset(), frozenset())))
            _draw(panels, group)
            _write_key(part, titles[workers], panels[0].main)
            if group.hidden:
                part.supxlabel(_hidden_note(group.hidden), fontsize=SMALL_SIZE, x=0.01, ha="left")
            drawn.append((panels, group))
        # Where texts fit is known once everything has its place.
        fix_layout(figure)
        for panels, group in drawn:
            _label(panels, group)
        return figure


def _make_group(rows: Sequence[Row]) -> _Group:
    hidden = _hidden_reasons(rows)
    shown = [row for row in rows if row.reducer not in hidden]
    drawn: Counter[str] = Counter()
    series = []
    for one in find_series([row for row in shown if not row.exact]):
        family = one.rows[0].name
        series.append((one, _FILLS[drawn[family] % len(_FILLS)]))
        drawn[family] += 1
    return _Group(shown, hidden, series)


def _error(row: Row) -> float:
    """Return the relative L2 error of a row that is shown."""
    assert row.error.relative_l2 is not None
    return row.error.relative_l2


def _hidden_reasons(rows: Sequence[Row]) -> dict[str, str]:
    """Return why rows cannot be shown, by option string."""
    reasons = {}
    for row in rows:
        if row.error.relative_l2 is None or not isfinite(row.error.relative_l2):
            reasons[row.reducer] = "error undefined"
        elif row.estimates != "mean":
            reasons[row.reducer] = ENDS_WITH[row.estimates]
        elif any(quantity.of(row) == 0 for quantity in _quantities(rows)):
            reasons[row.reducer] = "takes nothing"
    return reasons


def _hidden_note(reasons: Mapping[str, str]) -> str:
    return "not shown: " + ", ".join(f"{text} ({reason})" for text, reason in reasons.items())


def _panels(part: SubFigure, group: _Group, fronts: tuple[frozenset[str], frozenset[str]]) -> list[_Panels]:
    exact = len(group.exact)
    each = zip(_quantities(group.rows), fronts, strict=True)
    if not exact:
        mains = part.subplots(1, 2, sharey=True)
        return [_Panels(quantity, front, axes, None) for (quantity, front), axes in zip(each, mains, strict=True)]
    grid = part.subplots(
        2, 2, sharex="col", sharey="row", height_ratios=(_MAIN, _LINE * (1 + exact)), gridspec_kw={"hspace": 0.02}
    )
    return [_Panels(quantity, front, *axes) for (quantity, front), axes in zip(each, grid.T, strict=True)]


def _series_style(family: str, fill: str) -> dict[str, Any]:
    """Return how a series is drawn."""
    look = family_style(family)
    return {
        "color": look.colour,
        "marker": look.marker,
        "markersize": _MARKER_SIZE,
        "fillstyle": fill,
        "markerfacecoloralt": "white",
        "linestyle": STYLES[_FILLS.index(fill) % len(STYLES)],
        "linewidth": 1.2,
    }


def _draw(panels: Sequence[_Panels], group: _Group) -> None:
    limits = log_limits([_error(row) for row in group.rows if not row.exact], include=1.5)
    for quantity, front, main, band in panels:
        style_axes(main)
        set_log(main, "y", limits, lambda value: f"{value:g}")
        set_log(main, "x", log_limits(map(quantity.of, group.rows), air=0.12), quantity.text, most=5)
        main.axhspan(1, limits[1], color=_NEVER_WINS, zorder=0)
        for series, fill in group.series:
            places = [(quantity.of(row), _error(row)) for row in series.rows]
            main.plot(*zip(*places, strict=True), label=series.name, **_series_style(series.rows[0].name, fill))
        if band is not None:
            _draw_band(band, quantity, group.exact)
        steps = _steps(quantity, front, group)
        draw_steps(main, steps)
        draw_rings(
            main, [(quantity.of(row), _error(row)) for row in group.rows if row.reducer in front and not row.exact]
        )
        if band is not None:
            exact = enumerate(group.exact)
            draw_rings(band, [(quantity.of(row), place) for place, row in exact if row.reducer in front])
        (band or main).set_xlabel(quantity.title, fontsize=TEXT_SIZE)
    left = panels[0]
    left.main.set_ylabel("relative L2 error of the mean gradient", fontsize=TEXT_SIZE)


def _draw_band(band: Axes, quantity: _Quantity, exact: Sequence[Row]) -> None:
    """Draw exact rows, a line each."""
    style_axes(band)
    for place, row in enumerate(exact):
        look = {**_series_style(row.name, "full"), "linestyle": ""}
        band.plot([quantity.of(row)], [place], label=row.reducer, clip_on=False, **look)
    band.set_yticks(range(-1, len(exact)), [_BAND, *(row.reducer for row in exact)], fontsize=SMALL_SIZE)
    band.tick_params(axis="y", length=0)
    band.set_ylim(len(exact) - 0.4, -1.5)
    band.set_facecolor("#f8fbf8")


def _write_key(part: SubFigure, title: str, axes: Axes) -> None:
    """Write of what number of workers this is, and name the series."""
    part.legend(
        *axes.get_legend_handles_labels(),
        title=title,
        title_fontsize=TITLE_SIZE,
        alignment="left",
        fontsize=SMALL_SIZE,
        frameon=False,
        ncols=_KEY_COLUMNS,
        loc="outside upper left",
        handlelength=2.6,
        labelspacing=0.25,
        borderpad=0,
    )


def _steps(quantity: _Quantity, front: frozenset[str], group: _Group) -> Floats:
    held = [row for row in group.rows if row.reducer in front]
    return front_corners([(quantity.of(row), 0.0 if row.exact else _error(row)) for row in held])


def _label(panels: Sequence[_Panels], group: _Group) -> None:
    """Write the value of the swept option beside every point of a series, and beside others their name."""
    for quantity, front, main, _ in panels:
        labels = []
        lines = [_steps(quantity, front, group)]
        for series, _ in group.series:
            places = [(quantity.of(row), _error(row)) for row in series.rows]
            colour = family_style(series.rows[0].name).colour
            labels += [Label(*place, text, colour) for place, text in zip(places, series.labels(), strict=True)]
            lines.append(np.array(places, np.float64))
        place_labels(main, labels, lines)
