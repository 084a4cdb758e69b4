"""Predicts every measured iteration of a folder, and scores the predictions."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

import numpy as np

from s2sim.arrays import Floats
from s2sim.errors import S2SimError
from s2sim.experiment.progress import INTERRUPTED_NOTE, SILENT, ProgressWatcher
from s2sim.seeds import named_generator
from s2sim.tables import group_by
from s2sim.uncertainty.interval import BETWEEN_KINDS
from s2sim.validation.harness import NOT_YET, error_statistics, folder_name, in_turn, origin_of
from s2sim.validation.iteration_predict import IterationPredictor
from s2sim.validation.iteration_result import (
    FILE,
    Calls,
    IterationError,
    IterationsResult,
    MeasuredIteration,
    MeasuredIterationRow,
    OverSources,
    SourceErrors,
    TimeErrors,
    read_iterations,
    resolve_iterations_folder,
)

# Smaller errors are not explained.
_LARGE_ERROR = 0.1
# Of the whole: a first message of few bytes that takes more than this waits.
_LONG_WAIT = 0.02
# A part explains an error if it is between these shares of it.
_MIN_SHARE, _MAX_SHARE = 0.5, 2
_MS, _DRAWS = 1e-3, 4000
# Calls of less are undecided.
_SURE = 0.8
COMMUNICATION_SPREAD, CODEC_SPREAD = 0.45, 0.18
"""Standard deviations of ln(measured/predicted) of parts of public rows: medians over sources of their median, over
0.674."""
_NOTE = (
    "compute is that of each row, or of the model's profile; cluster by the hardware catalogue, NCCL by "
    "libraries/nccl.toml; what frameworks start was settled with public rows in view; waiting for slower ranks is not "
    "predicted"
)


def by_source(rows: Sequence[IterationError]) -> tuple[SourceErrors, ...]:
    """Return the errors of the scored rows of each source."""
    found = []
    for name, own in sorted(group_by(rows, lambda row: row.source).items()):
        scored = [row for row in own if row.scored]
        errors = _errors(row.log_error for row in scored), _errors(row.communication_log_error for row in scored)
        found.append(SourceErrors(name, len(own), len(scored), *errors, _calls(own)))
    return tuple(found)


def over_sources(rows: Sequence[IterationError], sources: Sequence[SourceErrors]) -> OverSources:
    """Return medians over sources, each weighted equally."""
    shares = [source.calls.right_share for source in sources if source.calls is not None]
    return OverSources(
        sources=len(sources),
        rows=len(rows),
        predicted=sum(row.predicted for row in rows),
        scored=sum(row.scored for row in rows),
        iteration=_median_of_sources([source.iteration for source in sources]),
        communication=_median_of_sources([source.communication for source in sources]),
        calls_right_share=float(np.mean(shares)) if shares else None,
        calls=_calls(rows),
    )


def _errors(found: Iterable[float | None]) -> TimeErrors | None:
    signed = [each for each in found if each is not None]
    return TimeErrors(*error_statistics(list(map(abs, signed)), signed)) if signed else None


def _median_of_sources(sources: Iterable[TimeErrors | None]) -> TimeErrors | None:
    if not (known := [source for source in sources if source is not None]):
        return None
    medians = np.median([(source.median, source.p90, source.bias) for source in known], axis=0)
    return TimeErrors(sum(source.rows for source in known), *medians.tolist())


def _calls(rows: Iterable[IterationError]) -> Calls | None:
    scored = [row for row in rows if row.scored and row.right_call is not None]
    if not (known := [(row.wins, row.measured_wins) for row in scored]):
        return None
    chance = np.array([float(bool(row.wins)) if row.win_probability is None else row.win_probability for row in scored])
    won = np.array([was for _, was in known], np.float64)
    decided = np.maximum(chance, 1 - chance) >= _SURE
    return Calls(
        right_share=float(np.mean([called == was for called, was in known])),
        wins_as_predicted=known.count((True, True)),
        losses_as_predicted=known.count((False, False)),
        missed_wins=known.count((False, True)),
        false_wins=known.count((True, False)),
        undecided=int((~decided).sum()),
        decided_right_share=float(((chance > 0.5) == (won > 0))[decided].mean()) if decided.any() else None,
        brier=float(np.mean((chance - won) ** 2)),
        brier_of_base_rate=float(won.mean() * (1 - won.mean())),
    )


def win_probability(row: IterationError, dense: IterationError) -> float | None:
    """Return the probability that a reducer's iteration is shorter than that of dense; None where one has no time.

    What is not communication or codec is the same in both. Logarithms of their factors are normal, with the spread of
    public rows; communication of both is correlated as collectives of one source are.
    """
    if row.iteration_s is None or dense.iteration_s is None:
        return None
    common, own, other, codec = named_generator(0, "calls").standard_normal((4, _DRAWS))

    def drawn_s(each: IterationError, alone: Floats) -> Floats:
        communication_s, codec_s = each.communication_s or 0.0, each.codec_s or 0.0
        longer = np.exp(COMMUNICATION_SPREAD * (np.sqrt(BETWEEN_KINDS) * common + np.sqrt(1 - BETWEEN_KINDS) * alone))
        grown = communication_s * (longer - 1) + codec_s * (np.exp(CODEC_SPREAD * codec) - 1)
        return np.asarray((each.iteration_s or 0.0) + grown, np.float64)

    return float(np.mean(drawn_s(row, own) < drawn_s(dense, other)))


def likely_iteration_error_source(row: MeasuredIterationRow, found: IterationError, waited_ms: float) -> str | None:
    """Return an error's likely reason, None if small; ``waited_ms`` is a small message's time in rows of its set-up."""
    error = found.log_error
    if error is None or abs(error) < _LARGE_ERROR:
        return None
    if found.reason is not None:
        return found.reason
    first_ms = row.first_message_ms or 0.0
    if error < 0 and first_ms > _LONG_WAIT * row.iteration_ms:
        return f"{first_ms:.0f} ms of it are a message of few bytes: ranks wait for slower ones"
    if error < 0 and waited_ms > _LONG_WAIT * row.iteration_ms:
        return f"a message of few bytes takes up to {waited_ms:.0f} ms in this set-up: ranks wait for slower ones"
    if row.computing_ms is None:
        return "its row does not say what it computes, and that of the model's profile was taken"
    if found.codec_s is not None and found.measured_codec_s:
        missed_s = found.measured_codec_s - found.codec_s
        whole_s = (found.measured_iteration_s or 0.0) - (found.iteration_s or 0.0)
        if whole_s and _MIN_SHARE < missed_s / whole_s < _MAX_SHARE:
            return "its codec starts more kernels, or passes over more memory, than was counted"
    communication = found.communication_log_error
    if communication is not None and abs(communication) > abs(error):
        return f"its network or host memory is {'slower' if communication < 0 else 'faster'} than those of its class"
    if row.nodes > 1 and error < 0 and row.overlap_kind == "wfbp":
        return "each tensor starts later than the model has it: frameworks agree on it among ranks first"
    return f"it overlaps {'less' if error < 0 else 'more'} than its discipline and compute allow"


def validate_iterations(folder: str | None = None, progress: ProgressWatcher = SILENT) -> IterationsResult:
    """Return the errors of predictions of a folder's measured iterations; after Ctrl-C of those that are finished.

    Parameters
    ----------
    folder : str, optional
        One with measured iterations; without it the public ones. `S2SimError` where its file cannot be read.
    progress : ProgressWatcher
        Called as the work advances.
    """
    path = resolve_iterations_folder(folder)
    rows = read_iterations(path)
    predictor = IterationPredictor()
    found = in_turn((_predict_row(each, predictor) for each in rows), len(rows), "iterations", progress)
    complete = len(found) == len(rows)
    found += [_unpredicted_row(each, NOT_YET) for each in rows[len(found) :]]
    called = _compared(rows, found)
    sources = by_source(called)
    return IterationsResult(
        what=f"{len(called)} iterations of {len(sources)} sources in {folder_name(path)}",
        overall=over_sources(called, sources),
        by_source=sources,
        iterations=called,
        notes=(_NOTE,) if complete else (_NOTE, INTERRUPTED_NOTE),
        provenance=origin_of("iterations", "sha256", path / FILE, "iterations and of their parts"),
        complete=complete,
    )


def _predict_row(measured: MeasuredIteration, predictor: IterationPredictor) -> IterationError:
    if (row := measured.row) is None:
        return _unpredicted_row(measured, measured.problem)
    try:
        found = asdict(predictor.predict(row))
    except S2SimError as error:
        return _unpredicted_row(measured, str(error))
    reason = row.contradiction or None
    return replace(_unpredicted_row(measured, reason), predicted=True, scored=reason is None, **found)


def _unpredicted_row(measured: MeasuredIteration, reason: str | None) -> IterationError:
    if (row := measured.row) is None:
        return IterationError(measured.id, measured.source, "", "", "", None, predicted=False, reason=reason)

    def seconds(*parts_ms: float | None) -> float | None:
        known = [part for part in parts_ms if part is not None]
        return sum(known) * _MS if known else None

    return IterationError(
        id=row.id,
        source=row.source,
        model=row.model,
        gpu=row.gpu,
        reducer=" ".join(filter(None, (row.reducer, row.reducer_params))),
        workers=row.workers,
        predicted=False,
        reason=reason,
        measured_iteration_s=seconds(row.iteration_ms),
        measured_communication_s=seconds(row.comm_ms),
        measured_codec_s=seconds(row.encode_ms, row.decode_ms),
    )


def _compared(rows: Sequence[MeasuredIteration], found: Sequence[IterationError]) -> tuple[IterationError, ...]:
    """Return rows with wins over dense and likely reasons of errors; dense rows take their rows' waiting times."""
    by_id = {each.id: each for each in found}
    waited_ms: dict[str, float] = {}
    compared = []
    for known in filter(None, (measured.row for measured in rows)):
        waited_ms[known.dense_pair] = max(waited_ms.get(known.dense_pair, 0.0), known.first_message_ms or 0.0)
    for row, each in zip((measured.row for measured in rows), found, strict=True):
        wins = measured_wins = why = chance = None
        if row is not None:
            why = likely_iteration_error_source(row, each, waited_ms.get(each.id, 0.0))
            if dense := by_id.get(row.dense_pair):
                wins = _faster(each.iteration_s, dense.iteration_s)
                measured_wins = _faster(each.measured_iteration_s, dense.measured_iteration_s)
                chance = win_probability(each, dense)
        compared.append(replace(each, wins=wins, measured_wins=measured_wins, win_probability=chance, likely_why=why))
    return tuple(compared)


def _faster(time_s: float | None, other_s: float | None) -> bool | None:
    return None if time_s is None or other_s is None else time_s < other_s
