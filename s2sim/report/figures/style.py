"""Figures, axes, colours and files that all figures share."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise, zip_longest
from math import ceil, floor, isfinite, log10, nan
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from zlib import crc32

import numpy as np

from s2sim.errors import OptionError, S2SimError
from s2sim.files import own_tables
from s2sim.report.format import workers_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from s2sim.arrays import Floats
    from s2sim.experiment.rows import Row

WIDTH = 7.2
"""Inches: two columns of a paper."""
DOTS_PER_INCH = 150
"""Texts are as wide as they are measured only where a figure is laid out as it is written."""

# Points.
TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 9.0, 8.0, 7.0
GREY = "#666666"
GBPS = 1.25e8
"""Bytes per second of 1 Gbps: rates are sold in round numbers of bits."""
STYLES = ("-", "--", ":", "-.")
WHITE_BOX = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
"""Background of texts that cross lines."""

_GRID = "#e4e4e4"
_HAIRLINE = 1e-9


def blank_figure(height: float, width: float = WIDTH) -> Figure:
    """Return an empty figure of the given size in inches; its axes are laid out to fit their texts."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained", facecolor="white")
    # Texts that are placed by hand have to be measured.
    FigureCanvasAgg(figure)
    return figure


def text_size(figure: Figure, text: str) -> Floats:
    """Return width and height of a small text in inches, float64 of shape (2,)."""
    sample = figure.text(0, 0, text, fontsize=SMALL_SIZE)
    size = np.array(sample.get_window_extent().size, np.float64) / figure.dpi
    sample.remove()
    return size


def fix_layout(figure: Figure) -> None:
    """Lay out a figure for the last time, so that texts can be placed by hand afterwards."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def log_ticks(low: float, high: float, unit: float = 1.0, most: int = 7) -> list[float]:
    """Return up to ``most`` round numbers of ``unit`` from low to high.

    >>> log_ticks(0.8, 60)
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    >>> log_ticks(1e8, 1e9, unit=1.25e8)
    [125000000.0, 187500000.0, 250000000.0, 375000000.0, 625000000.0, 875000000.0]
    >>> log_ticks(1, 1e12)
    [1.0, 100.0, 10000.0, 1000000.0, 100000000.0, 10000000000.0, 1000000000000.0]
    """
    first, last = floor(log10(low / unit)), ceil(log10(high / unit))

    def ticks(parts: Sequence[float], step: int) -> list[float]:
        candidates = (part * 10.0**power * unit for power in range(first, last + 1, step) for part in parts)
        return [tick for tick in candidates if low * (1 - _HAIRLINE) <= tick <= high * (1 + _HAIRLINE)]

    for parts in ((1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        if len(values := ticks(parts, 1)) <= most:
            return values
    return ticks((1.0,), ceil((last - first) / most))


def log_limits(values: Iterable[float], *, include: float | None = None, air: float = 0.08) -> tuple[float, float]:
    """Return limits of a log axis around positive finite values and ``include``, with ``air``, a share of the span."""
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
    """Make the x or y axis logarithmic from one limit to the other; ticks are round numbers of ``unit``."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

    axes.set(**{f"{which}scale": "log", f"{which}lim": limits})
    axis = axes.xaxis if which == "x" else axes.yaxis
    ticks = log_ticks(*limits, unit, most)
    if len(ticks) < 2:
        # Round numbers of a decade are too far apart.
        low, high = limits
        evenly = MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(low / unit, high / unit)
        ticks = [float(tick) * unit for tick in evenly if low <= tick * unit <= high]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FixedFormatter([text(tick) for tick in ticks]))
    axis.set_minor_locator(NullLocator())


