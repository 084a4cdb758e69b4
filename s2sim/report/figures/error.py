"""The price of an error: relative L2 error against bytes and against time."""

from collections.abc import Mapping, Sequence
from math import ceil, isfinite
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from s2sim.arrays import Floats
from s2sim.experiment.rows import ROUNDING_ERROR, Row
from s2sim.report.figures import style
from s2sim.report.figures.labels import Label, figure_with_head, place_labels
from s2sim.report.format import ENDS_WITH
from s2sim.report.run_tables import iteration_of
from s2sim.units import format_bytes, format_seconds

# Inches: a panel, its surroundings, a line of exact rows, a line of the legend, a note.
_MAIN, _FRAME, _LINE, _KEY, _NOTE = 2.6, 0.85, 0.17, 0.16, 0.16
_KEY_COLUMNS, _MARKER_SIZE = 3, 5.5
_NEVER_WINS = "#f0f0f0"
# Fillings of the markers of one family, in order.
_FILLS = ("full", "none", "left", "bottom", "right", "top")
_KEY_STYLE: dict[str, Any] = {
    "title_fontsize": style.TITLE_SIZE,
    "alignment": "left",
    "fontsize": style.SMALL_SIZE,
    "frameon": False,
    "borderpad": 0,
} | {"ncols": _KEY_COLUMNS, "loc": "outside upper left", "handlelength": 2.6, "labelspacing": 0.25}
_BAND = f"exact (≤ {ROUNDING_ERROR:.0e}):".replace("e-0", "e-")


_SENT = style.PlottedQuantity(
    "bytes sent by the rank that sends most", lambda row: row.bytes_sent_per_rank, format_bytes
)
_PAYLOAD = style.PlottedQuantity(
    "bytes that it would hand to a network", lambda row: row.payload_bytes_per_rank, format_bytes
)
_TIME = style.PlottedQuantity("time of the communication phase", lambda row: row.time_s.total, format_seconds)
_ITERATION = style.PlottedQuantity("time of an iteration", lambda row: iteration_of(row).total_s, format_seconds)


def _quantities(rows: Sequence[Row]) -> tuple[style.PlottedQuantity, style.PlottedQuantity]:
    # A single rank sends nothing.
    time = _TIME if any(row.iteration is None for row in rows) else _ITERATION
    return (_PAYLOAD if all(row.workers == 1 for row in rows) else _SENT), time


class _Panels(NamedTuple):
    """The axes of one quantity: errors on a logarithmic axis, and below them a line for each exact reducer."""

    quantity: style.PlottedQuantity
    front: frozenset[str]
    main: Axes
    exact: Axes | None


