"""Texts beside points, where they cross nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from s2sim.arrays import Floats
from s2sim.experiment.rows import Result
from s2sim.report.figures.style import (
    GREY,
    SMALL_SIZE,
    TITLE_SIZE,
    WIDTH,
    blank_figure,
    family_of,
    family_style,
    text_size,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.path import Path
    from matplotlib.transforms import Bbox


# Inches. Fonts are wider or narrower at another resolution, hence some air behind names.
_GAP, _HEIGHT, _END_NAME_AIR = 0.25, 0.15, 0.2

PALE = 0.3
"""How much of its colour is left to what never wins."""


def label_with_rejection(reducer: str, rejected: Mapping[str, str]) -> str:
    """Return a reducer with why it is out of the choice, if it is."""
    return f"{reducer} ({rejected[reducer]})" if reducer in rejected else reducer


def names_width(figure: Figure, names: Iterable[str]) -> float:
    """Return the inches that names take on the right of axes, what joins them included."""
    return _GAP + max(float(text_size(figure, name)[0]) for name in names) + _END_NAME_AIR


def names_height(count: int) -> float:
    """Return the inches that so many names take, one below the other."""
    return _HEIGHT * count


def write_names(axes: Axes, ends: Mapping[str, float], names: Mapping[str, str]) -> None:
    """Write a name for each curve.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        With its final limits.
    ends : dict of str to float
        Where the curve of each option string ends, in data coordinates.
    names : dict of str to str
        What is written.
    """
    # What has no limit leaves the picture at its top.
    low, high = axes.get_ylim()
    to_share = axes.transData + axes.transAxes.inverted()
    left, _ = axes.get_xlim()
    share = {reducer: float(to_share.transform((left, max(low, min(end, high))))[1]) for reducer, end in ends.items()}
    order = sorted(share, key=share.__getitem__)
    dpi = axes.figure.dpi
    places = spread_positions([share[reducer] for reducer in order], _HEIGHT * dpi / axes.bbox.height)
    gap = _GAP * dpi / axes.bbox.width
    for reducer, place in zip(order, places, strict=True):
        axes.plot(
            [1.0 + 0.1 * gap, 1.0 + 0.7 * gap, 1.0 + 0.9 * gap],
            [share[reducer], place, place],
            color=family_style(family_of(reducer)).colour,
            linewidth=0.8,
            transform=axes.transAxes,
            clip_on=False,
        )
        axes.text(1.0 + gap, place, names[reducer], transform=axes.transAxes, va="center", fontsize=SMALL_SIZE)


def spread_positions(wanted: Sequence[float], gap: float) -> list[float]:
    """Return increasing places from 0 to 1 at least ``gap`` apart, near the increasing ones that are wanted.

    >>> spread_positions([0.0, 0.25, 0.25], 0.125)
    [0.0, 0.1875, 0.3125]
    """
    # Less what the gaps before a place take, places must not decrease: neighbours that do are pooled at their mean.
    pools: list[list[float]] = []
    for number, wish in enumerate(wanted):
        pools.append([wish - number * gap])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    level = [fmean(pool) for pool in pools for _ in pool]
    highest = max(0.0, 1.0 - (len(wanted) - 1) * gap)
    return [min(max(base, 0.0), highest) + number * gap for number, base in enumerate(level)]


# Inches: a line of the title and of what stands below it, a letter of that, air around.
_TITLE_LINE, _LINE, _LETTER, _HEAD_AIR = 0.2, 0.145, 0.058, 0.07


def describe_setup(result: Result) -> str:
    """Return of which cluster, gradients, library and GPU a result is."""
    spec = result.spec
    scaled = spec.model or spec.scale_to
    whose = "toy gradients" if result.gradients.toy else "gradients"
    gradients = f"{whose} of {spec.trace}" + ("" if scaled is None else f" scaled to {scaled}")
    parts = [gradients, f"library {result.library}", f"GPU {result.gpu}"]
    if spec.compute is not None:
        parts.append(f"compute {spec.compute}")
    profile = spec.profile or (spec.model if spec.discipline is not None else None)
    if profile is not None:
        batch = "" if spec.batch is None else f", batch {spec.batch}"
        parts.append(f"compute of {profile}{batch}")
    if spec.steps > 1:
        parts.append("first step")
    if spec.faults:
        parts.append(f"with {', '.join(spec.faults)}")
    several = f"at {max(row.workers for row in result.results)} workers, " if len(spec.workers) > 1 else ""
    return f"{several}{result.cluster}; {', '.join(parts)}"


def head_lines(subtitle: str, width: float) -> list[str]:
    """Return a subtitle as lines that fit into so many inches."""
    return wrap(subtitle, int((width - 2 * _HEAD_AIR) / _LETTER), break_on_hyphens=False)


def head_height(lines: Sequence[str]) -> float:
    """Return the inches that a title and these lines below it take."""
    return _HEAD_AIR + _TITLE_LINE + _LINE * len(lines) + _HEAD_AIR


def write_head(figure: Figure, title: str, lines: Sequence[str]) -> None:
    """Write a title and lines below it at the top of a figure."""
    width, height = figure.get_size_inches()
    left, top = _HEAD_AIR / width, height - _HEAD_AIR
    figure.text(left, top / height, title, fontsize=TITLE_SIZE, va="top")
    for number, line in enumerate(lines):
        y = (top - _TITLE_LINE - number * _LINE) / height
        figure.text(left, y, line, fontsize=SMALL_SIZE, color=GREY, va="top")


def figure_with_head(title: str, subtitle: str, height: float, width: float = WIDTH) -> tuple[Figure, SubFigure]:
    """Return a figure with a head, and the part below it, so many inches high, for axes that are laid out."""
    lines = head_lines(subtitle, width)
    above = head_height(lines)
    figure = blank_figure(above + height, width)
    parts = figure.subfigures(2, 1, height_ratios=(above, height), squeeze=False)
    write_head(figure, title, lines)
    return figure, parts[1, 0]


# Points: from a point to its text, the nearest first; half of what a marker covers; between two texts.
_DISTANCES = (6.0, 9.0, 14.0, 20.0, 28.0)
_MARKER = 4.0
_LABEL_AIR = 1.0
# Further than this a line joins a text with its point.
_LABEL_OFFSET = 9.0
# Where a text may stand, the side that reads best first: to the right and up.
_SIDES = (
    *((1.0, 0.0), (0.7, 0.7), (0.7, -0.7), (0.3, 1.0), (0.3, -1.0)),
    *((-1.0, 0.0), (-0.7, 0.7), (-0.7, -0.7), (0.0, 1.0), (0.0, -1.0)),
)
_HORIZONTAL = {-1: "right", 0: "center", 1: "left"}
_VERTICAL = {-1: "top", 0: "center", 1: "bottom"}


class Label(NamedTuple):
    """A text beside the marker at ``x`` and ``y``, in data coordinates, in the colour of what it belongs to."""

    x: float
    y: float
    text: str
    colour: str


class _Place(NamedTuple):
    """Points to the right and up, the pixels that the text takes there, and the line to it."""

    right: float
    up: float
    box: Bbox
    leader: Path | None


def place_labels(axes: Axes, labels: Sequence[Label], lines: Sequence[Floats]) -> None:
    """Write each text beside its point where it crosses nothing; one for which there is no such place is left out.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Laid out, with its final limits.
    labels : sequence of Label
        The most important first. Markers are at all of them.
    lines : sequence of NDArray
        What no text crosses: float64 of shape (points, 2), in data coordinates.
    """
    from matplotlib.path import Path
    from matplotlib.transforms import Bbox

    figure = axes.get_figure(root=True)
    assert figure is not None
    pixels = figure.dpi / 72
    reach = _MARKER * pixels
    centres = [axes.transData.transform((label.x, label.y)) for label in labels]
    taken = [Bbox([centre - reach, centre + reach]) for centre in centres]
    crossed = [Path(axes.transData.transform(line)) for line in lines if len(line) > 1]
    frame = axes.bbox

    def free(place: _Place, own: int) -> bool:
        inside = frame.contains(place.box.x0, place.box.y0) and frame.contains(place.box.x1, place.box.y1)
        air = place.box.padded(_LABEL_AIR * pixels)
        if not inside or any(air.overlaps(other) for other in taken):
            return False
        if any(line.intersects_bbox(air, filled=False) for line in crossed):
            return False
        leader = place.leader
        return leader is None or not (
            any(leader.intersects_bbox(other, filled=False) for number, other in enumerate(taken) if number != own)
            or any(leader.intersects_path(line, filled=False) for line in crossed)
        )

    for number, (label, centre) in enumerate(zip(labels, centres, strict=True)):
        size = text_size(figure, label.text) * figure.dpi
        place = next((place for place in _places(centre, size, pixels) if free(place, number)), None)
        if place is None:
            continue
        axes.annotate(
            label.text,
            (label.x, label.y),
            (place.right, place.up),
            textcoords="offset points",
            ha=_HORIZONTAL[int(np.sign(place.right))],
            va=_VERTICAL[int(np.sign(place.up))],
            fontsize=SMALL_SIZE,
            color=label.colour,
            # What was laid out for it must not move.
            in_layout=False,
        )
        taken.append(place.box)
        if place.leader is not None:
            start, end = axes.transData.inverted().transform(place.leader.vertices)
            axes.plot(*zip(start, end, strict=True), color=label.colour, linewidth=0.5, zorder=1.5, label="_leader")
            crossed.append(place.leader)


def _places(centre: Floats, size: Floats, pixels: float) -> Iterator[_Place]:
    from matplotlib.path import Path
    from matplotlib.transforms import Bbox

    for distance in _DISTANCES:
        for side in _SIDES:
            offset = np.array(side) * distance
            # A text grows away from its point.
            corner = centre + offset * pixels + (np.sign(side) - 1) / 2 * size
            length = float(np.hypot(*offset))
            # From beside the marker to before the text.
            leader = Path([centre + offset * pixels * at / length for at in (_MARKER + 1.5, length - 1.0)])
            yield _Place(
                float(offset[0]),
                float(offset[1]),
                Bbox([corner, corner + size]),
                leader if distance > _LABEL_OFFSET else None,
            )
