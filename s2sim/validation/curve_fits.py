"""What measured curves tell of a library's constants, and how well curves are predicted whose source was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from s2sim.arrays import Floats
from s2sim.uncertainty.constant_fit import (
    CalibrationPoint,
    FitRules,
    MeasuredConstant,
    TermModel,
    fit,
    fittable_library_constants,
    leave_one_out,
    log_priors,
    log_upper_bounds,
    point_weights,
    prior_weights,
)
from s2sim.validation.curve_result import (
    CurveErrors,
    Drift,
    LeftOut,
    Parameter,
    by_class,
    by_source,
    group_errors,
    score_curve,
)

# A curve tells a constant if some size changes by at least so much of the constant's change.
_MIN_POINTS = 0.1
_SOURCES_OF_A_CLASS = 3


@dataclass(frozen=True, slots=True, eq=False)
class ConstantFits:
    """Constants fitted to all points (``whole``), and to all but those of each source (``without``).

    Both are float64 arrays of shape (n,): logarithms of how many times as large as shipped the n ``constants`` are.
    """

    model: TermModel
    constants: tuple[MeasuredConstant, ...]
    rules: FitRules
    whole: Floats
    without: dict[str, Floats]

    @property
    def left_out_s(self) -> Floats:
        """Seconds predicted of each point by constants fitted without its source, float64 of shape (points,)."""
        times_s = np.empty(len(self.model.points))
        for source, logs in self.without.items():
            own = self.model.of_source(source)
            times_s[own] = self.model.predicted_s(logs)[own]
        return times_s


def fit_constants(points: Sequence[CalibrationPoint], sources: Sequence[str]) -> ConstantFits | None:
    """Return fits to points, and without each of some sources; None where points tell nothing that could be fitted."""
    told = {name for point in points for each in point.candidates for _, powers in each.parts for name, _ in powers}
    constants = fittable_library_constants(told)
    if not constants:
        return None
    model = TermModel(points, [constant.owned for constant in constants])
    rules = FitRules(log_priors(constants), log_upper_bounds(constants), prior_weights(constants))
    weights = point_weights(model)
    return ConstantFits(
        model, constants, rules, fit(model, rules, weights), leave_one_out(model, rules, weights, sources)
    )


def fitted_parameters(fits: ConstantFits) -> tuple[Parameter, ...]:
    """Return each constant with what it was fitted on, and its drift when a source is left out."""
    steep = np.abs(fits.model.slopes(np.zeros(len(fits.constants)))) >= _MIN_POINTS
    found = []
    for number, constant in enumerate(fits.constants):
        telling = [fits.model.points[row] for row in np.flatnonzero(steep[:, number])]
        sources = tuple(dict.fromkeys(point.source for point in telling))
        without = {
            source: float(constant.value * np.exp(fits.without[source][number]))
            for source in sources
            if source in fits.without
        }
        drift = Drift(min(without.values()), max(without.values()), without) if without else None
        found.append(
            Parameter(
                **asdict(constant),
                refitted=float(constant.value * np.exp(fits.whole[number])),
                fitted_on=sources,
                curves=len({point.curve for point in telling}),
                drift=drift,
            )
        )
    return tuple(found)


def leave_one_out_errors(fits: ConstantFits, curves: Sequence[CurveErrors]) -> LeftOut:
    """Return how far off curves are whose source was left out of the fit."""
    times_s: Mapping[tuple[str, int], float] = {
        (point.curve, point.size_bytes): float(time_s)
        for point, time_s in zip(fits.model.points, fits.left_out_s, strict=True)
    }
    found = [
        score_curve(curve, [replace(p, predicted_s=times_s.get((curve.id, p.size_bytes), 0.0)) for p in curve.points])
        for curve in curves
        if curve.predicted
    ]
    return LeftOut(
        group_errors("left out", found), by_source(found), by_class(found, _SOURCES_OF_A_CLASS), tuple(found)
    )
