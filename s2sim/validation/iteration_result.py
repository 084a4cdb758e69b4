"""Measured training iterations: machine, model, reducer and times; and the errors of their predictions."""

import re
from dataclasses import dataclass
from functools import partial
from math import log
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from s2sim.errors import S2SimError
from s2sim.experiment.json_form import JsonForm, ResultForm
from s2sim.files import measured_folder
from s2sim.validation.harness import MOST_LETTERS, Count, Transport, read_index, word_of
from s2sim.validation.node_files import names

# Whole and sum of the parts differ by less in rows that can be judged.
_MAX_APART = 0.08
# Names of training without compression.
_DENSE = ("dense", "none", "baseline", "allreduce")
_MAX_MS = 1e9
_Word = Annotated[str, Field(max_length=200)]
_Known = Annotated[_Word, Field(min_length=1)]
_Ms = Annotated[float, Field(ge=0, le=_MAX_MS, allow_inf_nan=False)] | None
FILE = "iterations.csv"


def time_in_notes_ms(notes: str, name: str) -> float | None:
    """Return the time that notes give under a name; None where they give none.

    >>> notes = "2 GPU; step_ms=12.4; norm_exchange_ms="
    >>> time_in_notes_ms(notes, "step_ms"), time_in_notes_ms(notes, "norm_exchange_ms")
    (12.4, None)
    """
    found = re.search(rf"\b{name}\s*=\s*(\d{{1,9}}(?:\.\d*)?(?:e[-+]?\d)?)(?![\w.])", notes)
    return None if found is None else float(found[1])


@dataclass(frozen=True, slots=True)
class MeasuredIterationRow:
    """One row of ``iterations.csv``, times in milliseconds; None or empty text: not known; other columns: ignored."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "ignore"}

    id: _Known
    source: _Known
    gpu: _Known
    nodes: Count
    gpus_per_node: Count
    workers: Count
    model: _Known
    reducer: _Known
    iteration_ms: Annotated[float, Field(gt=0, le=_MAX_MS, allow_inf_nan=False)]
    # One of ``none``, ``wfbp``, ``mg-wfbp``, ``ddp``, ``bytescheduler`` or ``unknown``
    overlap_kind: Annotated[_Known, word_of(names()["overlap"])]
    transport: Transport = ""
    intra_interconnect: _Word = ""
    nic_rate_gbps: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    n_params: Annotated[int, Field(ge=1, le=10**13)] | None = None
    n_tensors: Count | None = None
    batch_per_gpu: Count | None = None
    reducer_params: _Word = ""  # ``key=value;key=value`` or other words
    compute_ms: _Ms = None
    forward_ms: _Ms = None
    backward_ms: _Ms = None
    encode_ms: _Ms = None
    comm_ms: _Ms = None
    decode_ms: _Ms = None
    system: _Word = ""
    notes: str = ""
    dense_pair: _Word = ""  # The id of the dense row of the same set-up

    @property
    def computing_ms(self) -> float | None:
        """Forward and backward together; None where the row does not say."""
        if self.forward_ms is not None and self.backward_ms is not None:
            return self.forward_ms + self.backward_ms
        return self.compute_ms

    @property
    def step_ms(self) -> float:
        """Time of the optimizer, if given separately from the rest of compute."""
        return time_in_notes_ms(self.notes, "step_ms") or 0.0

    @property
    def first_message_ms(self) -> float | None:
        """What an exchange of a few bytes before the other took, waiting for slower ranks included."""
        return time_in_notes_ms(self.notes, "norm_exchange_ms")

    @property
    def exposed(self) -> bool:
        """Whether the row gives communication that no compute hides."""
        return self.overlap_kind == "none" or "exposed" in self.notes

    @property
    def sent_densely(self) -> bool:
        """Whether nothing is compressed."""
        return self.reducer.lower().startswith(_DENSE)

    @property
    def packs(self) -> bool:
        """Whether gradients are copied into one buffer and back: where they leave together after backward."""
        return self.overlap_kind == "none"

    @property
    def contradiction(self) -> str:
        """Why the row cannot be judged: its parts do not sum to the whole; empty where they do or are not given."""
        own = (self.computing_ms, self.encode_ms, self.comm_ms, self.decode_ms, self.step_ms, self.first_message_ms)
        parts = sum(part or 0.0 for part in own)
        apart = abs(parts - self.iteration_ms) > _MAX_APART * self.iteration_ms
        if not apart or self.computing_ms is None or self.comm_ms is None or not self.exposed:
            return ""
        return f"its parts sum to {parts:.4g} ms, the whole is {self.iteration_ms:.4g} ms"


def parse_params(text: str) -> dict[str, str]:
    """Return the parameters of a row's reducer; those without a key are under an empty one.

    >>> parse_params("K=10000;quantization_level=6"), parse_params("1 bit")
    ({'k': '10000', 'quantization_level': '6'}, {'': '1 bit'})
    """
    found = {}
    for part in filter(None, re.split(r"\s*[;,]\s*", text.strip())):
        name, equals, value = part.partition("=")
        found[name.strip().lower() if equals else ""] = value.strip() if equals else part
    return found


@dataclass(frozen=True, slots=True)
class MeasuredIteration:
    """A row of a folder; ``problem`` says why it cannot be read, else it is empty."""

    id: str
    source: str
    row: MeasuredIterationRow | None
    problem: str = ""


resolve_iterations_folder = partial(measured_folder, "iterations")


def has_iterations(folder: Path) -> bool:
    """Return whether a folder holds measured iterations."""
    return (folder / FILE).is_file()


def read_iterations(folder: Path) -> tuple[MeasuredIteration, ...]:
    """Return a folder's measured iterations in order, a wrong one with its ``problem``; `S2SimError` for the file."""
    if not has_iterations(folder):
        raise S2SimError(f"{folder} has no {FILE}: give a folder with one, or none for the public iterations")
    rows = read_index(
        folder / FILE, MeasuredIterationRow, "measured iteration", str.isprintable, "is no name of a row", "transport"
    )
    return tuple(
        MeasuredIteration(cells["id"], row.source if row else cells["source"][:MOST_LETTERS] or cells["id"], row, why)
        for cells, row, why in rows
    )