class _Group(NamedTuple):
    """Rows of one number of workers, reasons of hidden ones by option string, and series with their fillings."""

    rows: list[Row]
    hidden: dict[str, str]
    series: list[tuple[style.Series, str]]

    @property
    def exact(self) -> list[Row]:
        """Rows without error."""
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

    Rows that differ in one numeric option are joined by a line. Rows with errors up to `ROUNDING_ERROR` are in a
    separate panel. ``fronts`` has, by number of workers, the option strings on the Pareto fronts of error and bytes,
    and of error and time.
    """
    titles = list(map(style.workers_title, rows_by_workers.values()))
    groups = list(map(_make_group, rows_by_workers.values()))
    heights = [group.height for group in groups]
    ringed = "" if fronts is None else "; ringed: nothing beats it"
    with style.figure_style():
        title = f"What a byte and a second buy{ringed}; shaded: further from the mean than zeros are"
        figure, body = figure_with_head(title, subtitle, sum(heights))
        parts = body.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        drawn = []
        for part, workers, name, group in zip(parts, rows_by_workers, titles, groups, strict=True):
            panels = _panels(part, group, (fronts or {}).get(workers, (frozenset(), frozenset())))
            _draw(panels, group)
            part.legend(*panels[0].main.get_legend_handles_labels(), title=name, **_KEY_STYLE)
            if group.hidden:
                hidden = ", ".join(f"{text} ({reason})" for text, reason in group.hidden.items())
                part.supxlabel(f"not shown: {hidden}", fontsize=style.SMALL_SIZE, x=0.01, ha="left")
            drawn += [(panel, group) for panel in panels]
        style.fix_layout(figure)
        for panel, group in drawn:
            _label(panel, group)
        return figure


def _make_group(rows: Sequence[Row]) -> _Group:
    hidden = {}
    for row in rows:
        if row.error.relative_l2 is None or not isfinite(row.error.relative_l2):
            hidden[row.reducer] = "error undefined"
        elif row.estimates != "mean":
            hidden[row.reducer] = ENDS_WITH[row.estimates]
        elif any(quantity.of(row) == 0 for quantity in _quantities(rows)):
            hidden[row.reducer] = "takes nothing"
    shown = [row for row in rows if row.reducer not in hidden]
    series = style.find_series([row for row in shown if not row.exact])
    fills = style.vary_in_family([one.rows[0].name for one in series], _FILLS)
    return _Group(shown, hidden, list(zip(series, fills, strict=True)))


def _error(row: Row) -> float:
    assert row.error.relative_l2 is not None
    return row.error.relative_l2


def _panels(part: SubFigure, group: _Group, fronts: tuple[frozenset[str], frozenset[str]]) -> list[_Panels]:
    columns = list(zip(_quantities(group.rows), fronts, strict=True))
    if not group.exact:
        mains = part.subplots(1, 2, sharey=True)
        return [_Panels(*column, axes, None) for column, axes in zip(columns, mains, strict=True)]
    ratios = (_MAIN, _LINE * (1 + len(group.exact)))
    grid = part.subplots(2, 2, sharex="col", sharey="row", height_ratios=ratios, gridspec_kw={"hspace": 0.02})
    return [_Panels(*column, *axes) for column, axes in zip(columns, grid.T, strict=True)]


def _series_style(family: str, fill: str) -> dict[str, Any]:
    look = style.family_style(family)
    return {
        "color": look.colour,
        "marker": look.marker,
        "markersize": _MARKER_SIZE,
        "fillstyle": fill,
        "markerfacecoloralt": "white",
        "linestyle": style.STYLES[_FILLS.index(fill) % len(style.STYLES)],
        "linewidth": 1.2,
    }


def _draw(panels: Sequence[_Panels], group: _Group) -> None:
    limits = style.log_limits([_error(row) for row in group.rows if not row.exact], include=1.5)
    for quantity, front, main, band in panels:
        style.style_axes(main)
        style.set_log(main, "y", limits, lambda value: f"{value:g}")
        style.set_log(main, "x", style.log_limits(map(quantity.of, group.rows), air=0.12), quantity.text, most=5)
        main.axhspan(1, limits[1], color=_NEVER_WINS, zorder=0)
        for series, fill in group.series:
            points = [(quantity.of(row), _error(row)) for row in series.rows]
            main.plot(*zip(*points, strict=True), label=series.name, **_series_style(series.rows[0].name, fill))
        style.draw_steps(main, _steps(quantity, front, group))
        on_front = [row for row in group.rows if row.reducer in front and not row.exact]
        style.draw_rings(main, [(quantity.of(row), _error(row)) for row in on_front])
        if band is not None:
            style.style_axes(band)
            for place, row in enumerate(group.exact):
                look = {**_series_style(row.name, "full"), "linestyle": ""}
                band.plot([quantity.of(row)], [place], label=row.reducer, clip_on=False, **look)
            names = [_BAND, *(row.reducer for row in group.exact)]
            band.set_yticks(range(-1, len(group.exact)), names, fontsize=style.SMALL_SIZE)
            band.tick_params(axis="y", length=0)
            band.set_ylim(len(group.exact) - 0.4, -1.5)
            band.set_facecolor("#f8fbf8")
            lines = enumerate(group.exact)
            style.draw_rings(band, [(quantity.of(row), line) for line, row in lines if row.reducer in front])
        style.label_axes(band or main, quantity.title)
    style.label_axes(panels[0].main, y="relative L2 error of the mean gradient")


def _steps(quantity: style.PlottedQuantity, front: frozenset[str], group: _Group) -> Floats:
    held = [row for row in group.rows if row.reducer in front]
    return style.front_corners([(quantity.of(row), 0.0 if row.exact else _error(row)) for row in held])


def _label(panel: _Panels, group: _Group) -> None:
    labels = []
    lines = [_steps(panel.quantity, panel.front, group)]
    for series, _ in group.series:
        points = [(panel.quantity.of(row), _error(row)) for row in series.rows]
        colour = style.family_style(series.rows[0].name).colour
        labels += [Label(*point, text, colour) for point, text in zip(points, series.labels(), strict=True)]
        lines.append(np.array(points, np.float64))
    place_labels(panel.main, labels, lines)
