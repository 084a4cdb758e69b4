"""Predicts every measured iteration of a folder, and says how far off that is."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.provenance import run_record
from s2sim.study.progress import INTERRUPTED_NOTE, SILENT
from s2sim.study.validate.iterations.folder import FILE, folder_of_iterations, read_iterations
from s2sim.study.validate.iterations.predict import IterationPredictor
from s2sim.study.validate.iterations.result import IterationError, IterationsResult
from s2sim.study.validate.iterations.score import by_source, over_sources
from s2sim.study.validate.iterations.why import likely_why
from s2sim.text_files import read_bytes
from s2sim.topology.files.links import load_links

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from s2sim.study.progress import Progress
    from s2sim.study.validate.iterations.folder import Measured

_MS = 1e-3
_NOTE = (
    "compute is that of each row, or of the model's profile; cluster by the hardware catalogue, NCCL by "
    "libraries/nccl.toml; what frameworks start was settled with public rows in view; waiting for slower ranks is not "
    "predicted"
)
_TURN = "interrupted before it was its turn"


def validate_iterations(folder: str | None = None, progress: Progress = SILENT) -> IterationsResult:
    """Return how far predictions are from the measured iterations of a folder; None for the public ones.

    `S2SimError` where its file cannot be read. After Ctrl-C rows that are finished are kept.
    """
    path = folder_of_iterations(folder)
    rows = read_iterations(path)
    predictor = IterationPredictor(load_links())
    found: list[IterationError] = []
    progress.start(len(rows), "predicting iterations")
    try:
        for each in rows:
            found.append(_predicted(each, predictor))
            progress.advance()
    except KeyboardInterrupt:
        # Whoever does not want to wait any longer still gets the rows that are finished.
        if not found:
            raise
    progress.stop()
    complete = len(found) == len(rows)
    found += [_unpredicted(each, _TURN) for each in rows[len(found) :]]
    called = _with_reasons(rows, _with_calls(rows, found))
    sources = by_source(called)
    return IterationsResult(
        what=f"{len(called)} iterations of {len(sources)} sources in {path.resolve().name}",
        overall=over_sources(called, sources),
        by_source=sources,
        iterations=tuple(called),
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
        ran_as=found.ran_as,
        iteration_s=found.iteration_s,
        communication_s=found.communication_s,
        codec_s=found.codec_s,
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


def _with_calls(rows: Sequence[Measured], found: Sequence[IterationError]) -> list[IterationError]:
    """Return rows with whether each is faster than its dense row, as predicted and as measured."""
    by_id = {each.id: each for each in found}
    called = []
    for measured, each in zip(rows, found, strict=True):
        dense = by_id.get(measured.row.dense_pair) if measured.row is not None else None
        called.append(
            each
            if dense is None
            else replace(
                each,
                wins=_faster(each.iteration_s, dense.iteration_s),
                measured_wins=_faster(each.measured_iteration_s, dense.measured_iteration_s),
            )
        )
    return called


def _with_reasons(rows: Sequence[Measured], found: Sequence[IterationError]) -> list[IterationError]:
    """Return rows with what explains their errors, of which dense ones learn from those compared with them."""
    waited_ms: dict[str, float] = {}
    for measured in rows:
        if measured.row is not None:
            pair = measured.row.dense_pair
            waited_ms[pair] = max(waited_ms.get(pair, 0.0), measured.row.first_message_ms or 0.0)
    return [
        each
        if measured.row is None
        else replace(each, likely_why=likely_why(measured.row, each, waited_ms.get(each.id, 0.0)))
        for measured, each in zip(rows, found, strict=True)
    ]


def _faster(time_s: float | None, other_s: float | None) -> bool | None:
    return None if time_s is None or other_s is None else time_s < other_s


def _origin(path: Path) -> dict[str, object]:
    rows = hashlib.sha256(read_bytes(path / FILE)).hexdigest()
    return run_record(
        spec={"iterations_sha256": rows},
        inputs={"iterations": {"folder": path.resolve().name, "sha256": rows}, "links": "topologies/hardware.toml"},
        measured=["times of iterations and of their parts, as published"],
        assumed=["times predicted: simulated on the machine that each row describes, by the hardware catalogue"],
    )
