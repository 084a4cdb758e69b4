"""Whether measured times lie in the bands around predicted ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.study.fidelity.bands import shipped_bands

if TYPE_CHECKING:
    from s2sim.study.validate.result import CurveErrors, LeftOut


def with_band(curve: CurveErrors, left_out: LeftOut | None) -> CurveErrors:
    """Return a curve with the share of its sizes whose measured time lies in the band that other sources tell.

    Predictions are those without its source, too, where a fit has left that out and constants are fitted to it.
    """
    points = [point for point in curve.points if point.predicted_s]
    if curve.run is None or not points:
        return curve
    bands = shipped_bands()
    if left_out is not None and curve.source in bands.sources:
        points = next((list(each.points) for each in left_out.curves if each.id == curve.id), points)
    held = []
    for point in points:
        low, high = bands.around(curve.run, point.size_bytes, without=(curve.source,))
        held.append(low <= point.measured_s / point.predicted_s <= high)
    return replace(curve, band_holds_share=float(np.mean(held)))
