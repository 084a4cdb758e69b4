"""From logs and the name of a machine to constants of a library for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim import __version__
from s2sim.collectives.libraries.calibration import FittedRange, machine_text
from s2sim.provenance import run_record
from s2sim.study.calibrate.fit import fit_samples
from s2sim.study.calibrate.found import constants_of, errors_of, median_error, points_of
from s2sim.study.calibrate.predict import predictor_of
from s2sim.study.calibrate.profile_text import profile_text
from s2sim.study.calibrate.result import CalibrationResult
from s2sim.study.calibrate.runs import read_runs
from s2sim.study.calibrate.suggest import suggest
from s2sim.study.progress import SILENT
from s2sim.topology.describe import first_line
from s2sim.words import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.calibrate.fit import Fitted
    from s2sim.study.calibrate.predict import MachinePredictor
    from s2sim.study.calibrate.result import CalibratedPoint
    from s2sim.study.calibrate.runs import Measured, Run, Sample
    from s2sim.study.calibrate.spec import CalibrateSpec
    from s2sim.study.progress import Progress

_FEW = 5


def run_calibration(spec: CalibrateSpec, progress: Progress = SILENT) -> CalibrationResult:
    """Return the constants of a library that fit best to what logs measured of a machine.

    `S2SimError` for a log or a machine that cannot be read, and where they do not fit each other.
    """
    measured = read_runs(spec)
    machine = predictor_of(spec, measured.versions)
    runs = tuple(dict.fromkeys(sample.run for sample in measured.samples))
    workers = max((run.workers for run in runs), default=spec.workers or 1)
    cluster = machine.cluster(workers)
    fitted = fit_samples(machine, measured.samples, progress) if measured.samples else None
    suggestion = suggest(machine, runs, fitted, workers, progress) if spec.suggest else None
    constants = () if fitted is None else constants_of(fitted)
    points = () if fitted is None else points_of(fitted)
    before, after, held_out = (errors_of(points, name) for name in ("before_s", "after_s", "held_out_s"))
    profile = ""
    if fitted is not None:
        within = _within(spec, machine, measured, runs, points)
        written = list(zip(constants, (value for _, value in fitted.own), strict=True))
        profile = profile_text(machine.library, written, within, f"s2sim calibrate, s2sim {__version__}")
    return CalibrationResult(
        spec=spec,
        cluster=first_line(cluster),
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


def _within(
    spec: CalibrateSpec,
    machine: MachinePredictor,
    measured: Measured,
    runs: Sequence[Run],
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


def _notes(samples: Sequence[Sample], fitted: Fitted | None, runs: Sequence[Run]) -> list[str]:
    """Return what a reader must know of what was fitted to."""
    notes = []
    sizes = {sample.key for sample in samples}
    if fitted is not None and len(fitted.samples) < len(samples):
        notes.append(f"{number_of(len(samples) - len(fitted.samples), 'size')} left out at which nothing is sent")
    if 0 < len(sizes) < _FEW:
        notes.append(
            f"fitted to {number_of(len(sizes), 'size')} alone: five from the smallest to the largest tell more"
        )
    if any(run.one_process for run in runs):
        notes.append("one process launched on all GPUs of a node: simulate with launch=node what is launched so")
    return notes
