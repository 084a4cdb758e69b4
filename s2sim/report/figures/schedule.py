"""A schedule as a space-time diagram: a line per rank, an arrow per message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.report.figures.labels import figure_with_head, write_legend
from s2sim.report.figures.style import GREY, SMALL_SIZE, TEXT_SIZE, WHITE_BOX, figure_bytes, figure_style, label_axes
from s2sim.report.traffic_tables import MessageRow, check_listing, place_name, spans_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import SubFigure

# Inches: around the axes, a rank, a round, and the width of the figure.
_AROUND_HEIGHT, _PLACE, _ROUND_WIDTH, _MIN_WIDTH, _MAX_WIDTH = 1.3, 0.42, 0.9, 8.5, 19.0
_LABEL_SIZE = 6.0  # points
_LABEL: dict[str, Any] = {"fontsize": _LABEL_SIZE, "ha": "center", "va": "center", "bbox": WHITE_BOX}
_ARROW: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 7, "shrinkA": 0, "shrinkB": 0, "linewidth": 1.1}
# Limits of messages and of letters up to which messages have labels.
_MAX_LABELS, _MAX_LABEL = 40, 12
# Their position as a share of the arrow: near the source, where arrows are apart.
_LABEL_AT = 0.2
_REPLACES = (0, (4, 2))
# Units of a time axis, the largest first.
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"), (1e-12, "ps"))


def check_drawing(places: int, messages: int) -> None:
    """Raise `OptionError` for a figure that would be too large to read; messages are counted with repetitions."""
    check_listing(places, messages, "picture")


def draw_schedule(
    messages: Sequence[MessageRow], file_format: str, *, ranks: int, helpers: int = 0, title: str
) -> bytes:
    """Return the figure of a schedule, the same bytes for the same schedule and release of matplotlib.

    All messages have times. Lines of the diagram are ranks, helpers, and a switch if a message needs it.
    """
    places: list[int | None] = list(range(ranks + helpers))
    if any(message.src is None or message.dst is None for message in messages):
        places.append(None)
    times_s = [(message.start_s or 0.0, message.end_s or 0.0) for message in messages]
    end_s = max((end for _, end in times_s), default=0.0)
    unit_s, unit = next((each for each in _UNITS if end_s >= each[0]), _UNITS[-1])
    times = [(start / unit_s, end / unit_s) for start, end in times_s]
    rounds = len({(message.step, message.time) for message in messages})
    width = min(_MAX_WIDTH, max(_MIN_WIDTH, _ROUND_WIDTH * rounds))
    with figure_style():
        figure, body = figure_with_head(title, "", _AROUND_HEIGHT + _PLACE * max(2, len(places)), width)
        axes = body.subplots()
        _draw_frame(axes, [place_name(place, ranks) for place in places], sorted({start for start, _ in times}))
        label_axes(axes, f"time ({unit})", "rank")
        end = end_s / unit_s or 1.0
        axes.set(xlim=(-0.01 * end, 1.01 * end), ylim=(len(places) - 0.4, -0.6))
        colours = _position_colours(messages)
        _draw_messages(axes, messages, times, places, colours)
        _draw_legend(body, axes, messages, colours)
        return figure_bytes(figure, file_format)


def _first_position(message: MessageRow) -> int:
    return message.spans[0][0] if message.spans else 0


def _position_colours(messages: Sequence[MessageRow]) -> ScalarMappable:
    """Return the colours of messages by the first position that they carry."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    starts = [_first_position(message) for message in messages if message.spans] or [0]
    # The palest colours of the map cannot be seen on white.
    shades = [colormaps["viridis"](share * 0.9 / 255) for share in range(256)]
    return ScalarMappable(Normalize(min(starts), max(starts)), LinearSegmentedColormap.from_list("positions", shades))


def _draw_frame(axes: Axes, names: Sequence[str], starts: Sequence[float]) -> None:
    for y in range(len(names)):
        axes.axhline(y, color="#c8c8c8", linewidth=0.9, zorder=1)
    for x in starts:
        axes.axvline(x, color="#e6e6e6", linewidth=0.6, zorder=0)
    axes.set_yticks(range(len(names)), names, fontsize=TEXT_SIZE)
    axes.tick_params(length=0, labelsize=TEXT_SIZE)
    axes.spines[:].set_visible(False)


def _draw_messages(
    axes: Axes,
    messages: Sequence[MessageRow],
    times: Sequence[tuple[float, float]],
    places: list[int | None],
    colours: ScalarMappable,
) -> None:
    from matplotlib.patches import FancyArrowPatch

    longest = max((len(spans_text(message.spans, most=1)) for message in messages), default=0)
    several = len(set(colours.get_clim())) > 1
    labelled = several and len(messages) <= _MAX_LABELS and longest <= _MAX_LABEL
    shades = colours.to_rgba(np.array([_first_position(message) for message in messages], np.float64))
    for message, (left, right), colour in zip(messages, times, shades, strict=True):
        start, end = (left, places.index(message.src)), (right, places.index(message.dst))
        dash = "-" if message.adds else _REPLACES
        axes.add_patch(FancyArrowPatch(start, end, **_ARROW, color=colour, linestyle=dash, zorder=3))
        axes.plot(*start, marker="o", markersize=2.6, color=colour, zorder=4)
        if labelled:
            x, y = (first + _LABEL_AT * (last - first) for first, last in zip(start, end, strict=True))
            axes.text(x, y, spans_text(message.spans, most=1), **_LABEL, color=colour, zorder=5)


def _draw_legend(part: SubFigure, axes: Axes, messages: Sequence[MessageRow], colours: ScalarMappable) -> None:
    from matplotlib.lines import Line2D

    present = {message.adds for message in messages}
    added = Line2D([], [], color=GREY, linewidth=1.2, label="is added to what the rank has")
    replaced = Line2D([], [], color=GREY, linewidth=1.2, linestyle=_REPLACES, label="replaces what the rank has")
    write_legend(part, [sample for adds, sample in ((True, added), (False, replaced)) if adds in present])
    ends = colours.get_clim()
    if len(set(ends)) > 1:
        key = part.colorbar(colours, ax=axes, location="bottom", shrink=0.25, aspect=22, anchor=(1.0, 0.0), pad=0.02)
        key.set_ticks(ends, labels=[f"{end:,.0f}" for end in ends])
        key.outline.set_visible(False)
        key.ax.tick_params(labelsize=_LABEL_SIZE, length=0, pad=2)
        key.ax.set_title("first position that a message carries", fontsize=SMALL_SIZE, pad=3)
