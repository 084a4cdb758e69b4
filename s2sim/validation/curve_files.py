"""What is written of public curves: constants and bands fitted to them, and predictions sealed before a measurement.

A sealed file has the date, the version that predicted, the set-ups as their rows gave them, and times with their bands.
Its SHA-256, published at that time, shows later that nothing was changed.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

import s2sim
from s2sim.errors import S2SimError
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.files import StrictFields, data_directory, read_bytes, read_text, replace_file, validated
from s2sim.uncertainty import interval
from s2sim.uncertainty.constant_fit import clear_constant_cache
from s2sim.units import format_number_of
from s2sim.validation import validate_curves
from s2sim.validation.curve import MeasuredCurve, MeasuredMachine, Point, read_folder, resampled, resolve_curves_folder
from s2sim.validation.curve_result import CurveErrors, Parameter, ValidationResult, score_curve
from s2sim.validation.harness import in_turn

# Constants that move by less are where they are.
_CONVERGED = 0.01
_FITTED = "fitted on "
_MEASURED = re.compile(r'^(?P<key>[\w.-]+) = \{ value = [^,]+, kind = "measured", source = "(?P<source>.*)" \}$')


def write_fits(progress: ProgressWatcher = SILENT) -> list[str]:
    """Fit constants to public curves, with terms anew each round, until they converge; write both; return changes."""
    public = read_folder(resolve_curves_folder(None))
    curves = [curve for curve in public if validate_curves.is_fit_for_calibration(curve)]
    changed: dict[str, str] = {}
    fits, found = fit_curves(curves, progress)
    for _ in range(4):
        if float(np.abs(fits.whole).max()) < _CONVERGED:
            break
        parameters = validate_curves.fitted_parameters(fits)
        origin = f"{len(found)} public curves of {len({curve.source for curve in found})} sources"
        for library in dict.fromkeys(parameter.library for parameter in parameters):
            path = data_directory("libraries") / f"{library}.toml"
            own = {parameter.name: parameter for parameter in parameters if parameter.library == library}
            path.write_text(replace_values(path.read_text("utf-8"), own, origin), "utf-8")
            for name, parameter in own.items():
                changed[name + library] = f"{path.name}: {name} = {value_text(parameter)}"
        clear_constant_cache()
        fits, found = fit_curves(curves, progress)
    apart = [each for each in public if each not in curves and each.machine is not None and each.machine.nodes > 1]
    doubtful = in_turn(validate_curves.predict_curves(apart, tell=False), len(apart), "curves", progress)
    bands = interval.PredictionErrors(
        version=interval.VERSION,
        made_by="s2sim dev validate --write",
        curves_sha256=hashlib.sha256(read_bytes(resolve_curves_folder(None) / "index.csv")).hexdigest(),
        curves=(
            *error_samples(fits.left_out(found), doubtful=False),
            *error_samples((curve for curve, _ in doubtful), doubtful=True),
        ),
    )
    value = asdict(bands)
    parts = [f'"{key}": {json.dumps(value[key])}' for key in ("version", "made_by", "curves_sha256")]
    parts.append('"curves": [\n  ' + ",\n  ".join(map(json.dumps, value["curves"])) + "\n ]")
    interval.error_model_path().write_text("{\n " + ",\n ".join(parts) + "\n}\n", "utf-8")
    interval.shipped_error_model.cache_clear()
    return [*changed.values(), f"{interval.error_model_path().name}: bands of {len(found)} curves"]


def fit_curves(
    curves: Sequence[MeasuredCurve], progress: ProgressWatcher = SILENT
) -> tuple[validate_curves.ConstantFits, list[CurveErrors]]:
    """Return fits to curves as the constants are now, and the curves as predicted by these."""
    predicted = in_turn(validate_curves.predict_curves(curves, tell=True), len(curves), "curves", progress)
    if len(predicted) < len(curves):
        raise KeyboardInterrupt
    found = [curve for curve, _ in predicted]
    calibration = [point for _, points in predicted for point in points]
    fits = validate_curves.fit_constants(calibration, sorted({curve.source for curve in found}))
    if fits is None:
        raise S2SimError("no constant of a library was measured: there is nothing to fit")
    return fits, found


def replace_values(text: str, parameters: Mapping[str, Parameter], of: str) -> str:
    """Return a library's file with other values of some constants, each with what it was fitted on; all else stays."""
    table, lines = "", text.splitlines()
    for number, line in enumerate(lines):
        table = line.strip("[]") if line.startswith("[") else table
        found = _MEASURED.match(line)
        parameter = parameters.get(f"{table}.{found['key']}") if found else None
        if found is not None and parameter is not None:
            said = found["source"]
            rest = said.partition("; ")[2] if said.startswith(_FITTED) else said
            source = "; ".join(filter(None, (f"{_FITTED}{of} ({len(parameter.fitted_on)} tell it)", rest)))
            value = value_text(parameter)
            lines[number] = f'{found["key"]} = {{ value = {value}, kind = "measured", source = "{source}" }}'
    return "\n".join(lines) + "\n"


