"""What a validation holds: every curve with its errors, and what they come to over curves, sources and classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from s2sim.study.fidelity.constants import MeasuredConstant
from s2sim.study.json_form import LEFT_OUT
from s2sim.study.result_form import ResultForm

if TYPE_CHECKING:
    from s2sim.study.fidelity.run_class import RunClass


@dataclass(frozen=True, slots=True)
class Point:
    """One message size: seconds as measured and as predicted."""

    size_bytes: int
    measured_s: float
    predicted_s: float


@dataclass(frozen=True, slots=True)
class CurveErrors:
    """One curve.

    Attributes
    ----------
    reason, doubt : str or None
        Why there is no prediction, and why its times cannot follow from its row.
    quality : str
        ``good`` or ``suspect``, as its row says.
    algorithm : str
        What the row says that ran; empty where the library chose, and the fastest was predicted.
    n_points : int
        Sizes after resampling to powers of two, without outliers.
    median_abs_log_error_large, median_abs_log_error_small : float or None
        Median of |ln(predicted/measured)| over powers of two from 1 MiB on, and below; None where there are none.
    signed_log_error_large, signed_log_error_small : float or None
        Median of ln(predicted/measured): below 0 what was predicted is too fast.
    band_holds_share : float or None
        Share of its sizes whose measured time lies in the 90 % interval that is made without its source.
    """

    id: str
    source: str
    source_url: str
    gpu: str
    transport: str
    collective: str
    launch: str
    ranks: int | None
    algorithm: str
    quality: str
    doubt: str | None
    predicted: bool
    reason: str | None
    n_points: int
    median_abs_log_error_large: float | None = None
    median_abs_log_error_small: float | None = None
    signed_log_error_large: float | None = None
    signed_log_error_small: float | None = None
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
    """What `s2sim.study.validate.run.run_validation` returns.

    ``overall``, ``by_source`` and ``by_class`` are of good curves without a doubt, ``apart`` of the others.
    ``leave_one_source_out`` is None where nothing was fitted; ``complete`` is false after an interrupt.
    """

    answers: ClassVar[str] = "validate"

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
