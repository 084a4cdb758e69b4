"""Errors of every curve, and statistics over curves, sources and classes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import numpy as np

from s2sim.experiment.json_form import LEFT_OUT, ResultForm
from s2sim.tables import group_by
from s2sim.uncertainty.constant_fit import MeasuredConstant
from s2sim.uncertainty.interval import PredictionErrors, RunClass, shipped_error_model
from s2sim.validation.compare_log_result import median_log_errors
from s2sim.validation.curve import Point, is_large
from s2sim.validation.harness import error_statistics

NOT_KNOWN = "not known"


def add_interval_coverage(curve: "CurveErrors", left_out: "LeftOut | None") -> "CurveErrors":
    """Return a curve with the share of its sizes measured within the 90 % interval of other sources.

    Predictions are those without its source, too, where a fit has left that out and constants are fitted to it.
    """
    points = [point for point in curve.points if point.predicted_s]
    if curve.run is None or not points:
        return curve
    bands = shipped_error_model()
    if left_out is not None and curve.source in bands.sources:
        points = next((list(each.points) for each in left_out.curves if each.id == curve.id), points)
    held = [in_interval(bands, curve.run, curve.source, point) for point in points]
    return replace(curve, band_holds_share=float(np.mean(held)))


def in_interval(bands: PredictionErrors, run: RunClass, source: str, point: Point) -> bool:
    """Return whether a point was measured in the 90 % interval of its prediction that other sources give."""
    low, high = bands.around(run, point.size_bytes, without=(source,))
    return low <= point.measured_s / point.predicted_s <= high


def by_size(curves: "Sequence[CurveErrors]") -> "tuple[SizeErrors, ...]":
    """Return the errors of points of some curves by sizes of two octaves."""
    bands, rows = shipped_error_model(), []
    pairs = [(curve, point) for curve in curves for point in curve.points if point.predicted_s]
    for place, own in sorted(group_by(pairs, lambda pair: (pair[1].size_bytes.bit_length() - 1) // 2).items()):
        by_curve = group_by(own, lambda pair: pair[0].id).values()
        errors = [np.log([point.predicted_s / point.measured_s for _, point in each]) for each in by_curve]
        sizes, signed = ([float(np.median(each)) for each in of] for of in (map(np.abs, errors), errors))
        _, median, p90, bias = error_statistics(sizes, signed)
        held = [in_interval(bands, curve.run, curve.source, point) for curve, point in own if curve.run is not None]
        share = float(np.mean(held)) if held else None
        rows.append(SizeErrors(4**place, 4 ** (place + 1), len(own), median, p90, bias, share))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class CurveErrors:
    """One curve."""

    id: str
    source: str
    source_url: str
    gpu: str
    transport: str
    collective: str
    launch: str
    ranks: int | None
    algorithm: str  # What the row says that ran; empty where the library chose, and the fastest was predicted
    quality: str  # ``good`` or ``suspect``, as its row says; empty where that cannot be read
    doubt: str | None  # Why its times cannot follow from its row
    predicted: bool
    reason: str | None  # Why there is no prediction
    n_points: int  # Sizes after resampling to powers of two, without outliers
    # Median of |ln(predicted/measured)| over powers of two from 1 MiB on, and below; None where there are none.
    median_abs_log_error_large: float | None = None
    median_abs_log_error_small: float | None = None
    # Median of ln(predicted/measured): below 0 what was predicted is too fast.
    signed_log_error_large: float | None = None
    signed_log_error_small: float | None = None
    # Share of its sizes whose measured time lies in the 90 % interval that is made without its source.
    band_holds_share: float | None = None
    likely_why: tuple[str, ...] = ()
    run: RunClass | None = field(default=None, metadata=LEFT_OUT)
    points: tuple[Point, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether it is one of those by which the model is judged."""
        return self.quality == "good" and self.doubt is None