def style_axes(axes: Axes, grid: Literal["both", "x"] = "both") -> None:
    """Keep the sides of the frame that have ticks, and draw a grid in the background."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(labelsize=TEXT_SIZE, color=GREY, length=3)
    axes.grid(visible=True, axis=grid, color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)


def label_axes(axes: Axes, x: str | None = None, y: str | None = None, title: str | None = None) -> None:
    """Write the labels of axes and a title above their left end."""
    if x is not None:
        axes.set_xlabel(x, fontsize=TEXT_SIZE)
    if y is not None:
        axes.set_ylabel(y, fontsize=TEXT_SIZE)
    if title is not None:
        axes.set_title(title, fontsize=TITLE_SIZE, loc="left")


def label_point(axes: Axes, text: str, point: tuple[float, float], offset: tuple[float, float], **look: Any) -> None:
    """Write a small text at an offset in points from a point; the layout does not change."""
    axes.annotate(text, point, offset, textcoords="offset points", fontsize=SMALL_SIZE, in_layout=False, **look)


def workers_title(rows: Sequence[Row]) -> str:
    """Return the only number of workers of rows, and whether they are extrapolated; `OptionError` for a mixture."""
    counts = sorted({row.workers for row in rows})
    if len(counts) != 1:
        mixture = ", ".join(map(str, counts)) or "no rows"
        raise OptionError(f"rows of one number of workers belong into one picture, but found {mixture}: filter them")
    return f"{workers_text(counts[0])}{', extrapolated' if any(row.extrapolated for row in rows) else ''}"


class FamilyStyle(NamedTuple):
    """Colour and marker of a family of reducers."""

    colour: str  # As ``#RRGGBB``
    marker: str  # Of matplotlib, as an alternative to the colour


COLOURS: dict[str, Any] = own_tables(__file__, "colours.toml")
FAMILY_STYLES = {family: FamilyStyle(*look) for family, look in COLOURS["families"].items()}
ITERATION_PARTS: dict[str, str] = COLOURS["parts"]
"""Colours of the parts of an iteration."""


def family_of(option_string: str) -> str:
    """Return the family that an option string begins with.

    >>> family_of("s2:cells=2")
    's2'
    """
    return option_string.partition(":")[0]


def family_style(family: str) -> FamilyStyle:
    """Return the style of a family; those compared by default are unique, others may share a colour or a marker."""
    if family in FAMILY_STYLES:
        return FAMILY_STYLES[family]
    # By its name, so that it is the same in all figures.
    number, (colours, markers) = crc32(family.encode()), COLOURS["others"].values()
    return FamilyStyle(colours[number % len(colours)], markers[number // len(colours) % len(markers)])


def vary_in_family(families: Iterable[str], looks: Sequence[str]) -> list[str]:
    """Return one of ``looks`` for each of several families, which takes another one each time that it comes again."""
    drawn: Counter[str] = Counter()
    taken = []
    for family in families:
        taken.append(looks[drawn[family] % len(looks)])
        drawn[family] += 1
    return taken


def line_styles(reducers: Iterable[str]) -> dict[str, str]:
    """Return a line style for each option string, different within a family, of which all lines have one colour."""
    shown = list(reducers)
    return dict(zip(shown, vary_in_family(map(family_of, shown), STYLES), strict=True))


class PlottedQuantity(NamedTuple):
    """A quantity of rows along an axis; a share is shown up to 1."""

    title: str
    of: Callable[[Row], float]
    text: Callable[[float], str]
    mark: float | None = None
    share: bool = False

    def shown(self, row: Row) -> float:
        """Return the value, or NaN if a logarithmic axis cannot show it: a single worker takes no time."""
        value = self.of(row)
        return value if self.share or (isfinite(value) and value > 0) else nan


@dataclass(frozen=True, slots=True)
class Series:
    """Rows that are drawn as one line, or one row."""

    rows: tuple[Row, ...]  # In the order of the swept option
    swept: str | None  # The option in which they differ; None of a single row

    @property
    def name(self) -> str:
        """The options that all rows have in common, and the option in which they differ."""
        first = self.rows[0].reducer
        if self.swept is None:
            return first
        name, _, options = first.partition(":")
        others = [option for option in options.split(",") if option and not option.startswith(f"{self.swept}=")]
        return f"{':'.join([name, ','.join(others)]) if others else name}, by {self.swept}"

    def labels(self) -> list[str]:
        """Return the label of each point: the value of the swept option; of a single row its name."""
        return [self.name] if self.swept is None else [f"{row.options[self.swept]:g}" for row in self.rows]


def find_series(rows: Sequence[Row]) -> list[Series]:
    """Return rows of one number of workers as series, the longest first: those that differ in one numeric option."""
    left = list(rows)
    series: list[Series] = []
    while sweeps := _find_sweeps(left):
        longest = max(sweeps, key=lambda sweep: len(sweep.rows))
        series.append(longest)
        taken = {row.reducer for row in longest.rows}
        left = [row for row in left if row.reducer not in taken]
    return [*series, *(Series((row,), None) for row in left)]


def _find_sweeps(rows: Sequence[Row]) -> list[Series]:
    groups: dict[tuple[str, str, str], list[tuple[float, Row]]] = defaultdict(list)
    for row in rows:
        for key, value in row.options.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                others = repr(sorted((name, repr(other)) for name, other in row.options.items() if name != key))
                groups[row.name, key, others].append((float(value), row))
    return [
        Series(tuple(row for _, row in sorted(group, key=itemgetter(0))), key)
        for (_, key, _), group in groups.items()
        if len(group) > 1
    ]


FORMATS = (".png", ".svg", ".pdf")


def check_picture(target: str) -> None:
    """Raise `S2SimError` for a file name of another format, and without matplotlib."""
    if Path(target).suffix.lower() not in FORMATS:
        raise S2SimError(f"a picture {target} was asked for: its name must end in {', '.join(FORMATS)}")
    check_matplotlib()


def check_matplotlib() -> None:
    """Raise `S2SimError` if matplotlib is not installed."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise S2SimError("drawing needs matplotlib: pip install 's2sim[plot]'")


