"""What a validation of iterations holds: every row with its prediction, and what they come to over rows and sources."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any, ClassVar

from s2sim.study.json_form import JsonForm
from s2sim.study.result_form import ResultForm


@dataclass(frozen=True, slots=True)
class IterationError(JsonForm):
    """One measured iteration.

    Attributes
    ----------
    id, source, model, gpu, reducer : str
        As its row says.
    workers : int or None
        GPUs that took part; None where the row cannot be read.
    predicted : bool
        Whether there is a prediction.
    reason : str or None
        Why there is none, or why it is not scored.
    scored : bool
        Whether it counts.
    ran_as : str or None
        Option strings of the reducer and the discipline that stand for it.
    iteration_s, communication_s, codec_s : float or None
        As predicted; communication is what the row's own is, exposed where that is.
    measured_iteration_s, measured_communication_s, measured_codec_s : float or None
        As the row says.
    wins, measured_wins : bool or None
        Whether it is faster than dense of the same source and set-up; None for dense and where there is none.
    likely_why : str or None
        What its row has that the model lacks.
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

    Attributes
    ----------
    rows : int
        Those that have one.
    median, p90 : float
        Of |ln(predicted/measured)|.
    bias : float
        Median of ln(predicted/measured): below 0 predicted too fast.
    """

    rows: int
    median: float
    p90: float
    bias: float


@dataclass(frozen=True, slots=True)
class Calls:
    """Predicted calls against measured ones: whether a reducer is faster than dense.

    Attributes
    ----------
    right_share : float
        Of all.
    wins_as_predicted, losses_as_predicted, missed_wins, false_wins : int
        Faster and called so, slower and called so, faster and called slower, slower and called faster.
    """

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
    """One voice a source: medians over sources of what each source's rows come to.

    Attributes
    ----------
    sources, rows, predicted, scored : int
        How many there are.
    iteration, communication : TimeErrors or None
        Medians over sources of their medians, 90 % quantiles and biases.
    calls_right_share : float or None
        Mean over sources of the share of right calls.
    calls : Calls or None
        The same by row.
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
    """What `s2sim.study.validate.iterations.run.validate_iterations` returns.

    Attributes
    ----------
    what : str
        Which rows, of how many sources.
    overall : OverSources
        One voice a source.
    by_source : tuple of SourceErrors
        Each source.
    iterations : tuple of IterationError
        All rows, in the order of the file.
    notes : tuple of str
        What a reader must know.
    provenance : dict
        The run record.
    complete : bool
        Whether no row waits for its turn any more.
    """

    answers: ClassVar[str] = "iterations"

    what: str
    overall: OverSources
    by_source: tuple[SourceErrors, ...]
    iterations: tuple[IterationError, ...]
    notes: tuple[str, ...]
    provenance: dict[str, Any]
    complete: bool
