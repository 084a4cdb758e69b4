"""What a validation of iterations holds: every row with its prediction, and what they come to over rows and sources."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any, ClassVar

from s2sim.study.json_form import JsonForm
from s2sim.study.result_form import ResultForm


@dataclass(frozen=True, slots=True)
class IterationError(JsonForm):
    """One measured iteration with its prediction.

    ``reason`` says why it is not predicted or not scored. Communication is counted as in its row, exposed where that
    is. ``wins`` says whether it is faster than dense of the same source and set-up; None for dense and where there is
    none.
    """

    more_json: ClassVar[tuple[str, ...]] = ("log_error", "communication_log_error")

    id: str
    source: str
    model: str
    gpu: str
    reducer: str
    workers: int | None
    predicted: bool
    reason: str | None
    scored: bool = False
    ran_as: str | None = None
    iteration_s: float | None = None
    communication_s: float | None = None
    codec_s: float | None = None
    measured_iteration_s: float | None = None
    measured_communication_s: float | None = None
    measured_codec_s: float | None = None
    wins: bool | None = None
    measured_wins: bool | None = None
    likely_why: str | None = None

    @property
    def log_error(self) -> float | None:
        """ln(predicted/measured) of the iteration."""
        return _log_ratio(self.iteration_s, self.measured_iteration_s)

    @property
    def communication_log_error(self) -> float | None:
        """ln(predicted/measured) of communication."""
        return _log_ratio(self.communication_s, self.measured_communication_s)

    @property
    def right_call(self) -> bool | None:
        """Whether it was rightly called faster or slower than dense."""
        return None if self.wins is None or self.measured_wins is None else self.wins == self.measured_wins


def _log_ratio(predicted_s: float | None, measured_s: float | None) -> float | None:
    return log(predicted_s / measured_s) if predicted_s and measured_s else None


@dataclass(frozen=True, slots=True)
class TimeErrors:
    """Errors of several times.

    ``median`` and ``p90`` are of |ln(predicted/measured)|, ``bias`` is the median of ln(predicted/measured).
    """

    rows: int
    median: float
    p90: float
    bias: float


@dataclass(frozen=True, slots=True)
class Calls:
    """How often it is rightly predicted that a reducer is faster than dense (a win), or that it is not."""

    right_share: float
    wins_as_predicted: int
    losses_as_predicted: int
    missed_wins: int
    false_wins: int


@dataclass(frozen=True, slots=True)
class SourceErrors:
    """Rows of one source: how many are scored, and how far off; None where none has such a time."""

    name: str
    rows: int
    scored: int
    iteration: TimeErrors | None
    communication: TimeErrors | None
    calls: Calls | None


@dataclass(frozen=True, slots=True)
class OverSources:
    """Medians over sources of what the rows of each come to.

    ``calls_right_share`` is the mean over sources of the share of right calls; ``calls`` counts them by row.
    """

    sources: int
    rows: int
    predicted: int
    scored: int
    iteration: TimeErrors | None
    communication: TimeErrors | None
    calls_right_share: float | None
    calls: Calls | None


@dataclass(frozen=True, slots=True, repr=False)
class IterationsResult(ResultForm):
    """What `s2sim.study.validate.iterations.run.validate_iterations` returns: all rows, in the order of the file.

    ``overall`` counts every source once; ``complete`` is false after an interrupt.
    """

    answers: ClassVar[str] = "iterations"

    what: str
    overall: OverSources
    by_source: tuple[SourceErrors, ...]
    iterations: tuple[IterationError, ...]
    notes: tuple[str, ...]
    provenance: dict[str, Any]
    complete: bool