@dataclass(frozen=True, slots=True)
class IterationError(JsonForm):
    """One measured iteration with its prediction.

    Communication is counted as in its row, exposed where that is.
    """

    more_json: ClassVar[tuple[str, ...]] = ("log_error", "communication_log_error")

    id: str
    source: str
    model: str
    gpu: str
    reducer: str
    workers: int | None
    predicted: bool
    reason: str | None  # Why it is not predicted or not scored
    scored: bool = False
    ran_as: str | None = None
    iteration_s: float | None = None
    communication_s: float | None = None
    codec_s: float | None = None
    measured_iteration_s: float | None = None
    measured_communication_s: float | None = None
    measured_codec_s: float | None = None
    # Whether it is faster than dense of the same source and set-up; None for dense and where there is none
    wins: bool | None = None
    measured_wins: bool | None = None
    win_probability: float | None = None  # That it is, by what communication and codecs are off by elsewhere
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
    """Errors of several times: of |ln(predicted/measured)|, and for ``bias`` of ln(predicted/measured)."""

    rows: int
    median: float
    p90: float
    bias: float  # A median


@dataclass(frozen=True, slots=True)
class Calls:
    """How often it is rightly predicted that a reducer is faster than dense (a win), or that it is not.

    Brier scores are means of (probability - 1 for a win)^2; always saying the share of wins has ``brier_of_base_rate``.
    """

    right_share: float
    wins_as_predicted: int
    losses_as_predicted: int
    missed_wins: int
    false_wins: int
    undecided: int  # Calls whose probability, of a win or a loss, is below 80 %
    decided_right_share: float | None  # Of the others
    brier: float
    brier_of_base_rate: float


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
    """Medians over sources of what the rows of each come to."""

    sources: int
    rows: int
    predicted: int
    scored: int
    iteration: TimeErrors | None
    communication: TimeErrors | None
    calls_right_share: float | None  # Mean over sources of the share of right calls
    calls: Calls | None  # By row


@dataclass(frozen=True, slots=True, repr=False)
class IterationsResult(ResultForm):
    """What `s2sim.validation.validate_iterations.validate_iterations` returns: all rows, in the order of the file."""

    what: str
    overall: OverSources  # Every source counts once
    by_source: tuple[SourceErrors, ...]
    iterations: tuple[IterationError, ...]
    notes: tuple[str, ...]
    provenance: dict[str, Any]
    complete: bool  # False after an interrupt
