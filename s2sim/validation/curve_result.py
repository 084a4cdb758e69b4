"""Errors of every curve, and statistics over curves, sources and classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from s2sim.experiment.json_form import LEFT_OUT, ResultForm
from s2sim.uncertainty.constant_fit import MeasuredConstant
from s2sim.uncertainty.interval import RunClass, shipped_error_model
from s2sim.validation.compare_log_result import median_log_errors
from s2sim.validation.curve import is_large
from s2sim.validation.harness import error_statistics


def add_interval_coverage(curve: CurveErrors, left_out: LeftOut | None) -> CurveErrors:
    """Return a curve with the share of its sizes measured within the 90 % interval of other sources.

    Predictions are those without its source, too, where a fit has left that out and constants are fitted to it.
    """
    points = [point for point in curve.points if point.predicted_s]
    if curve.run is None or not points:
        return curve
    bands = shipped_error_model()
    if left_out is not None and curve.source in bands.sources:
        points = next((list(each.points) for each in left_out.curves if each.id == curve.id), points)
    held = []
    for point in points:
        low, high = bands.around(curve.run, point.size_bytes, without=(curve.source,))
        held.append(low <= point.measured_s / point.predicted_s <= high)
    return replace(curve, band_holds_share=float(np.mean(held)))


@dataclass(frozen=True, slots=True)
class Point:
    """One message size: seconds as measured and as predicted."""

    size_bytes: int
    measured_s: float
    predicted_s: float


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
    quality: str  # ``good`` or ``suspect``, as its row says
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
    """Median over sources of the median of each source's curves.

    ``low`` and ``high`` are its interval of 90 % by drawing sources with replacement; None of a single source.
    """

    sources: int
    median: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of several curves at large or at small sizes.

    ``median`` and ``p90`` are over curves, of their medians of |ln(predicted/measured)|; ``bias`` likewise with the
    sign; ``off_by_half`` counts curves whose median is above 0.5.
    """

    curves: int
    median: float
    p90: float
    bias: float
    off_by_half: int
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
    """Curves that have one thing in common: ``kind`` is ``gpu``, ``transport``, ``collective`` or ``launch``."""

    kind: str
    group: Group


@dataclass(frozen=True, slots=True)
class Apart:
    """What the model is not judged by: good curves with a doubt, and suspect ones."""

    doubtful: Group
    suspect: Group


@dataclass(frozen=True, slots=True)
class Drift:
    """Where a constant goes when one source is left out that tells it: the least, the most, and by source."""

    low: float
    high: float
    by_source: dict[str, float]


@dataclass(frozen=True, slots=True)
class Parameter(MeasuredConstant):
    """A fitted constant of a library.

    ``fitted_on`` are the sources that it depends on, ``curves`` how many of their curves do; ``drift`` is where it
    goes without one of them, None where nothing depends on it.
    """

    refitted: float
    fitted_on: tuple[str, ...]
    curves: int
    drift: Drift | None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Errors of curves whose source was left out of the fit: predictions of the constants that all others tell.

    ``by_class`` has what three sources or more have in common.
    """

    overall: Group
    by_source: tuple[Group, ...]
    by_class: tuple[Class, ...]
    curves: tuple[CurveErrors, ...]


@dataclass(frozen=True, slots=True, repr=False)
class ValidationResult(ResultForm):
    """What `s2sim.validation.validate_curves.run_validation` returns.

    ``overall``, ``by_source`` and ``by_class`` are of good curves without a doubt, ``apart`` of the others.
    ``leave_one_source_out`` is None where nothing was fitted; ``complete`` is false after an interrupt.
    """

    answers: ClassVar[str] = "validate"
    tabulated: ClassVar[str] = "curves"

    what: str
    overall: Group
    apart: Apart
    by_source: tuple[Group, ...]
    by_class: tuple[Class, ...]
    curves: tuple[CurveErrors, ...]
    parameters: tuple[Parameter, ...]
    leave_one_source_out: LeftOut | None
    notes: tuple[str, ...]
    provenance: dict[str, Any]
    complete: bool


_DRAWS, _LOW, _HIGH = 2000, 0.05, 0.95
_OFF_BY_HALF = 0.5
NOT_KNOWN = "not known"
_CLASSES = ("gpu", "transport", "collective", "launch")


def score_curve(curve: CurveErrors, points: Sequence[Point]) -> CurveErrors:
    """Return a curve with its predicted points and their errors.

    Predictions of no time, of sizes too small for every rank to have a part, are left out.
    """
    found = [point for point in points if point.predicted_s > 0]
    errors = np.log([point.predicted_s / point.measured_s for point in found]).tolist()
    medians = median_log_errors([is_large(point.size_bytes) for point in found], errors)
    return replace(curve, predicted=True, reason=None, **medians, points=tuple(points))


def group_errors(name: str, curves: Sequence[CurveErrors]) -> Group:
    """Return statistics of the errors of some curves."""
    predicted = [curve for curve in curves if curve.predicted]
    large = [(c.source, c.median_abs_log_error_large, c.signed_log_error_large) for c in predicted]
    small = [(c.source, c.median_abs_log_error_small, c.signed_log_error_small) for c in predicted]
    return Group(name, len(curves), len(predicted), _errors(large), _errors(small))


def _errors(found: Iterable[tuple[str, float | None, float | None]]) -> Errors | None:
    known = [(source, size, sign) for source, size, sign in found if size is not None and sign is not None]
    if not known:
        return None
    sizes = [size for _, size, _ in known]
    voices: dict[str, list[float]] = {}
    for source, size, _ in known:
        voices.setdefault(source, []).append(size)
    medians = [float(np.median(voice)) for voice in voices.values()]
    low = high = None
    if len(medians) > 1:
        drawn = np.random.default_rng(0).choice(medians, (_DRAWS, len(medians)))
        low, high = map(float, np.quantile(np.median(drawn, axis=1), (_LOW, _HIGH)))
    return Errors(
        *error_statistics(sizes, [sign for _, _, sign in known]),
        off_by_half=sum(size > _OFF_BY_HALF for size in sizes),
        one_voice=OneVoice(len(medians), float(np.median(medians)), low, high),
    )


def by_source(curves: Sequence[CurveErrors]) -> tuple[Group, ...]:
    """Return the curves of each source."""
    return _grouped(curves, attrgetter("source"))


def by_class(curves: Sequence[CurveErrors], sources: int = 1) -> tuple[Class, ...]:
    """Return the curves of each GPU, transport, collective and launch with at least ``sources`` sources."""
    return tuple(Class(kind, group) for kind in _CLASSES for group in _grouped(curves, attrgetter(kind), sources))


def _grouped(
    curves: Sequence[CurveErrors], name_of: Callable[[CurveErrors], str], sources: int = 1
) -> tuple[Group, ...]:
    found: dict[str, list[CurveErrors]] = {}
    for curve in curves:
        found.setdefault(name_of(curve) or NOT_KNOWN, []).append(curve)
    return tuple(
        group_errors(name, found[name])
        for name in sorted(found)
        if len({each.source for each in found[name]}) >= sources
    )