@dataclass(frozen=True, slots=True)
class OneVoice:
    """Median over sources of the median of each source's curves."""

    sources: int
    median: float
    # Its interval of 90 % by drawing sources with replacement; None of a single source
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of several curves at large or at small sizes."""

    curves: int
    # Over curves, of their medians of |ln(predicted/measured)|, and for ``bias`` of ln(predicted/measured)
    median: float
    p90: float
    bias: float
    off_by_half: int  # Curves whose median is above 0.5
    one_voice: OneVoice


@dataclass(frozen=True, slots=True)
class Group:
    """Some curves: how many are predicted, and how far off; None where none has points of that size."""

    name: str
    curves: int
    predicted: int
    large: Errors | None
    small: Errors | None


@dataclass(frozen=True, slots=True)
class Class:
    """Curves that have one thing in common."""

    kind: str  # ``gpu``, ``transport``, ``collective`` or ``launch``
    group: Group


@dataclass(frozen=True, slots=True)
class Apart:
    """What the model is not judged by: good curves with a doubt, suspect ones, and rows that cannot be read."""

    doubtful: Group
    suspect: Group
    unreadable: Group


@dataclass(frozen=True, slots=True)
class Drift:
    """Where a constant goes when one source is left out that tells it: the least, the most, and by source."""

    low: float
    high: float
    by_source: dict[str, float]


@dataclass(frozen=True, slots=True)
class Parameter(MeasuredConstant):
    """A fitted constant of a library."""

    refitted: float
    fitted_on: tuple[str, ...]  # The sources that it depends on
    curves: int  # How many of their curves do
    drift: Drift | None  # Where it goes without one of them; None where nothing depends on it
    # By how much the mean |ln(predicted/measured)| of left-out sources is larger where this one stays at its prior
    worth: float


@dataclass(frozen=True, slots=True)
class SizeErrors:
    """Errors at sizes of two octaves, of sources that were left out of the fit."""

    from_bytes: int
    to_bytes: int  # Sizes below this
    points: int
    # Over curves, of their medians of |ln(predicted/measured)|, and for ``bias`` of ln(predicted/measured)
    median: float
    p90: float
    bias: float
    band_holds_share: float | None  # Of the points in the 90 % interval that is made without their source


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Errors of curves whose source was left out of the fit: predictions of the constants that all others tell."""

    overall: Group
    by_size: tuple[SizeErrors, ...]
    by_source: tuple[Group, ...]
    by_class: tuple[Class, ...]  # What three sources or more have in common
    curves: tuple[CurveErrors, ...]


@dataclass(frozen=True, slots=True, repr=False)
class ValidationResult(ResultForm):
    """What `s2sim.validation.validate_curves.run_validation` returns."""

    what: str
    overall: Group  # As ``by_source`` and ``by_class`` of good curves without a doubt
    apart: Apart
    by_source: tuple[Group, ...]
    by_class: tuple[Class, ...]
    curves: tuple[CurveErrors, ...]
    parameters: tuple[Parameter, ...]
    leave_one_source_out: LeftOut | None  # None where nothing was fitted
    notes: tuple[str, ...]
    provenance: dict[str, Any]
    complete: bool  # False after an interrupt


def score_curve(curve: CurveErrors, points: Sequence[Point]) -> CurveErrors:
    """Return a curve with its predicted points and errors, without predictions of no time, of too small sizes."""
    found = [point for point in points if point.predicted_s > 0]
    errors = np.log([point.predicted_s / point.measured_s for point in found]).tolist()
    medians = median_log_errors([is_large(point.size_bytes) for point in found], errors)
    return replace(curve, predicted=True, reason=None, **medians, points=tuple(points))


def group_errors(name: str, curves: Sequence[CurveErrors]) -> Group:
    """Return statistics of the errors of some curves."""
    predicted = [curve for curve in curves if curve.predicted]
    return Group(name, len(curves), len(predicted), _errors(predicted, "large"), _errors(predicted, "small"))


def _errors(curves: Sequence[CurveErrors], size: str) -> Errors | None:
    """Return the errors at ``large`` or ``small`` sizes; None where no curve has any."""
    median_of, sign_of = attrgetter(f"median_abs_log_error_{size}"), attrgetter(f"signed_log_error_{size}")
    if not (known := [curve for curve in curves if median_of(curve) is not None]):
        return None
    sizes = [median_of(curve) for curve in known]
    voices = group_by(known, lambda curve: curve.source).values()
    medians = [float(np.median(list(map(median_of, voice)))) for voice in voices]
    low = high = None
    if len(medians) > 1:
        drawn = np.random.default_rng(0).choice(medians, (2000, len(medians)))
        low, high = map(float, np.quantile(np.median(drawn, axis=1), (0.05, 0.95)))
    return Errors(
        *error_statistics(sizes, [sign_of(curve) for curve in known]),
        off_by_half=sum(error > 0.5 for error in sizes),
        one_voice=OneVoice(len(medians), float(np.median(medians)), low, high),
    )


def by_class(curves: Sequence[CurveErrors], sources: int = 1) -> tuple[Class, ...]:
    """Return the curves of each GPU, transport, collective and launch with at least ``sources`` sources."""
    kinds = ("gpu", "transport", "collective", "launch")
    return tuple(Class(kind, group) for kind in kinds for group in grouped(curves, kind, sources))


def grouped(curves: Sequence[CurveErrors], field: str, sources: int = 1) -> tuple[Group, ...]:
    """Return the curves of each value of a field, as ``source``, with at least ``sources`` sources."""
    found = group_by(curves, lambda curve: getattr(curve, field) or NOT_KNOWN)
    kept = [name for name in sorted(found) if len({each.source for each in found[name]}) >= sources]
    return tuple(group_errors(name, found[name]) for name in kept)
