"""From logs and the name of a machine to constants of a library for it."""

from __future__ import annotations

from collections.abc import Sequence

from s2sim import __version__
from s2sim.experiment.progress import SILENT, ProgressWatcher
from s2sim.libraries.calibration import FittedRange, machine_text
from s2sim.provenance import run_record
from s2sim.topology.describe import summary_line
from s2sim.units import format_number_of
from s2sim.validation.calibrate_fit import (
    FitResult,
    calibrated_points,
    fit_samples,
    fitted_constants,
    median_error,
    median_errors,
    suggest,
)
from s2sim.validation.calibrate_result import CalibratedPoint, CalibrateSpec, CalibrationResult, profile_text
from s2sim.validation.calibrate_runs import (
    LogMeasurements,
    MachinePredictor,
    MeasuredRun,
    Sample,
    make_predictor,
    read_runs,
)

_FEW_POINTS = 5


def run_calibration(spec: CalibrateSpec, progress: ProgressWatcher = SILENT) -> CalibrationResult:
    """Return the constants of a library that fit best to what logs measured of a machine.

    `S2SimError` for a log or a machine that cannot be read, and where they do not fit each other.
    """
    measured = read_runs(spec)
    machine = make_predictor(spec, measured.versions)
    runs = tuple(dict.fromkeys(sample.run for sample in measured.samples))
    workers = max((run.workers for run in runs), default=spec.workers or 1)
    cluster = machine.cluster(workers)
    fitted = fit_samples(machine, measured.samples, progress) if measured.samples else None
    suggestion = suggest(machine, runs, fitted, workers, progress) if spec.suggest else None
    constants = () if fitted is None else fitted_constants(fitted)
    points = () if fitted is None else calibrated_points(fitted)
    before, after, held_out = (median_errors(points, name) for name in ("before_s", "after_s", "held_out_s"))
    profile = ""
    if fitted is not None:
        within = _fitted_range(spec, machine, measured, runs, points)
        written = list(zip(constants, (value for _, value in fitted.own), strict=True))
        profile = profile_text(machine.library, written, within, f"s2sim calibrate, s2sim {__version__}")
    return CalibrationResult(
        spec=spec,
        cluster=summary_line(cluster),
        constants=constants,
        points=points,
        before=before,
        after=after,
        held_out=held_out,
        library=machine.library,
        versions=measured.versions,
        suggestion=suggestion,
        profile=profile,
        notes=(*measured.notes, *_notes(measured.samples, fitted, runs)),
        provenance=run_record(
            spec=spec.to_json(),
            inputs={"logs": list(measured.origins), "library": machine.library, "topology": machine.topology},
            measured=["times of the logs"],
            assumed=["times predicted: simulated, with constants that the logs' times are fitted by"],
        ),
    )


def _fitted_range(
    spec: CalibrateSpec,
    machine: MachinePredictor,
    measured: LogMeasurements,
    runs: Sequence[MeasuredRun],
    points: Sequence[CalibratedPoint],
) -> FittedRange:
    sizes = [point.size_bytes for point in points]
    return FittedRange(
        topology=machine_text(machine.topology, spec.overrides),
        collectives=tuple(sorted({run.kind for run in runs})),
        workers=tuple(sorted({run.workers for run in runs})),
        nodes=tuple(sorted({machine.nodes(run.workers) for run in runs})),
        smallest_bytes=min(sizes),
        largest_bytes=max(sizes),
        points=len(points),
        median_error_before=median_error(points, "before_s") or 0.0,
        median_error_after=median_error(points, "after_s") or 0.0,
        median_error_held_out=median_error(points, "held_out_s"),
        versions=measured.versions,
        logs=measured.origins,
    )


def _notes(samples: Sequence[Sample], fitted: FitResult | None, runs: Sequence[MeasuredRun]) -> list[str]:
    notes = []
    sizes = {sample.key for sample in samples}
    if fitted is not None and len(fitted.samples) < len(samples):
        notes.append(
            f"{format_number_of(len(samples) - len(fitted.samples), 'size')} left out at which nothing is sent"
        )
    if 0 < len(sizes) < _FEW_POINTS:
        notes.append(
            f"fitted to {format_number_of(len(sizes), 'size')} alone: five from the smallest to the largest tell more"
        )
    if any(run.one_process for run in runs):
        notes.append("one process launched on all GPUs of a node: simulate with launch=node what is launched so")
    return notes
