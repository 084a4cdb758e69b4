"""Regime maps: a panel per overlap and latency, in each a field per rate and density with the winner's colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from s2sim.errors import OptionError
from s2sim.report.figures.style import (
    GREY,
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    add_axes_inches,
    family_style,
    figure_bytes,
    figure_style,
    text_inches,
)
from s2sim.report.study_tables import axis_values
from s2sim.units import format_rate, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from s2sim.regimes.map import Cell, RegimeMap


MAX_CELLS = 4000
"""Limit of drawn fields."""

# Inches.
_FIELD_WIDTH, _FIELD_HEIGHT, _GAP = 0.52, 0.3, 0.12
# The least size of a panel, for its titles.
_PANEL_WIDTH, _PANEL_HEIGHT = 1.95, 0.95
_LEFT, _RIGHT, _BOTTOM, _HEAD = 0.78, 0.36, 0.52, 0.24
_LINE, _KEY_WIDTH, _KEY_HEIGHT, _LETTER, _MARGIN = 0.19, 0.26, 0.13, 0.062, 0.12
_MIN_WIDTH = 5.2
# Hatches of the reducers of one family, in order.
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\")
_EMPTY = "#f2f2f2"
# Luminance (ITU-R BT.709) above which black reads better than white.
_BRIGHT = 0.42


@dataclass(frozen=True, slots=True)
class _CellStyle:
    """Colour and hatch of the fields of one reducer."""

    colour: str
    hatch: str

    @property
    def ink(self) -> str:
        """The colour of numbers on the field."""
        red, green, blue = (int(self.colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > _BRIGHT else "white"


def draw_regimes(result: RegimeMap, file_format: str) -> bytes:
    """Return the figure of a map, missing cells empty: the same bytes for the same map and release of matplotlib."""
    from matplotlib.figure import Figure

    check_picture_size(result.spec.cells)
    densities, overlaps, rates, latencies = axis_values(result.cells)
    fills = _cell_styles(result)
    panel_width = max(_PANEL_WIDTH, _FIELD_WIDTH * len(rates))
    panel_height = max(_PANEL_HEIGHT, _FIELD_HEIGHT * len(densities))
    width = max(_MIN_WIDTH, _LEFT + len(overlaps) * (panel_width + _GAP) + _RIGHT)
    head = _head_lines(result, width)
    key = _key_rows(list(fills), width - 2 * _MARGIN)
    never = _never_lines(result, fills, width)
    above = _MARGIN + len(head) * _LINE + _HEAD
    below = _BOTTOM + (len(key) + len(never)) * _LINE + _MARGIN
    height = above + len(latencies) * (panel_height + _GAP) + below
    cells = {(cell.overlap, cell.latency_s, cell.density, cell.rate_Bps): cell for cell in result.cells}
    with figure_style():
        figure = Figure(figsize=(width, height), facecolor="white")
        for row, latency in enumerate(latencies):
            for column, overlap in enumerate(overlaps):
                left = _LEFT + column * (panel_width + _GAP)
                bottom = below + (len(latencies) - 1 - row) * (panel_height + _GAP)
                axes = add_axes_inches(figure, left, bottom, panel_width, panel_height)
                axes.set(xlim=(0, len(rates)), ylim=(0, len(densities)))
                fields = [[cells.get((overlap, latency, density, rate)) for rate in rates] for density in densities]
                _draw_panel(axes, fields, fills)
                _label_panel(
                    axes,
                    [format_rate(rate).replace(" ", "\n") for rate in rates] if row == len(latencies) - 1 else None,
                    [f"{density:g}" for density in densities] if column == 0 else None,
                )
                if row == 0:
                    axes.set_title(_overlap_text(overlap), fontsize=TEXT_SIZE, pad=4)
                if column == len(overlaps) - 1:
                    axes.yaxis.set_label_position("right")
                    axes.set_ylabel(f"latency {format_seconds(latency)}", fontsize=TEXT_SIZE, rotation=270, labelpad=12)
        middle = _LEFT + (len(overlaps) * (panel_width + _GAP) - _GAP) / 2
        text_inches(figure, middle, below - _BOTTOM + 0.06, "rate of a NIC", ha="center")
        tall = len(latencies) * (panel_height + _GAP) - _GAP
        label = "density: share of the rows that one rank holds"
        fitting = label if len(label) * _LETTER < tall else "density"
        text_inches(figure, _MARGIN + 0.07, below + tall / 2, fitting, rotation=90, ha="center", va="center")
        for number, (text, size) in enumerate(head):
            text_inches(figure, _MARGIN, height - _MARGIN - number * _LINE, text, size, va="top")
        _draw_key(figure, key, fills, never)
        return figure_bytes(figure, file_format)


def check_picture_size(cells: int) -> None:
    """Raise `OptionError` for a figure that would be too large to read."""
    if cells > MAX_CELLS:
        raise OptionError(f"a picture of {cells} cells was asked for: it shows at most {MAX_CELLS}; take fewer values")


def _cell_styles(result: RegimeMap) -> dict[str, _CellStyle]:
    """Return the style of each reducer that wins or ties, in the requested order."""
    drawn = {reducer for cell in result.cells for reducer in (cell.winner, *cell.ties)}
    fills: dict[str, _CellStyle] = {}
    families: dict[str, int] = {}
    for reducer in result.spec.reducers:
        if reducer in drawn:
            family = reducer.partition(":")[0]
            number = families[family] = families.get(family, -1) + 1
            fills[reducer] = _CellStyle(family_style(family).colour, _HATCHES[number % len(_HATCHES)])
    return fills


def _head_lines(result: RegimeMap, width: float) -> list[tuple[str, float]]:
    letters = int((width - 2 * _MARGIN) / _LETTER)
    spec = result.spec
    text = f"Colour: fastest with a relative L2 error up to {spec.max_error:g}. Number: its speed-up over dense."
    if any(cell.ties for cell in result.cells):
        text += " Corner: what ties within 1 %."
    lines = [(line, TITLE_SIZE) for line in wrap(result.cluster, int(letters * TEXT_SIZE / TITLE_SIZE))]
    return [*lines, *((line, TEXT_SIZE) for line in wrap(text, letters))]


def _overlap_text(overlap: float) -> str:
    meaning = {0.0: " (each rank its own rows)", 1.0: " (all ranks the same rows)"}.get(overlap, "")
    return f"overlap {overlap:g}{meaning}"


def _draw_panel(axes: Axes, fields: Sequence[Sequence[Cell | None]], fills: dict[str, _CellStyle]) -> None:
    for y, row in enumerate(fields):
        for x, cell in enumerate(row):
            fill = _CellStyle(_EMPTY, "") if cell is None else fills[cell.winner]
            _draw_shape(axes, [(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)], fill)
            if cell is None:
                continue
            if cell.ties:
                _draw_shape(axes, [(x + 1, y + 0.3), (x + 1, y + 1), (x + 0.68, y + 1)], fills[cell.ties[0]])
            ground = {"boxstyle": "square,pad=0.12", "facecolor": fill.colour, "edgecolor": "none"}
            axes.text(
                x + (0.45 if cell.ties else 0.5),
                y + 0.48,
                _speedup_text(cell.speedup_vs_dense),
                fontsize=SMALL_SIZE,
                color=fill.ink,
                ha="center",
                va="center",
                bbox=ground if fill.hatch else None,
            )


def _draw_shape(axes: Axes, corners: Sequence[tuple[float, float]], fill: _CellStyle) -> None:
    from matplotlib.patches import Polygon

    axes.add_patch(Polygon(corners, facecolor=fill.colour, hatch=fill.hatch, edgecolor="white", linewidth=0.0))
    axes.add_patch(Polygon(corners, fill=False, edgecolor="white", linewidth=0.9))


def _speedup_text(value: float) -> str:
    """Return a ratio with three digits or more.

    >>> _speedup_text(1.3), _speedup_text(11.04), _speedup_text(1234.5)
    ('1.30×', '11.0×', '1234×')
    """
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f}\N{MULTIPLICATION SIGN}"


def _label_panel(axes: Axes, rates: Sequence[str] | None, densities: Sequence[str] | None) -> None:
    axes.tick_params(length=0, labelsize=SMALL_SIZE, pad=3)
    xlim, ylim = axes.get_xlim()[1], axes.get_ylim()[1]
    axes.set_xticks([number + 0.5 for number in range(int(xlim))], rates or [""] * int(xlim))
    axes.set_yticks([number + 0.5 for number in range(int(ylim))], densities or [""] * int(ylim))
    axes.spines[:].set_visible(False)


def _key_rows(reducers: Sequence[str], room: float) -> list[list[tuple[str, float]]]:
    """Return the rows of the legend: its entries with their positions in inches from the left."""
    rows: list[list[tuple[str, float]]] = [[]]
    x = _MARGIN
    for reducer in reducers:
        needed = _KEY_WIDTH + 0.08 + len(reducer) * _LETTER + 0.15
        if rows[-1] and x + needed > room:
            rows.append([])
            x = _MARGIN
        rows[-1].append((reducer, x))
        x += needed
    return rows


def _never_lines(result: RegimeMap, fills: dict[str, _CellStyle], width: float) -> list[str]:
    never = [reducer for reducer in result.spec.reducers if reducer not in fills]
    if not never:
        return []
    return wrap(f"Fastest nowhere: {', '.join(never)}.", int((width - 2 * _MARGIN) / _LETTER), break_on_hyphens=False)


def _draw_key(
    figure: Figure, rows: Sequence[Sequence[tuple[str, float]]], fills: dict[str, _CellStyle], never: Sequence[str]
) -> None:
    from matplotlib.patches import Rectangle

    width, height = figure.get_size_inches()
    lines = len(rows) + len(never)
    for number, row in enumerate(rows):
        y = _MARGIN + (lines - number - 0.5) * _LINE
        for reducer, x in row:
            fill = fills[reducer]
            sample = Rectangle(
                (x / width, (y - _KEY_HEIGHT / 2) / height),
                _KEY_WIDTH / width,
                _KEY_HEIGHT / height,
                facecolor=fill.colour,
                hatch=fill.hatch,
                edgecolor="white",
                linewidth=0,
                transform=figure.transFigure,
            )
            figure.add_artist(sample)
            text_inches(figure, x + _KEY_WIDTH + 0.06, y, reducer, va="center_baseline")
    for number, line in enumerate(never):
        y = _MARGIN + (len(never) - number - 0.5) * _LINE
        text_inches(figure, _MARGIN, y, line, SMALL_SIZE, color=GREY, va="center")
