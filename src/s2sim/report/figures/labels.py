"""Texts beside points, where they cross nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from s2sim.report.figures.axes import SMALL_SIZE, text_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.path import Path
    from matplotlib.transforms import Bbox

    from s2sim.arrays import Floats

# Points: from a point to its text, the nearest first; half of what a marker covers; between two texts.
_DISTANCES = (6.0, 9.0, 14.0, 20.0, 28.0)
_MARKER = 4.0
_AIR = 1.0
# Further than this a line joins a text with its point.
_BESIDE = 9.0
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
        air = place.box.padded(_AIR * pixels)
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
                leader if distance > _BESIDE else None,
            )
