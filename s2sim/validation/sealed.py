"""Predictions that are written down before anybody has measured, and scored once somebody has.

A sealed file has the date, the version that predicted, the set-ups as their rows gave them, and times with their bands.
Its SHA-256, published at that time, shows later that nothing was changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

import s2sim
from s2sim.errors import S2SimError
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.files import read_text, replace_file
from s2sim.uncertainty.interval import shipped_error_model
from s2sim.validation.curve import MeasuredCurve, MeasuredMachine, read_folder, resampled, resolve_curves_folder
from s2sim.validation.curve_result import CurveErrors, ValidationResult, score_curve
from s2sim.validation.harness import in_turn
from s2sim.validation.validate_curves import CurvePredictor, result_of_curves, unpredicted_curve

SIZES_BYTES = tuple(2**power for power in range(3, 31))
"""Sizes at which set-ups are predicted; between them a time is on the line through both in logarithms."""

# What is written beside a set-up after it was measured.
_LATER = ("outlier_sizes_bytes", "quality", "doubt", "source_url")
_Times = tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...]


@dataclass(frozen=True, slots=True)
class SealedCurve:
    """Seconds predicted of one set-up at `SIZES_BYTES`, and their bands; or why there are none."""

    id: str
    set_up: dict[str, Any]  # As its row gave it
    predicted_s: _Times = ()
    low_s: _Times = ()
    high_s: _Times = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a sealed file holds."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    date: str  # In UTC
    version: str  # Of s2sim
    curves: tuple[SealedCurve, ...]
    sha256: str = ""  # Of the rest

    def digest(self) -> str:
        """Return the SHA-256 of all but itself."""
        rest = asdict(replace(self, sha256=""))
        return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def seal(folder: str | None, file: Path, progress: ProgressWatcher = SILENT) -> list[str]:
    """Predict the set-ups of a folder's index, measured or not, write them to a file, and return what to say of it."""
    curves, predictor = read_folder(resolve_curves_folder(folder)), CurvePredictor()
    found = in_turn((_sealed_curve(curve, predictor) for curve in curves), len(curves), "set-ups", progress)
    sealed = Sealed(datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), s2sim.__version__, tuple(found))
    sealed = replace(sealed, sha256=sealed.digest())
    replace_file(file, f"{json.dumps(asdict(sealed), indent=1)}\n".encode())
    predicted = sum(curve.reason is None for curve in found)
    refused = [f"Not predicted: {curve.id}: {curve.reason}" for curve in found if curve.reason is not None]
    return [
        f"{file}: {predicted} of {len(found)} set-ups are predicted, at {len(SIZES_BYTES)} sizes each.",
        f"SHA-256 {sealed.sha256}, {sealed.date} UTC: publish it, measure, and run the same command again.",
        *refused,
    ]


def _sealed_curve(curve: MeasuredCurve, predictor: CurvePredictor) -> SealedCurve:
    machine = curve.machine
    if machine is None:
        return SealedCurve(curve.id, {}, reason=curve.problem)
    set_up = _set_up(machine)
    try:
        times_s = predictor.times_s(machine, SIZES_BYTES)
        run = predictor.run_class(machine)
    except S2SimError as error:
        return SealedCurve(curve.id, set_up, reason=str(error))
    bands = [(1.0, 1.0) if run is None else shipped_error_model().around(run, size) for size in SIZES_BYTES]
    low_s, high_s = (
        tuple(time_s * end for time_s, end in zip(times_s, ends, strict=True)) for ends in zip(*bands, strict=True)
    )
    return SealedCurve(curve.id, set_up, tuple(times_s), low_s, high_s)


def _set_up(machine: MeasuredMachine) -> dict[str, Any]:
    return {each.name: getattr(machine, each.name) for each in fields(machine) if each.name not in _LATER}


def read_sealed(file: Path) -> Sealed:
    """Return a sealed file; `S2SimError` for one that was changed, or is none."""
    try:
        sealed = TypeAdapter(Sealed).validate_json(read_text(file))
    except ValidationError as error:
        raise S2SimError(f"{file} is no file of sealed predictions: {error.errors()[0]['msg']}") from None
    if sealed.digest() != sealed.sha256:
        raise S2SimError(f"{file}: its SHA-256 is not the one that it names: it was changed after it was sealed")
    return sealed


def score_sealed(folder: str | None, file: Path) -> ValidationResult:
    """Return the errors of sealed predictions against what a folder has measured since."""
    path, sealed = resolve_curves_folder(folder), read_sealed(file)
    known = {curve.id: curve for curve in sealed.curves}
    curves = read_folder(path)
    found = [_scored(curve, known.get(curve.id)) for curve in curves]
    note = f"predicted on {sealed.date} UTC by version {sealed.version}, SHA-256 {sealed.sha256}"
    return result_of_curves(path, curves, found, notes=(note,))


def _scored(curve: MeasuredCurve, sealed: SealedCurve | None) -> CurveErrors:
    if curve.machine is None or curve.problem:
        return unpredicted_curve(curve, curve.problem)
    if sealed is None or sealed.reason is not None:
        return unpredicted_curve(curve, "it was not sealed" if sealed is None else f"{sealed.reason}")
    now = json.loads(json.dumps(_set_up(curve.machine)))
    if changed := [name for name, value in now.items() if sealed.set_up.get(name) != value]:
        return unpredicted_curve(curve, f"its row was changed after it was sealed: {', '.join(changed)}")
    points = resampled(curve.points, curve.machine.outlier_sizes_bytes)
    points = tuple(point for point in points if SIZES_BYTES[0] <= point.size_bytes <= SIZES_BYTES[-1])
    sizes = [point.size_bytes for point in points]
    predicted_s, low_s, high_s = (_between(sizes, each) for each in (sealed.predicted_s, sealed.low_s, sealed.high_s))
    pairs = [replace(point, predicted_s=time_s) for point, time_s in zip(points, predicted_s, strict=True)]
    held = [low <= point.measured_s <= high for point, low, high in zip(points, low_s, high_s, strict=True)]
    scored = score_curve(unpredicted_curve(curve, ""), pairs)
    return replace(scored, band_holds_share=float(np.mean(held)) if held else None)


def _between(sizes_bytes: Sequence[int], times_s: Sequence[float]) -> list[float]:
    logs = np.interp(np.log(sizes_bytes), np.log(SIZES_BYTES), np.log(np.maximum(times_s, 1e-12)))
    return [float(time_s) for time_s in np.exp(logs)]
