"""Heads of figures, names of lines, and labels of points that cross nothing."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from statistics import fmean
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.path import Path
from matplotlib.transforms import Bbox

from s2sim.arrays import Floats
from s2sim.experiment.rows import Result
from s2sim.report.figures import style

# Inches. Fonts are wider at some resolutions, hence the air behind names.
_GAP, _HEIGHT, _END_NAME_AIR = 0.25, 0.15, 0.2

PALE = 0.3
"""Opacity of reducers that never win."""


def label_with_rejection(reducer: str, rejected: Mapping[str, str]) -> str:
    """Return a reducer with the reason of its rejection, if it is rejected."""
    return f"{reducer} ({rejected[reducer]})" if reducer in rejected else reducer


def names_size(names: Iterable[str]) -> tuple[float, float]:
    """Return the width and height in inches of names one above the other, with the gap to their lines."""
    figure = style.blank_figure(1.0)
    widths = [float(style.text_size(figure, name)[0]) for name in names]
    return _GAP + max(widths) + _END_NAME_AIR, _HEIGHT * len(widths)


def write_names(axes: Axes, ends: Mapping[str, float], names: Mapping[str, str]) -> None:
    """Write ``names`` right of axes in their final limits, at ``ends`` in data coordinates, both by option string."""
    # Curves without a limit leave the figure at its top.
    low, high = axes.get_ylim()
    to_share = axes.transData + axes.transAxes.inverted()
    left, _ = axes.get_xlim()
    share = {reducer: float(to_share.transform((left, max(low, min(end, high))))[1]) for reducer, end in ends.items()}
    order = sorted(share, key=share.__getitem__)
    dpi = axes.figure.dpi
    places = spread_positions([share[reducer] for reducer in order], _HEIGHT * dpi / axes.bbox.height)
    gap = _GAP * dpi / axes.bbox.width
    across = [1.0 + part * gap for part in (0.1, 0.7, 0.9)]
    for reducer, place in zip(order, places, strict=True):
        colour = style.family_style(style.family_of(reducer)).colour
        look: dict[str, Any] = {"color": colour, "linewidth": 0.8, "clip_on": False}
        axes.plot(across, [share[reducer], place, place], transform=axes.transAxes, **look)
        axes.text(1.0 + gap, place, names[reducer], transform=axes.transAxes, va="center", fontsize=style.SMALL_SIZE)


def spread_positions(wanted: Sequence[float], gap: float) -> list[float]:
    """Return increasing positions from 0 to 1, at least ``gap`` apart, near the given increasing positions.

    >>> spread_positions([0.0, 0.25, 0.25], 0.125)
    [0.0, 0.1875, 0.3125]
    """
    # Without the gaps before them, positions must not decrease: neighbours that do are pooled at their mean.
    pools: list[list[float]] = []
    for number, wish in enumerate(wanted):
        pools.append([wish - number * gap])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    level = [fmean(pool) for pool in pools for _ in pool]
    highest = max(0.0, 1.0 - (len(wanted) - 1) * gap)
    return [min(max(base, 0.0), highest) + number * gap for number, base in enumerate(level)]


# Inches: a line and a letter of the title, a line and a letter of the subtitle, air around.
_TITLE_LINE, _TITLE_LETTER, _LINE, _LETTER, _HEAD_AIR = 0.2, 0.075, 0.145, 0.058, 0.07


def describe_setup(result: Result) -> str:
    """Return the cluster, gradients, library and GPU of a result."""
    spec = result.spec
    scaled = spec.model or spec.scale_to
    kind = "toy gradients" if result.gradients.toy else "gradients"
    gradients = f"{kind} of {spec.trace}" + ("" if scaled is None else f" scaled to {scaled}")
    parts = [gradients, f"library {result.library}", f"GPU {result.gpu}"]
    if spec.compute is not None:
        parts.append(f"compute {spec.compute}")
    profile = spec.profile or (spec.model if spec.discipline is not None else None)
    if profile is not None:
        parts.append(f"compute of {profile}{'' if spec.batch is None else f', batch {spec.batch}'}")
    if spec.steps > 1:
        parts.append("first step")
    if spec.faults:
        parts.append(f"with {', '.join(spec.faults)}")
    several = f"at {max(row.workers for row in result.results)} workers, " if len(spec.workers) > 1 else ""
    return f"{several}{result.cluster}; {', '.join(parts)}"


def figure_with_head(title: str, subtitle: str, height: float, width: float = style.WIDTH) -> tuple[Figure, SubFigure]:
    """Return a figure with a head, and the part below it, ``height`` inches high."""
    figure, above = headed_figure(title, subtitle, height, width)
    return figure, figure.subfigures(2, 1, height_ratios=(above, height), squeeze=False)[1, 0]


def headed_figure(title: str, subtitle: str, height: float, width: float) -> tuple[Figure, float]:
    """Return a figure with a title and the wrapped lines of a subtitle, and the inches of these above ``height``."""
    room = width - 2 * _HEAD_AIR
    lines = [(line, style.TITLE_SIZE, "black", _TITLE_LINE) for line in wrap(title, int(room / _TITLE_LETTER))]
    for paragraph in subtitle.split("\n"):
        wrapped = wrap(paragraph, int(room / _LETTER), break_on_hyphens=False)
        lines += [(line, style.SMALL_SIZE, style.GREY, _LINE) for line in wrapped]
    above = 2 * _HEAD_AIR + sum(line_height for *_, line_height in lines)
    figure = style.blank_figure(above + height, width)
    y = above + height - _HEAD_AIR
    for line, size, colour, line_height in lines:
        figure.text(_HEAD_AIR / width, y / (above + height), line, fontsize=size, color=colour, va="top")
        y -= line_height
    return figure, above


def write_legend(figure: Figure | SubFigure, handles: Sequence[Artist]) -> None:
    """Write a legend below the axes of a figure, in as many columns as fit, if there are handles."""
    if not handles:
        return
    widest = max(len(str(handle.get_label())) for handle in handles) * _LETTER + 0.4
    columns = max(1, int(figure.bbox.width / figure.dpi / widest))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=style.SMALL_SIZE, frameon=False)


# Points: distances from a point to its text, in order of preference; half the size of a marker; gap between texts.
_DISTANCES = (6.0, 9.0, 14.0, 20.0, 28.0)
_MARKER, _LABEL_AIR = 4.0, 1.0
# Points of distance above which a line joins a text with its point.
_LABEL_OFFSET = 9.0
# Directions (right, up) from a point to its text, in order of preference.
_SIDES = (
    *((1.0, 0.0), (0.7, 0.7), (0.7, -0.7), (0.3, 1.0), (0.3, -1.0)),
    *((-1.0, 0.0), (-0.7, 0.7), (-0.7, -0.7), (0.0, 1.0), (0.0, -1.0)),
)
_HORIZONTAL = {-1: "right", 0: "center", 1: "left"}
_VERTICAL = {-1: "top", 0: "center", 1: "bottom"}


class Label(NamedTuple):
    """A text next to the marker at ``x`` and ``y``, in data coordinates."""

    x: float
    y: float
    text: str
    colour: str


def place_labels(axes: Axes, labels: Sequence[Label], lines: Sequence[Floats]) -> None:
    """Write texts at free places by their points, the most important first; none crosses ``lines`` (points, 2)."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    pixels = figure.dpi / 72
    reach = _MARKER * pixels
    centres = [axes.transData.transform((label.x, label.y)) for label in labels]
    taken = [Bbox([centre - reach, centre + reach]) for centre in centres]
    crossed = [Path(axes.transData.transform(line)) for line in lines if len(line) > 1]

    def free(box: Bbox, leader: Path | None, own: int) -> bool:
        """Return whether a text and the line to its point cross nothing."""
        inside = axes.bbox.contains(box.x0, box.y0) and axes.bbox.contains(box.x1, box.y1)
        air = box.padded(_LABEL_AIR * pixels)
        if not inside or any(map(air.overlaps, taken)):
            return False
        if any(line.intersects_bbox(air, filled=False) for line in crossed):
            return False
        others = taken[:own] + taken[own + 1 :]
        return leader is None or not (
            any(leader.intersects_bbox(other, filled=False) for other in others)
            or any(leader.intersects_path(line, filled=False) for line in crossed)
        )

    for number, (label, centre) in enumerate(zip(labels, centres, strict=True)):
        size = style.text_size(figure, label.text) * figure.dpi
        for distance, side in product(_DISTANCES, _SIDES):
            offset = np.array(side) * distance
            length = float(np.hypot(*offset))
            # A text grows away from its point.
            corner = centre + offset * pixels + (np.sign(side) - 1) / 2 * size
            box, leader = Bbox([corner, corner + size]), None
            if distance > _LABEL_OFFSET:
                leader = Path([centre + offset * pixels * at / length for at in (_MARKER + 1.5, length - 1.0)])
            if not free(box, leader, number):
                continue
            look = {"ha": _HORIZONTAL[int(np.sign(side[0]))], "va": _VERTICAL[int(np.sign(side[1]))]}
            style.label_point(axes, label.text, (label.x, label.y), (offset[0], offset[1]), color=label.colour, **look)
            taken.append(box)
            if leader is not None:
                start, end = axes.transData.inverted().transform(leader.vertices)
                axes.plot(*zip(start, end, strict=True), color=label.colour, linewidth=0.5, zorder=1.5, label="_leader")
                crossed.append(leader)
            break
