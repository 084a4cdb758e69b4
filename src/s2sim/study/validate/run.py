"""Predicts every curve of a folder from what is written on its machine, and says how far off that is."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from s2sim.study.progress import INTERRUPTED_NOTE, SILENT
from s2sim.study.validate.band import with_band
from s2sim.study.validate.each import each_predicted, tells, unpredicted
from s2sim.study.validate.fits import fits_of, left_out_of, parameters_of
from s2sim.study.validate.folder import INDEX, folder_of, read_folder
from s2sim.study.validate.harness import NOT_YET, in_turn, origin_of
from s2sim.study.validate.result import ValidationResult
from s2sim.study.validate.score import apart, by_class, by_source, group_of
from s2sim.text_files import read_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from s2sim.study.progress import Progress
    from s2sim.study.validate.curve import Curve

_FITTED = (
    "links are those of the catalogue, latencies those of hardware, and what NCCL adds stands in libraries/nccl.toml; "
    "constants of that are fitted to public curves, so that errors of sources left out of a fit tell more of others; "
    "the fastest algorithm of those that it has is taken unless the index names one"
)


def run_validation(folder: str | None = None, progress: Progress = SILENT, *, fit: bool = True) -> ValidationResult:
    """Return how far predictions are from the curves of a folder; None for the public ones.

    With ``fit`` constants are fitted again, to these curves and the public ones, and without each source of the folder:
    that predicts the public ones too. `S2SimError` where the folder's index cannot be read. After Ctrl-C those that are
    finished are kept.
    """
    path = folder_of(folder)
    curves = read_folder(path)
    others = _public_beside(curves) if fit and folder is not None else ()
    predicted = in_turn(each_predicted([*curves, *others], tell=fit), len(curves) + len(others), "curves", progress)
    complete = len(predicted) == len(curves) + len(others)
    found = [curve for curve, _ in predicted[: len(curves)]]
    found += [unpredicted(curve, NOT_YET) for curve in curves[len(found) :]]
    told = [point for _, points in predicted for point in points]
    counted = [curve for curve in found if curve.counts]
    fits = fits_of(told, list(dict.fromkeys(curve.source for curve in counted))) if fit and complete else None
    left_out = None if fits is None else left_out_of(fits, counted)
    sources = len({curve.source for curve in found})
    return ValidationResult(
        what=f"{len(found)} curves of {sources} sources in {path.resolve().name}",
        overall=group_of("good", counted),
        apart=apart(found),
        by_source=by_source(counted),
        by_class=by_class(counted),
        curves=tuple(with_band(curve, left_out) for curve in found),
        parameters=() if fits is None else parameters_of(fits),
        leave_one_source_out=left_out,
        notes=(_FITTED,) if complete else (_FITTED, INTERRUPTED_NOTE),
        provenance=_origin(path, curves),
        complete=complete,
    )


def _public_beside(curves: Sequence[Curve]) -> tuple[Curve, ...]:
    """Return the public curves by which the model is judged, but those that are among these."""
    ids = {curve.id for curve in curves}
    return tuple(curve for curve in read_folder(folder_of(None)) if curve.id not in ids and tells(curve))


def _origin(path: Path, curves: Sequence[Curve]) -> dict[str, object]:
    index = hashlib.sha256(read_bytes(path / INDEX)).hexdigest()
    points = [[curve.id, [[p.size_bytes, p.measured_s] for p in curve.points]] for curve in curves]
    inputs = {"curves": {"folder": path.resolve().name, "index_sha256": index}}
    return origin_of({"index_sha256": index, "points": points}, inputs, "the curves")
