"""Predicts every measured iteration of a folder, and says how far off that is."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.study.progress import INTERRUPTED_NOTE, SILENT
from s2sim.study.validate.harness import NOT_YET, in_turn, origin_of
from s2sim.study.validate.iterations.folder import FILE, folder_of_iterations, read_iterations
from s2sim.study.validate.iterations.predict import IterationPredictor
from s2sim.study.validate.iterations.result import IterationError, IterationsResult
from s2sim.study.validate.iterations.score import by_source, over_sources
from s2sim.study.validate.iterations.why import likely_why
from s2sim.text_files import read_bytes
from s2sim.topology.files.links import load_links

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from s2sim.study.progress import Progress
    from s2sim.study.validate.iterations.folder import Measured

_MS = 1e-3
_NOTE = (
    "compute is that of each row, or of the model's profile; cluster by the hardware catalogue, NCCL by "
    "libraries/nccl.toml; what frameworks start was settled with public rows in view; waiting for slower ranks is not "
    "predicted"
)


def validate_iterations(folder: str | None = None, progress: Progress = SILENT) -> IterationsResult:
    """Return how far predictions are from the measured iterations of a folder; None for the public ones.

    `S2SimError` where its file cannot be read. After Ctrl-C rows that are finished are kept.
    """
    path = folder_of_iterations(folder)
    rows = read_iterations(path)
    predictor = IterationPredictor(load_links())
    found = in_turn((_predicted(each, predictor) for each in rows), len(rows), "iterations", progress)
    complete = len(found) == len(rows)
    found += [_unpredicted(each, NOT_YET) for each in rows[len(found) :]]
    called = tuple(_compared(rows, found))
    sources = by_source(called)
    return IterationsResult(
        what=f"{len(called)} iterations of {len(sources)} sources in {path.resolve().name}",
        overall=over_sources(called, sources),
        by_source=sources,
        iterations=called,
        notes=(_NOTE,) if complete else (_NOTE, INTERRUPTED_NOTE),
        provenance=_origin(path),
        complete=complete,
    )


def _predicted(measured: Measured, predictor: IterationPredictor) -> IterationError:
    row = measured.row
    if row is None:
        return _unpredicted(measured, measured.problem)
    try:
        found = predictor.predict(row)
    except S2SimError as error:
        return _unpredicted(measured, str(error))
    contradiction = row.contradiction
    return replace(
        _unpredicted(measured, contradiction),
        predicted=True,
        reason=contradiction or None,
        scored=not contradiction,
        **asdict(found),
    )


def _unpredicted(measured: Measured, reason: str) -> IterationError:
    """Return a row that is not predicted, and why."""
    row = measured.row
    if row is None:
        return IterationError(measured.id, measured.source, "", "", "", None, predicted=False, reason=reason)
    codec_ms = None if row.encode_ms is None and row.decode_ms is None else (row.encode_ms or 0) + (row.decode_ms or 0)
    return IterationError(
        id=row.id,
        source=row.source,
        model=row.model,
        gpu=row.gpu,
        reducer=" ".join(filter(None, (row.reducer, row.reducer_params))),
        workers=row.workers,
        predicted=False,
        reason=reason,
        measured_iteration_s=row.iteration_ms * _MS,
        measured_communication_s=None if row.comm_ms is None else row.comm_ms * _MS,
        measured_codec_s=None if codec_ms is None else codec_ms * _MS,
    )


def _compared(rows: Sequence[Measured], found: Sequence[IterationError]) -> Iterator[IterationError]:
    """Yield rows with whether each is faster than its dense row, and with what explains their errors.

    Dense rows learn from those that are compared with them how long ranks waited.
    """
    by_id = {each.id: each for each in found}
    waited_ms: dict[str, float] = {}
    for row in (measured.row for measured in rows if measured.row is not None):
        waited_ms[row.dense_pair] = max(waited_ms.get(row.dense_pair, 0.0), row.first_message_ms or 0.0)
    for measured, each in zip(rows, found, strict=True):
        if measured.row is None:
            yield each
            continue
        why = likely_why(measured.row, each, waited_ms.get(each.id, 0.0))
        dense = by_id.get(measured.row.dense_pair)
        yield replace(
            each,
            wins=_faster(each.iteration_s, dense.iteration_s) if dense else None,
            measured_wins=_faster(each.measured_iteration_s, dense.measured_iteration_s) if dense else None,
            likely_why=why,
        )


def _faster(time_s: float | None, other_s: float | None) -> bool | None:
    return None if time_s is None or other_s is None else time_s < other_s


def _origin(path: Path) -> dict[str, object]:
    rows = hashlib.sha256(read_bytes(path / FILE)).hexdigest()
    inputs = {"iterations": {"folder": path.resolve().name, "sha256": rows}}
    return origin_of({"iterations_sha256": rows}, inputs, "iterations and of their parts")
