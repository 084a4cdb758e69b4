"""What a fit found, as a result has it: constants with their bands, points, and how far off they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.study.calibrate.result import CalibratedPoint, MedianError
from s2sim.study.collective.against_result import LARGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.calibrate.fit import Fitted
    from s2sim.study.calibrate.result import FittedConstant


def constants_of(fitted: Fitted) -> tuple[FittedConstant, ...]:
    """Return the constants that the samples tell."""
    found = zip(fitted.constants, fitted.logs.tolist(), fitted.deviations.tolist(), fitted.told, strict=True)
    return tuple(each.fitted(np.exp(each.interval(log, sure))) for each, log, sure, told in found if told)


def points_of(fitted: Fitted) -> tuple[CalibratedPoint, ...]:
    """Return the samples with what is predicted of each."""
    seconds = (each.tolist() for each in (fitted.before_s, fitted.after_s, fitted.held_out_s))
    return tuple(
        CalibratedPoint(
            log=sample.log,
            line=sample.line,
            collective=sample.run.kind,
            workers=sample.run.workers,
            size_bytes=sample.size_bytes,
            measured_s=sample.measured_s,
            before_s=before_s,
            after_s=after_s,
            held_out_s=None if np.isnan(held_out_s) else held_out_s,
        )
        for sample, before_s, after_s, held_out_s in zip(fitted.samples, *seconds, strict=True)
    )


def errors_of(points: Sequence[CalibratedPoint], name: str) -> MedianError:
    """Return the medians of a prediction's errors, by size."""
    return MedianError(
        *(
            median_error([point for point in points if (point.size_bytes >= LARGE_BYTES) == large], name)
            for large in (True, False)
        )
    )


def median_error(points: Sequence[CalibratedPoint], name: str) -> float | None:
    """Return the median of a prediction's errors; None where there are none."""
    pairs = [(getattr(point, name), point.measured_s) for point in points]
    errors = [abs(np.log(predicted / measured)) for predicted, measured in pairs if predicted]
    return float(np.median(errors)) if errors else None