def value_text(parameter: Parameter) -> str:
    """Return a refitted value as files have it, to three digits."""
    if parameter.unit == "s":
        return f'"{parameter.refitted * 1e6:.3g}us"'
    return f'"{parameter.refitted / 1e9:.3g}GB/s"' if parameter.unit == "B/s" else f"{parameter.refitted:.3g}"


def error_samples(curves: Iterable[CurveErrors], *, doubtful: bool) -> tuple[interval.CurveErrorSamples, ...]:
    """Return the errors of predicted curves whose class is known."""
    samples = []
    for curve in curves:
        points = [point for point in curve.points if point.predicted_s]
        if curve.run is not None and points:
            sizes = tuple(point.size_bytes for point in points)
            errors = tuple(round(float(np.log(point.measured_s / point.predicted_s)), 4) for point in points)
            samples.append(interval.CurveErrorSamples(curve.id, curve.source, curve.run[:4], sizes, errors, doubtful))
    return tuple(samples)


SIZES_BYTES = tuple(2**power for power in range(3, 36))
"""Sizes at which set-ups are predicted; between them a time is on the line through both in logarithms."""

# What is written beside a set-up after it was measured.
_LATER = ("outlier_sizes_bytes", "quality", "doubt", "source_url")
_Times = tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...]


@dataclass(frozen=True, slots=True)
class SealedCurve:
    """Seconds predicted of one set-up at the first of `SIZES_BYTES`, and their bands; or why there are none."""

    id: str
    set_up: dict[str, Any]  # As its row gave it
    predicted_s: _Times = ()
    low_s: _Times = ()
    high_s: _Times = ()
    reason: str | None = None

    def points_of(self, curve: MeasuredCurve) -> tuple[Point, ...]:
        """Return the resampled points of a curve between the smallest and the largest sealed size."""
        sizes = SIZES_BYTES[: len(self.predicted_s)]
        points = resampled(curve.points, curve.machine.outlier_sizes_bytes if curve.machine else ())
        return tuple(point for point in points if sizes and sizes[0] <= point.size_bytes <= sizes[-1])


@dataclass(frozen=True, slots=True)
class Sealed(StrictFields):
    """What a sealed file holds."""

    date: str  # In UTC
    version: str  # Of s2sim
    curves: tuple[SealedCurve, ...]
    sha256: str = ""  # Of the rest

    def digest(self) -> str:
        """Return the SHA-256 of all but itself."""
        return hashlib.sha256(json.dumps(asdict(replace(self, sha256="")), sort_keys=True).encode()).hexdigest()


def seal(folder: str | None, file: Path, progress: ProgressWatcher = SILENT) -> list[str]:
    """Predict the set-ups of a folder's index, measured or not, write them to a file, and return what to say of it."""
    curves, predictor = read_folder(resolve_curves_folder(folder)), validate_curves.CurvePredictor()
    found = in_turn((_sealed_curve(curve, predictor) for curve in curves), len(curves), "set-ups", progress)
    sealed = Sealed(datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), s2sim.__version__, tuple(found))
    sealed = replace(sealed, sha256=sealed.digest())
    replace_file(file, f"{json.dumps(asdict(sealed), indent=1)}\n".encode())
    predicted = sum(curve.reason is None for curve in found)
    return [
        f"{file}: {predicted} of {len(found)} set-ups are predicted, at {len(SIZES_BYTES)} sizes each.",
        f"SHA-256 {sealed.sha256}, {sealed.date} UTC: publish it, measure, and run the same command again.",
        *[f"Not predicted: {curve.id}: {curve.reason}" for curve in found if curve.reason is not None],
    ]


