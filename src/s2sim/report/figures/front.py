"""The Pareto front of a picture: what nothing beats in two quantities at once."""

from __future__ import annotations

from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from s2sim.arrays import Floats

_COLOUR = "#777777"


def steps_of(points: Sequence[tuple[float, float]]) -> Floats:
    """Return the corners of the steps below which no point is, float64 of shape (corners, 2).

    >>> steps_of([(2.0, 0.5), (1.0, 3.0)]).tolist()
    [[1.0, 3.0], [2.0, 3.0], [2.0, 0.5]]
    """
    held = sorted(points)
    corners = [(right, above) for (_, above), (right, _) in pairwise(held)]
    steps = [point for pair in zip_longest(held, corners) for point in pair if point is not None]
    return np.array(steps, np.float64).reshape(-1, 2)


def draw_steps(axes: Axes, steps: Floats) -> None:
    """Draw the steps of a front, those below the axes as far as these go."""
    heights = np.maximum(steps[:, 1], axes.get_ylim()[0])
    axes.plot(steps[:, 0], heights, color=_COLOUR, linewidth=2.5, alpha=0.4, zorder=1.2, label="_front")


def ring(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Draw a ring round each point that is on the front."""
    for x, y in points:
        axes.plot([x], [y], marker="o", markersize=10.0, fillstyle="none", color=_COLOUR, clip_on=False, label="_ring")