@contextmanager
def figure_style() -> Iterator[None]:
    """Set all parameters that figures depend on, regardless of the user's settings."""
    from matplotlib import rc_context

    # Random names would make every SVG different; letters as shapes would make it large.
    with rc_context(
        {"svg.hashsalt": "s2sim", "svg.fonttype": "none", "font.family": "DejaVu Sans", "text.parse_math": False}
    ):
        yield


def figure_bytes(figure: Figure, file_format: str) -> bytes:
    """Return the file of a drawn figure, ``"png"``, ``"svg"`` or ``"pdf"``, the same bytes for the same figure."""
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(file_format, {})
    buffer = BytesIO()
    with figure_style():
        figure.savefig(buffer, format=file_format, dpi=DOTS_PER_INCH, metadata=dates)
    if file_format != "svg":
        return buffer.getvalue()
    # Without indentation, which is much of the file, and with replacements of the font.
    svg = re.sub(rb"\n\s+", b"\n", buffer.getvalue())
    return svg.replace(b"'DejaVu Sans'", b"'DejaVu Sans', Verdana, Arial, sans-serif")


def svg_text(figure: Figure) -> str:
    """Return a figure as an SVG element for pages."""
    svg = figure_bytes(figure, "svg").decode()
    return svg[svg.index("<svg") :]


_COLOUR = "#777777"


def front_corners(points: Sequence[tuple[float, float]]) -> Floats:
    """Return the corners of the steps below which no point is, float64 of shape (corners, 2).

    >>> front_corners([(2.0, 0.5), (1.0, 3.0)]).tolist()
    [[1.0, 3.0], [2.0, 3.0], [2.0, 0.5]]
    """
    ordered = sorted(points)
    corners = [(right, above) for (_, above), (right, _) in pairwise(ordered)]
    steps = [point for pair in zip_longest(ordered, corners) for point in pair if point is not None]
    return np.array(steps, np.float64).reshape(-1, 2)


def draw_steps(axes: Axes, steps: Floats) -> None:
    """Draw the steps of a front, clipped at the lower limit of the axes."""
    heights = np.maximum(steps[:, 1], axes.get_ylim()[0])
    axes.plot(steps[:, 0], heights, color=_COLOUR, linewidth=2.5, alpha=0.4, zorder=1.2, label="_front")


def draw_rings(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Draw a ring round each point that is on the front."""
    for x, y in points:
        axes.plot([x], [y], marker="o", markersize=10.0, fillstyle="none", color=_COLOUR, clip_on=False, label="_ring")
