"""Texts beside points, where they hide nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from s2sim.report.figures.axes import SMALL_SIZE, text_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

    from s2sim.arrays import Floats

# Points: from a point to its text, the nearest first, and half of what a marker covers.
_DISTANCES = (6.0, 12.0, 20.0, 30.0, 42.0, 56.0)
_MARKER = 5.0
# Where a text may stand, the side that reads best first: to the right and up.
_SIDES = (
    *((1.0, 0.0), (0.7, 0.7), (0.7, -0.7), (0.3, 1.0), (0.3, -1.0)),
    *((-1.0, 0.0), (-0.7, 0.7), (-0.7, -0.7), (0.0, 1.0), (0.0, -1.0)),
)
_HORIZONTAL = {-1: "right", 0: "center", 1: "left"}
_VERTICAL = {-1: "top", 0: "center", 1: "bottom"}
# Leaving the axes is worse than covering anything, in square pixels.
_OUTSIDE = 1e6
_SAMPLES = 40
_LEADER = "#999999"


class _Place(NamedTuple):
    """A side and a distance, and the pixels that the text takes there."""

    right: float
    up: float
    box: Bbox

    def overlap(self, other: Bbox) -> float:
        """Return the square pixels that both take."""
        width = min(self.box.x1, other.x1) - max(self.box.x0, other.x0)
        height = min(self.box.y1, other.y1) - max(self.box.y0, other.y0)
        return float(max(width, 0.0) * max(height, 0.0))


def place_labels(axes: Axes, points: Sequence[tuple[float, float, str]], lines: Sequence[Floats]) -> None:
    """Write a text beside each point, each where it covers least of what is there already.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Laid out, with its final limits.
    points : sequence of (float, float, str)
        Where a marker is, in data coordinates, and what it is called.
    lines : sequence of NDArray
        Lines that texts should not cross: float64 of shape (points, 2), in data coordinates.
    """
    from matplotlib.transforms import Bbox

    figure = axes.get_figure(root=True)
    assert figure is not None
    pixels = figure.dpi / 72
    reach = _MARKER * pixels
    centres = [axes.transData.transform((x, y)) for x, y, _ in points]
    taken = [Bbox([centre - reach, centre + reach]) for centre in centres]
    crossed = [sample for line in lines for sample in _samples(axes.transData.transform(line))]
    frame = axes.bbox

    def cost(place: _Place) -> float:
        covered = sum(place.overlap(other) for other in taken)
        covered += sum(reach**2 for sample in crossed if place.box.contains(*sample))
        inside = frame.contains(place.box.x0, place.box.y0) and frame.contains(place.box.x1, place.box.y1)
        return float(covered) + (0.0 if inside else _OUTSIDE)

    # Long texts fit in few places: they choose first.
    for (x, y, text), centre in sorted(zip(points, centres, strict=True), key=lambda each: -len(each[0][2])):
        size = text_size(figure, text) * figure.dpi
        best = min(_places(centre, size, pixels), key=cost)
        far = max(abs(best.right), abs(best.up)) > _DISTANCES[0]
        axes.annotate(
            text,
            (x, y),
            (best.right, best.up),
            textcoords="offset points",
            ha=_HORIZONTAL[int(np.sign(best.right))],
            va=_VERTICAL[int(np.sign(best.up))],
            fontsize=SMALL_SIZE,
            arrowprops=_leader(best) if far else None,
            # What was laid out for it must not move.
            in_layout=False,
        )
        taken.append(best.box)


def _leader(place: _Place) -> dict[str, object]:
    """Return a line from a point to the part of its text that is next to it."""
    nearest = tuple((1 - np.sign(side)) / 2 for side in (place.right, place.up))
    return {"arrowstyle": "-", "color": _LEADER, "linewidth": 0.6, "relpos": nearest, "shrinkA": 0, "shrinkB": 3}


def _places(centre: Floats, size: Floats, pixels: float) -> Iterator[_Place]:
    from matplotlib.transforms import Bbox

    for distance in _DISTANCES:
        for side in _SIDES:
            offset = np.array(side) * distance
            # A text grows away from its point.
            corner = centre + offset * pixels + (np.sign(side) - 1) / 2 * size
            yield _Place(float(offset[0]), float(offset[1]), Bbox([corner, corner + size]))


def _samples(line: Floats) -> Iterator[Floats]:
    for start, end in pairwise(line):
        yield from np.linspace(start, end, _SAMPLES)
