"""Figures of reducers: bars of time by phase or part of an iteration, and error against bytes and against time."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil, isfinite
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from s2sim.arrays import Floats
from s2sim.experiment.rows import ROUNDING_ERROR, Row
from s2sim.report.figures import style
from s2sim.report.figures.labels import Label, figure_with_head, names_size, place_labels
from s2sim.report.figures.style import PlottedQuantity
from s2sim.report.format import ENDS_WITH, error_text, factor_text, throughput_text
from s2sim.report.run_tables import exchange_text, iteration_of, unrecorded
from s2sim.units import format_bytes, format_seconds

# Inches: the surroundings of the bars of a panel, the legend, the least width of bars with their texts.
_BAR_FRAME, _LEGEND, _MIN_INNER = 0.8, 0.3, 4.1
# Points between a bar and its text.
_GAP = 5.0


class _Bars(NamedTuple):
    title: str
    axis: str  # Label of the time axis
    inches: float  # Height per row
    draw: Callable[[Axes, Sequence[Row]], None]  # Draws the bars of rows, at 0, 1, ... from the top
    length_s: Callable[[Row], float]  # Length of a row's bar
    text: Callable[[Row], str]  # The text next to it
    legend: Sequence[Artist]


def _bars_figure(bars: _Bars, rows_by_workers: Mapping[int, Sequence[Row]], subtitle: str) -> Figure:
    titles = list(map(style.workers_title, rows_by_workers.values()))
    heights = [_BAR_FRAME + bars.inches * len(rows) for rows in rows_by_workers.values()]
    names = {row.reducer for rows in rows_by_workers.values() for row in rows}
    with style.figure_style():
        width = max(style.WIDTH, names_size(names)[0] * style.TEXT_SIZE / style.SMALL_SIZE + _MIN_INNER)
        figure, body = figure_with_head(bars.title, subtitle, sum(heights) + _LEGEND, width)
        *parts, last = body.subfigures(len(heights) + 1, 1, height_ratios=[*heights, _LEGEND], squeeze=False)[:, 0]
        panels = []
        for part, title, rows in zip(parts, titles, rows_by_workers.values(), strict=True):
            axes = part.subplots()
            bars.draw(axes, rows)
            style.style_axes(axes, grid="x")
            # One tick will do for the layout: the others are set once limits are known.
            axes.set(ylim=(len(rows) - 0.5, -0.5), xticks=[0.0], xticklabels=["0 s"])
            axes.set_yticks(range(len(rows)), [row.reducer for row in rows], fontsize=style.TEXT_SIZE)
            axes.tick_params(axis="y", length=0)
            style.label_axes(axes, bars.axis, title=title)
            panels.append((axes, rows))
        look: dict[str, Any] = {"fontsize": style.SMALL_SIZE, "frameon": False, "ncols": len(bars.legend)}
        last.legend(handles=bars.legend, loc="center", columnspacing=1.2, **look)
        style.fix_layout(figure)
        for axes, rows in panels:
            # The axis is long enough for the bars and the texts next to them.
            width = axes.bbox.width / figure.dpi
            taken = [float(style.text_size(figure, bars.text(row))[0]) + 2 * _GAP / 72 for row in rows]
            end = max(bars.length_s(row) * width / (width - text) for row, text in zip(rows, taken, strict=True)) or 1.0
            # A tick at the very end would have no room for its text.
            ticks = [tick for tick in MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(0, end) if tick <= 0.96 * end]
            axes.set_xlim(0, end)
            axes.set_xticks(ticks, [format_seconds(tick) for tick in ticks])
            for place, row in enumerate(rows):
                style.label_point(axes, bars.text(row), (bars.length_s(row), place), (_GAP, 0), va="center")
        return figure


def _stack_bars(
    axes: Axes, parts: Mapping[str, Sequence[float]], colour: Callable[[int, str], Any], thickness: float, edge: float
) -> dict[str, list[float]]:
    """Draw the parts of bars, in seconds by row, in order; return where each part begins in each row."""
    starts: dict[str, list[float]] = {}
    ends = [0.0] * len(next(iter(parts.values())))
    for part, lengths in parts.items():
        starts[part] = ends
        colours = [colour(place, part) for place in range(len(ends))]
        look: dict[str, Any] = {"color": colours, "edgecolor": "white", "linewidth": edge, "label": part}
        axes.barh(range(len(ends)), lengths, thickness, left=ends, **look)
        ends = [end + length for end, length in zip(ends, lengths, strict=True)]
    return starts


# Strength of a family's colour in each phase; hatches would make an SVG of megabytes. Communication comes first, so
# that its lower bound is at the right time on the axis.
PHASES = {"communication": 1.0, "encode": 0.6, "decode": 0.3}
# Inches of a bar with its surroundings, and its share of them.
_PHASE_BAR, _BAR_SHARE = 0.25, 0.68


def breakdown_figure(rows_by_workers: Mapping[int, Sequence[Row]], subtitle: str = "") -> Figure:
    """Return, for each number of workers, a bar per reducer with its phases, and a tick at its bandwidth bound."""
    iterations = all(row.iteration_s is not None for rows in rows_by_workers.values() for row in rows)
    compared = " of iterations" if iterations else ""
    bound = Line2D([], [], color="black", marker="|", linestyle="", markersize=9, label="lower bound of communication")
    bars = _Bars(
        f"Where the time goes, with total, speed-up{compared} over dense and relative L2 error",
        "time of the communication phase on the slowest rank",
        _PHASE_BAR,
        _draw_phase_bars,
        TIME.of,
        lambda row: f"{format_seconds(row.time_s.total)}, {factor_text(row.speedup_vs_dense)}, {_loss_text(row)}",
        [*(Patch(facecolor=_tint(style.GREY, phase), label=phase) for phase in PHASES), bound],
    )
    return _bars_figure(bars, rows_by_workers, subtitle)


def _tint(colour: str, phase: str) -> tuple[float, float, float]:
    strength = PHASES[phase]
    red, green, blue = (1 - strength + strength * part for part in to_rgb(colour))
    return red, green, blue


def _draw_phase_bars(axes: Axes, rows: Sequence[Row]) -> None:
    phases = {phase: [getattr(row.time_s, phase) for row in rows] for phase in PHASES}
    colours = [style.family_style(row.name).colour for row in rows]
    _stack_bars(axes, phases, lambda place, phase: _tint(colours[place], phase), _BAR_SHARE, 0.4)
    outline = [withStroke(linewidth=3.0, foreground="white")]
    for y, row in enumerate(rows):
        ends = y - _BAR_SHARE / 2, y + _BAR_SHARE / 2
        axes.vlines(row.lower_bound_s, *ends, color="black", linewidth=1.2, path_effects=outline)


def _loss_text(row: Row) -> str:
    """Return the error of a row, or what its ranks have instead of the mean."""
    return ENDS_WITH.get(row.estimates, "exact" if row.exact else f"error {error_text(row.error.relative_l2)}")


*STACKED, HIDDEN = style.ITERATION_PARTS
"""The parts that add up to an iteration, in order; and communication that overlaps with them."""

# Inches of a bar with its surroundings; shares of them: the stack and, below it, what is hidden.
_ITERATION_BAR = 0.3
_STACK, _THIN = 0.6, 0.18


def iterations_figure(rows_by_workers: Mapping[int, Sequence[Row]], subtitle: str = "") -> Figure:
    """Return by workers a bar of iteration parts per reducer, fastest first; a thin one is hidden communication."""

    def summary(row: Row) -> str:
        rate = iteration_of(row).samples_per_s
        throughput = "" if rate is None else f"{throughput_text(rate)}/s, "
        return (
            f"{format_seconds(ITERATION.of(row))}, {factor_text(row.speedup_vs_dense)}, {throughput}{_loss_text(row)}"
        )

    fastest_first = {workers: sorted(rows, key=ITERATION.of) for workers, rows in rows_by_workers.items()}
    every = [row for rows in fastest_first.values() for row in rows]
    how, absent = exchange_text(every), unrecorded(every)
    bars = _Bars(
        "Where an iteration goes, with its time, speed-up over dense, throughput and relative L2 error",
        "time of an iteration on the slowest rank",
        _ITERATION_BAR,
        _draw_iteration_bars,
        ITERATION.of,
        summary,
        [Patch(facecolor=colour, label=part) for part, colour in style.ITERATION_PARTS.items() if part not in absent],
    )
    return _bars_figure(bars, fastest_first, f"{how}; {subtitle}" if subtitle else how)


def _draw_iteration_bars(axes: Axes, rows: Sequence[Row]) -> None:
    def seconds(part: str) -> list[float]:
        return [getattr(iteration_of(row), part.replace(" ", "_")) for row in rows]

    parts = {part: seconds(part) for part in STACKED if part not in unrecorded(rows)}
    starts = _stack_bars(axes, parts, lambda _, part: style.ITERATION_PARTS[part], _STACK, 0.3)
    hidden, exposed = seconds(HIDDEN), starts["exposed communication"]
    places = [y + (_STACK + _THIN) / 2 for y in range(len(rows))]
    lefts = [max(0.0, end - length) for end, length in zip(exposed, hidden, strict=True)]
    axes.barh(places, hidden, _THIN, left=lefts, color=style.ITERATION_PARTS[HIDDEN], label=HIDDEN)


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


_SENT = PlottedQuantity("bytes sent by the rank that sends most", lambda row: row.bytes_sent_per_rank, format_bytes)
_PAYLOAD = PlottedQuantity(
    "bytes that it would hand to a network", lambda row: row.payload_bytes_per_rank, format_bytes
)
TIME = PlottedQuantity("time of the communication phase", lambda row: row.time_s.total, format_seconds)
ITERATION = PlottedQuantity("time of an iteration", lambda row: iteration_of(row).total_s, format_seconds)


def _quantities(rows: Sequence[Row]) -> tuple[PlottedQuantity, PlottedQuantity]:
    # A single rank sends nothing.
    time = TIME if any(row.iteration is None for row in rows) else ITERATION
    return (_PAYLOAD if all(row.workers == 1 for row in rows) else _SENT), time


class _Panels(NamedTuple):
    """The axes of one quantity: errors on a logarithmic axis, and below them a line for each exact reducer."""

    quantity: PlottedQuantity
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


def _steps(quantity: PlottedQuantity, front: frozenset[str], group: _Group) -> Floats:
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
