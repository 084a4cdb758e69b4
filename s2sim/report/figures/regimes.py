"""Regime maps: a panel per overlap and latency, in each a field per rate and density with the winner's colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.patches import Patch, Polygon

from s2sim.errors import OptionError
from s2sim.regimes.map import Cell, RegimeMap
from s2sim.report.figures import style
from s2sim.report.figures.labels import figure_with_head, write_legend
from s2sim.report.study_tables import axis_values
from s2sim.units import format_rate, format_seconds

MAX_CELLS = 4000
"""Limit of drawn fields."""

# Inches: a field, the least size of a panel with its titles, labels and legend around the panels, and the figure.
_FIELD_WIDTH, _FIELD_HEIGHT, _PANEL_WIDTH, _PANEL_HEIGHT = 0.52, 0.3, 1.95, 1.0
_AROUND_WIDTH, _AROUND_HEIGHT, _MIN_WIDTH = 1.2, 1.4, 5.2
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
    check_picture_size(result.spec.cells)
    densities, overlaps, rates, latencies = axis_values(result.cells)
    fills = _cell_styles(result)
    width = _AROUND_WIDTH + len(overlaps) * max(_PANEL_WIDTH, _FIELD_WIDTH * len(rates))
    height = _AROUND_HEIGHT + len(latencies) * max(_PANEL_HEIGHT, _FIELD_HEIGHT * len(densities))
    with style.figure_style():
        figure, body = figure_with_head(result.cluster, _reading_note(result, fills), height, max(_MIN_WIDTH, width))
        if result.cells:
            _draw_panels(body, result.cells, fills)
        look: dict[str, Any] = {"edgecolor": "white", "linewidth": 0}
        handles = [Patch(facecolor=fill.colour, hatch=fill.hatch, label=name, **look) for name, fill in fills.items()]
        write_legend(body, handles)
        return style.figure_bytes(figure, file_format)


def _draw_panels(body: SubFigure, cells: Sequence[Cell], fills: dict[str, _CellStyle]) -> None:
    densities, overlaps, rates, latencies = axis_values(cells)
    known = {(cell.overlap, cell.latency_s, cell.density, cell.rate_Bps): cell for cell in cells}
    panels = body.subplots(len(latencies), len(overlaps), sharex=True, sharey=True, squeeze=False)
    for latency, row in zip(latencies, panels, strict=True):
        for overlap, axes in zip(overlaps, row, strict=True):
            fields = [[known.get((overlap, latency, density, rate)) for rate in rates] for density in densities]
            _draw_panel(axes, fields, fills)
        row[-1].yaxis.set_label_position("right")
        row[-1].set_ylabel(f"latency {format_seconds(latency)}", fontsize=style.TEXT_SIZE, rotation=270, labelpad=12)
    for overlap, axes in zip(overlaps, panels[0], strict=True):
        meaning = {0.0: " (each rank its own rows)", 1.0: " (all ranks the same rows)"}.get(overlap, "")
        axes.set_title(f"overlap {overlap:g}{meaning}", fontsize=style.TEXT_SIZE, pad=4)
    for axes in panels[-1]:
        style.label_axes(axes, "rate of a NIC")
    rate_names = [format_rate(rate).replace(" ", "\n") for rate in rates]
    panels[-1, 0].set_xticks([x + 0.5 for x in range(len(rates))], rate_names)
    panels[-1, 0].set_yticks([y + 0.5 for y in range(len(densities))], [f"{density:g}" for density in densities])
    body.supylabel("density: share of the rows\nthat one rank holds", fontsize=style.TEXT_SIZE)


def check_picture_size(cells: int) -> None:
    """Raise `OptionError` for a figure that would be too large to read."""
    if cells > MAX_CELLS:
        raise OptionError(f"a picture of {cells} cells was asked for: it shows at most {MAX_CELLS}; take fewer values")


def _cell_styles(result: RegimeMap) -> dict[str, _CellStyle]:
    """Return the style of each reducer that wins or ties, in the requested order."""
    drawn = {reducer for cell in result.cells for reducer in (cell.winner, *cell.ties)}
    fills: dict[str, _CellStyle] = {}
    families: Counter[str] = Counter()
    for reducer in result.spec.reducers:
        if reducer in drawn:
            family = style.family_of(reducer)
            fills[reducer] = _CellStyle(style.family_style(family).colour, _HATCHES[families[family] % len(_HATCHES)])
            families[family] += 1
    return fills


def _reading_note(result: RegimeMap, fills: dict[str, _CellStyle]) -> str:
    text = f"Colour: fastest with a relative L2 error up to {result.spec.max_error:g}. Number: its speed-up over dense."
    if any(cell.ties for cell in result.cells):
        text += " Corner: what ties within 1 %."
    never = [reducer for reducer in result.spec.reducers if reducer not in fills]
    return f"{text}\nFastest nowhere: {', '.join(never)}." if never else text


def _draw_panel(axes: Axes, fields: Sequence[Sequence[Cell | None]], fills: dict[str, _CellStyle]) -> None:
    axes.set(xlim=(0, len(fields[0])), ylim=(0, len(fields)))
    axes.tick_params(length=0, labelsize=style.SMALL_SIZE, pad=3)
    axes.spines[:].set_visible(False)
    for y, row in enumerate(fields):
        for x, cell in enumerate(row):
            fill = _CellStyle(_EMPTY, "") if cell is None else fills[cell.winner]
            _draw_shape(axes, [(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)], fill)
            if cell is None:
                continue
            if cell.ties:
                _draw_shape(axes, [(x + 1, y + 0.3), (x + 1, y + 1), (x + 0.68, y + 1)], fills[cell.ties[0]])
            text = axes.text(x + (0.45 if cell.ties else 0.5), y + 0.48, _speedup_text(cell.speedup_vs_dense))
            text.set(fontsize=style.SMALL_SIZE, color=fill.ink, ha="center", va="center")
            if fill.hatch:
                text.set_bbox({"boxstyle": "square,pad=0.12", "facecolor": fill.colour, "edgecolor": "none"})


def _draw_shape(axes: Axes, corners: Sequence[tuple[float, float]], fill: _CellStyle) -> None:
    axes.add_patch(Polygon(corners, facecolor=fill.colour, hatch=fill.hatch, edgecolor="white", linewidth=0.0))
    axes.add_patch(Polygon(corners, fill=False, edgecolor="white", linewidth=0.9))


def _speedup_text(value: float) -> str:
    """Return a ratio with three digits or more.

    >>> _speedup_text(1.3), _speedup_text(11.04), _speedup_text(1234.5)
    ('1.30×', '11.0×', '1234×')
    """
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f}\N{MULTIPLICATION SIGN}"
