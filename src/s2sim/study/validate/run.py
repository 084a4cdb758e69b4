"""Predicts every curve of a folder from what is written on its machine, and says how far off that is."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.provenance import run_record
from s2sim.study.progress import INTERRUPTED_NOTE, SILENT
from s2sim.study.validate.curve import resampled
from s2sim.study.validate.folder import INDEX, folder_of, read_folder
from s2sim.study.validate.not_predicted import NotPredictedError
from s2sim.study.validate.predict import Predictor
from s2sim.study.validate.result import CurveErrors, Point, ValidationResult
from s2sim.study.validate.score import apart, by_class, by_source, errors_of, group_of
from s2sim.study.validate.why import likely_why
from s2sim.text_files import read_bytes
from s2sim.topology.files.links import load_links

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from s2sim.study.progress import Progress
    from s2sim.study.validate.curve import Curve

_FITTED = (
    "links are those of the catalogue, latencies those of hardware, and what NCCL adds stands in libraries/nccl.toml: "
    "19 of its constants are fitted to public curves, so that those are predicted better than others will be; the "
    "fastest algorithm of those that it has is taken unless the index names one"
)
_MISSING = "not there yet: bands around predictions, and fits that leave a source out"
_TURN = "interrupted before it was its turn"


def run_validation(folder: str | None = None, progress: Progress = SILENT) -> ValidationResult:
    """Return how far predictions are from the curves of a folder; None for the public ones.

    `S2SimError` where the folder's index cannot be read. After Ctrl-C those that are finished are kept.
    """
    path = folder_of(folder)
    curves = read_folder(path)
    found: list[CurveErrors] = []
    progress.start(len(curves), "predicting curves")
    try:
        for curve in _predicted(curves):
            found.append(curve)
            progress.advance()
    except KeyboardInterrupt:
        # Whoever does not want to wait any longer still gets the curves that are finished.
        if not found:
            raise
    progress.stop()
    complete = len(found) == len(curves)
    found += [_unpredicted(curve, _TURN) for curve in curves[len(found) :]]
    counted = [curve for curve in found if curve.counts]
    sources = len({curve.source for curve in found})
    return ValidationResult(
        headline=f"{len(found)} curves of {sources} sources in {path.resolve().name}",
        overall=group_of("good", counted),
        apart=apart(found),
        by_source=by_source(counted),
        by_class=by_class(counted),
        curves=tuple(found),
        notes=(_FITTED, _MISSING) if complete else (_FITTED, _MISSING, INTERRUPTED_NOTE),
        provenance=_origin(path, curves),
        complete=complete,
    )


def _predicted(curves: Sequence[Curve]) -> Iterator[CurveErrors]:
    predictor = Predictor(load_links())
    for curve in curves:
        try:
            yield _errors_of(curve, predictor)
        except S2SimError as error:
            yield _unpredicted(curve, str(error))


def _errors_of(curve: Curve, predictor: Predictor) -> CurveErrors:
    if curve.machine is None or curve.problem:
        raise NotPredictedError(curve.problem)
    points = resampled(curve.points, curve.machine.outlier_sizes_bytes)
    if not points:
        raise NotPredictedError("no size is within 20 % of a power of two and no hiccup")
    times_s = predictor.times_s(curve.machine, [point.size_bytes for point in points])
    pairs = [Point(p.size_bytes, p.measured_s, time_s) for p, time_s in zip(points, times_s, strict=True)]
    absolute, signed = errors_of(pairs)
    return replace(
        _unpredicted(curve, ""),
        predicted=True,
        reason=None,
        median_abs_log_error_large=absolute["large"],
        median_abs_log_error_small=absolute["small"],
        signed_log_error_large=signed["large"],
        signed_log_error_small=signed["small"],
        likely_why=likely_why(curve.machine, signed["large"], signed["small"]),
        points=tuple(pairs),
    )


def _unpredicted(curve: Curve, reason: str) -> CurveErrors:
    machine = curve.machine
    return CurveErrors(
        id=curve.id,
        source=machine.source if machine else curve.id,
        source_url=machine.source_url if machine else "",
        gpu=machine.gpu_model if machine else "",
        transport=machine.transport if machine else "",
        collective=machine.collective if machine else "",
        launch=machine.launch if machine else "",
        ranks=machine.ranks if machine else None,
        algorithm=machine.algorithm if machine else "",
        quality=machine.quality if machine else "",
        doubt=(machine.doubt or None) if machine else None,
        predicted=False,
        reason=reason,
        n_points=len(resampled(curve.points, machine.outlier_sizes_bytes if machine else ())),
    )


def _origin(path: Path, curves: Sequence[Curve]) -> dict[str, object]:
    index = hashlib.sha256(read_bytes(path / INDEX)).hexdigest()
    points = [[curve.id, [[p.size_bytes, p.measured_s] for p in curve.points]] for curve in curves]
    return run_record(
        spec={"index_sha256": index, "points": points},
        inputs={"curves": {"folder": path.resolve().name, "index_sha256": index}, "links": "topologies/hardware.toml"},
        measured=["times of the curves, as published"],
        assumed=["times predicted: simulated on the machine that each row describes, by the hardware catalogue"],
    )
