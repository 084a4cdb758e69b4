"""What a validation holds: every curve with its errors, and what they come to over curves, sources and classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

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
    id, source, source_url : str
        Its name, whose voice it is, and where it was published.
    gpu, transport, collective, launch : str
        The classes it belongs to, as its row says; empty where that is not known.
    ranks : int or None
        GPUs that took part; None where the row cannot be read.
    predicted : bool
        Whether there is a prediction.
    reason : str or None
        Why there is none.
    doubt : str or None
        Why its numbers cannot follow from its row.
    quality : str
        ``good`` or ``suspect``, as its row says.
    algorithm : str
        What the row says that ran; empty where the library chose, and the fastest was predicted.
    n_points : int
        Sizes after resampling to powers of two, without those that a hiccup hit.
    median_abs_log_error_large, median_abs_log_error_small : float or None
        Median of |ln(predicted/measured)| over powers of two from 1 MiB on, and below; None where there are none.
    signed_log_error_large, signed_log_error_small : float or None
        Median of ln(predicted/measured): below 0 what was predicted is too fast.
    band_holds_share : float or None
        Share of its sizes whose measured time lies in the band around the predicted one, of which its source tells
        nothing; None where there is no band.
    likely_why : tuple of str
        What its row has that the model lacks.
    run : RunClass or None
        What it has in common with others.
    points : tuple of Point
        What was compared.
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

    Attributes
    ----------
    sources : int
        How many there are.
    low, high : float or None
        Interval of 90 % by drawing sources with replacement; None of a single source.
    """

    sources: int
    median: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of several curves at large or at small sizes.

    Attributes
    ----------
    curves : int
        Those with points there.
    median, p90 : float
        Over curves, of their medians of |ln(predicted/measured)|.
    bias : float
        Median over curves of their medians of ln(predicted/measured).
    off_by_half : int
        Curves whose median is above 0.5.
    one_voice : OneVoice
        The same with one voice a source.
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
class Parameter:
    """A fitted constant of a library.

    Attributes
    ----------
    name, library : str
        Its name in the library's file.
    value : float
        What is shipped and was predicted with.
    unit : str
        ``s``, ``B/s`` or ``share``.
    kind, source : str
        Where that comes from.
    prior : float
        What fits pull it to, for which ``prior_source`` says why.
    refitted : float
        What fits best now: to these curves, and to the public ones.
    fitted_on : tuple of str
        Sources that tell it.
    curves : int
        Their curves that do.
    drift : Drift or None
        Fitted without one of them; None where nothing tells it.
    """

    name: str
    library: str
    value: float
    unit: str
    kind: str
    source: str
    prior: float
    prior_source: str
    refitted: float
    fitted_on: tuple[str, ...]
    curves: int
    drift: Drift | None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Errors of curves whose source was left out of the fit: predictions of the constants that all others tell.

    Attributes
    ----------
    overall : Group
        Good curves without a doubt.
    by_source : tuple of Group
        By source.
    by_class : tuple of Class
        By what they have in common, where that has three sources or more.
    curves : tuple of CurveErrors
        All of them.
    """

    overall: Group
    by_source: tuple[Group, ...]
    by_class: tuple[Class, ...]
    curves: tuple[CurveErrors, ...]


@dataclass(frozen=True, slots=True, repr=False)
class ValidationResult(ResultForm):
    """What `s2sim.study.validate.run.run_validation` returns.

    Attributes
    ----------
    what : str
        Which curves, of how many sources.
    overall : Group
        Good curves without a doubt.
    apart : Apart
        The others.
    by_source : tuple of Group
        Good curves without a doubt, by source.
    by_class : tuple of Class
        The same by what they have in common.
    curves : tuple of CurveErrors
        All, in the order of the index.
    parameters : tuple of Parameter
        Constants that are fitted to measured curves.
    leave_one_source_out : LeftOut or None
        What is predicted of sources that were left out of a fit; None where nothing was fitted.
    notes : tuple of str
        What a reader must know.
    provenance : dict
        The run record.
    complete : bool
        Whether no curve waits for its turn any more.
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