def _sealed_curve(curve: MeasuredCurve, predictor: validate_curves.CurvePredictor) -> SealedCurve:
    if (machine := curve.machine) is None:
        return SealedCurve(curve.id, {}, reason=curve.problem)
    set_up = _set_up(machine)
    try:
        times_s = predictor.times_s(machine, SIZES_BYTES)
        run = predictor.run_class(machine)
    except S2SimError as error:
        return SealedCurve(curve.id, set_up, reason=str(error))
    bands = [(1.0, 1.0) if run is None else interval.shipped_error_model().around(run, size) for size in SIZES_BYTES]
    low_s, high_s = (
        tuple(time_s * end for time_s, end in zip(times_s, ends, strict=True)) for ends in zip(*bands, strict=True)
    )
    return SealedCurve(curve.id, set_up, tuple(times_s), low_s, high_s)


def _set_up(machine: MeasuredMachine) -> dict[str, Any]:
    return {each.name: getattr(machine, each.name) for each in fields(machine) if each.name not in _LATER}


def read_sealed(file: Path) -> Sealed:
    """Return a sealed file; `S2SimError` for one that was changed, or is none."""
    sealed = validated(Sealed, read_text(file).encode(), f"{file} is no file of sealed predictions", most=1)
    if sealed.digest() != sealed.sha256:
        raise S2SimError(f"{file}: its SHA-256 is not the one that it names: it was changed after it was sealed")
    return sealed


def score_sealed(folder: str | None, file: Path) -> ValidationResult:
    """Return the errors of sealed predictions against what a folder has measured since."""
    path, sealed = resolve_curves_folder(folder), read_sealed(file)
    known = {curve.id: curve for curve in sealed.curves}
    curves = read_folder(path)
    found = [_scored(curve, known.get(curve.id)) for curve in curves]
    notes = [f"predicted on {sealed.date} UTC by version {sealed.version}, SHA-256 {sealed.sha256}"]
    if beyond := sum(each.n_points - len(each.points) for each in found if each.predicted):
        notes.append(f"{format_number_of(beyond, 'point')} left out: smaller or larger than the sizes that were sealed")
    return replace(validate_curves.result_of_curves(path, curves, found), notes=tuple(notes))


def _scored(curve: MeasuredCurve, sealed: SealedCurve | None) -> CurveErrors:
    if curve.machine is None or curve.problem:
        return validate_curves.unpredicted_curve(curve, curve.problem)
    if sealed is None or sealed.reason is not None:
        return validate_curves.unpredicted_curve(curve, "it was not sealed" if sealed is None else f"{sealed.reason}")
    now = json.loads(json.dumps(_set_up(curve.machine)))
    if changed := [name for name, value in sealed.set_up.items() if now.get(name) != value]:
        reason = f"its row was changed after it was sealed: {', '.join(changed)}"
        return validate_curves.unpredicted_curve(curve, reason)
    points = sealed.points_of(curve)
    at = np.log(SIZES_BYTES[: len(sealed.predicted_s)])
    predicted_s, low_s, high_s = (
        np.exp(np.interp(np.log([point.size_bytes for point in points]), at, np.log(np.maximum(each, 1e-12)))).tolist()
        for each in (sealed.predicted_s, sealed.low_s, sealed.high_s)
    )
    pairs = [replace(point, predicted_s=time_s) for point, time_s in zip(points, predicted_s, strict=True)]
    held = [low <= point.measured_s <= high for point, low, high in zip(points, low_s, high_s, strict=True)]
    scored = score_curve(validate_curves.unpredicted_curve(curve, ""), pairs)
    return replace(scored, band_holds_share=float(np.mean(held)) if held else None)
