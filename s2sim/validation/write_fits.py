"""Writes constants and 90 % intervals fitted to the public curves into the files of libraries."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from s2sim.errors import S2SimError
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.files import data_directory, read_bytes
from s2sim.uncertainty.constant_fit import clear_constant_cache
from s2sim.uncertainty.interval import (
    VERSION,
    CurveErrorSamples,
    PredictionErrors,
    error_model_path,
    shipped_error_model,
)
from s2sim.validation.curve import MeasuredCurve, read_folder, resolve_curves_folder
from s2sim.validation.curve_result import CurveErrors, Parameter
from s2sim.validation.harness import in_turn
from s2sim.validation.validate_curves import (
    ConstantFits,
    fit_constants,
    fitted_parameters,
    is_fit_for_calibration,
    predict_curves,
)

# Constants that move by less are where they are.
_CONVERGED = 0.01
_FITTED = "fitted on "
_MEASURED = re.compile(r'^(?P<key>[\w.-]+) = \{ value = [^,]+, kind = "measured", source = "(?P<source>.*)" \}$')


def write_fits(progress: ProgressWatcher = SILENT) -> list[str]:
    """Fit constants to the public curves until they converge; write them and the intervals; return the changes.

    Terms are computed again at the constants of each round.
    """
    curves = [curve for curve in read_folder(resolve_curves_folder(None)) if is_fit_for_calibration(curve)]
    changed: dict[str, str] = {}
    fits, found = fit_curves(curves, progress)
    for _ in range(4):
        if float(np.abs(fits.whole).max()) < _CONVERGED:
            break
        changed |= _write_constants(fitted_parameters(fits), len(found), len({curve.source for curve in found}))
        fits, found = fit_curves(curves, progress)
    bands = PredictionErrors(
        version=VERSION,
        made_by="s2sim dev validate --write",
        curves_sha256=hashlib.sha256(read_bytes(resolve_curves_folder(None) / "index.csv")).hexdigest(),
        curves=held_out_error_curves(fits, found),
    )
    error_model_path().write_text(_json(bands), "utf-8")
    shipped_error_model.cache_clear()
    return [*changed.values(), f"{error_model_path().name}: bands of {len(found)} curves"]


def fit_curves(
    curves: Sequence[MeasuredCurve], progress: ProgressWatcher = SILENT
) -> tuple[ConstantFits, list[CurveErrors]]:
    """Return fits to curves as the constants are now, and the curves as predicted by these."""
    predicted = in_turn(predict_curves(curves, tell=True), len(curves), "curves", progress)
    if len(predicted) < len(curves):
        raise KeyboardInterrupt
    found = [curve for curve, _ in predicted]
    calibration = [point for _, points in predicted for point in points]
    fits = fit_constants(calibration, sorted({curve.source for curve in found}))
    if fits is None:
        raise S2SimError("no constant of a library was measured: there is nothing to fit")
    return fits, found


def _write_constants(parameters: tuple[Parameter, ...], curves: int, sources: int) -> dict[str, str]:
    lines: dict[str, str] = {}
    for library in dict.fromkeys(parameter.library for parameter in parameters):
        path = data_directory("libraries") / f"{library}.toml"
        own = {parameter.name: parameter for parameter in parameters if parameter.library == library}
        text = replace_values(path.read_text("utf-8"), own, f"{curves} public curves of {sources} sources")
        path.write_text(text, "utf-8")
        for name, parameter in own.items():
            lines[parameter.name + library] = f"{path.name}: {name} = {value_text(parameter)}"
    clear_constant_cache()
    return lines


def replace_values(text: str, parameters: Mapping[str, Parameter], of: str) -> str:
    """Return the text of a library's file with other values of some constants, each with what it was fitted on.

    What a source says beside that stays.
    """
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


def held_out_error_curves(fits: ConstantFits, curves: Sequence[CurveErrors]) -> tuple[CurveErrorSamples, ...]:
    """Return the errors of each curve, predicted without its source."""
    times_s = fits.left_out_s
    samples = []
    for curve in curves:
        points = [point for point in curve.points if (curve.id, point.size_bytes) in times_s]
        if curve.run is not None and points:
            errors = (float(np.log(p.measured_s / times_s[curve.id, p.size_bytes])) for p in points)
            sizes, rounded = tuple(p.size_bytes for p in points), tuple(round(error, 4) for error in errors)
            samples.append(CurveErrorSamples(curve.id, curve.source, curve.run, sizes, rounded))
    return tuple(samples)


def _json(bands: PredictionErrors) -> str:
    value = asdict(bands)
    parts = [f'"{key}": {json.dumps(value[key])}' for key in ("version", "made_by", "curves_sha256")]
    parts.append('"curves": [\n  ' + ",\n  ".join(map(json.dumps, value["curves"])) + "\n ]")
    return "{\n " + ",\n ".join(parts) + "\n}\n"
