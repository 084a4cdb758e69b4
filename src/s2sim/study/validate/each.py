"""Predicts each of some curves, and says how far off that is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from s2sim.errors import S2SimError
from s2sim.study.fidelity.told import ToldPoint
from s2sim.study.validate.curve import is_large, resampled
from s2sim.study.validate.predict import Predictor
from s2sim.study.validate.result import CurveErrors, Point
from s2sim.study.validate.score import scored
from s2sim.study.validate.why import likely_why
from s2sim.topology.files.links import load_links
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s2sim.study.validate.curve import Curve


_AS_ITS_ROW = ("source_url", "transport", "collective", "launch", "algorithm", "quality")


def each_predicted(curves: Sequence[Curve], *, tell: bool) -> Iterator[tuple[CurveErrors, list[ToldPoint]]]:
    """Yield each curve with its errors, and with ``tell`` its points by constants where these may be fitted to it."""
    predictor = Predictor(load_links())
    for curve in curves:
        try:
            yield _errors_of(curve, predictor, tell=tell and tells(curve))
        except S2SimError as error:
            yield unpredicted(curve, str(error)), []


def tells(curve: Curve) -> bool:
    """Return whether constants may be fitted to a curve: it is good and without a doubt."""
    return curve.machine is not None and curve.machine.quality == "good" and not curve.machine.doubt


def _errors_of(curve: Curve, predictor: Predictor, *, tell: bool) -> tuple[CurveErrors, list[ToldPoint]]:
    if curve.machine is None or curve.problem:
        raise S2SimError(curve.problem)
    points = resampled(curve.points, curve.machine.outlier_sizes_bytes)
    if not points:
        raise S2SimError("no size is within 20 % of a power of two and no hiccup")
    sizes = [point.size_bytes for point in points]
    told: list[ToldPoint] = []
    if tell:
        contenders = predictor.contenders(curve.machine, sizes)
        times_s = [each[0].duration_ps / PS_PER_S for each in contenders]
        told = [
            ToldPoint(curve.id, curve.machine.source, p.size_bytes, p.measured_s, is_large(p.size_bytes), each)
            for p, each, time_s in zip(points, contenders, times_s, strict=True)
            if time_s
        ]
    else:
        times_s = predictor.times_s(curve.machine, sizes)
    pairs = [Point(p.size_bytes, p.measured_s, time_s) for p, time_s in zip(points, times_s, strict=True)]
    found = scored(unpredicted(curve, ""), pairs)
    why = likely_why(curve.machine, found.signed_log_error_large, found.signed_log_error_small)
    return replace(found, likely_why=why, run=predictor.run_class(curve.machine)), told


def unpredicted(curve: Curve, reason: str) -> CurveErrors:
    """Return a curve that is not predicted, and why."""
    machine = curve.machine
    as_its_row: dict[str, Any] = {name: getattr(machine, name, "") for name in _AS_ITS_ROW}
    return CurveErrors(
        id=curve.id,
        source=machine.source if machine else curve.id,
        gpu=machine.gpu_model if machine else "",
        ranks=machine.ranks if machine else None,
        doubt=(machine.doubt or None) if machine else None,
        predicted=False,
        reason=reason,
        **as_its_row,
        n_points=len(resampled(curve.points, machine.outlier_sizes_bytes if machine else ())),
    )
