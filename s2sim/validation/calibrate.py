"""Calibration: constants of a library fitted to logs of one machine, with a pull to the shipped ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from s2sim import __version__
from s2sim.arrays import Floats, Mask
from s2sim.collectives import Kind
from s2sim.errors import OptionError
from s2sim.experiment.cluster_spec import accept_fields_of
from s2sim.experiment.json_form import ResultForm
from s2sim.experiment.progress import SILENT, ProgressWatcher, watched
from s2sim.libraries.constants import ConstantOverrides
from s2sim.libraries.library import FittedRange, machine_text
from s2sim.provenance import run_record
from s2sim.topology.describe import summary_line
from s2sim.traffic.nccl_tests import program_of
from s2sim.uncertainty import machine_fit
from s2sim.uncertainty.constant_fit import CalibrationPoint, CandidateSchedule, FitRules, TermModel, fit
from s2sim.units import PS_PER_S, format_number_of
from s2sim.validation.calibrate_runs import (
    Key,
    MachinePredictor,
    MeasuredRun,
    Sample,
    ScheduleLinearisations,
    make_predictor,
    read_runs,
)
from s2sim.validation.calibrate_spec import CalibrateSpec
from s2sim.validation.compare_log_result import LARGE_BYTES

NOISE = 0.01
"""Standard deviation of the logarithm of a time that nccl-tests measures again, the mean of twenty iterations."""

# Terms are computed again at the fitted constants, at most this often, or until simulation agrees with them.
_PASSES, _CONVERGED = 5, 0.003
# Samples determine a constant that moves by more, or whose deviation shrinks below this share.
_MOVED, _SURER = 0.005, 0.9
# Points that are left out one by one; of more, some together.
_MAX_FOLDS = 24
SIZES_BYTES = tuple(2**power for power in range(10, 31, 2))
"""Sizes of which predictions are to be sure, and out of which one is suggested: 1 KiB to 1 GiB."""

KINDS: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter")
"""Collectives likewise, in addition to those of the logs."""


@dataclass(frozen=True, slots=True)
class CalibratedPoint:
    """One measured time beside what is predicted of it."""

    log: str
    line: int
    collective: str
    workers: int
    size_bytes: int
    measured_s: float
    before_s: float  # With the shipped constants
    after_s: float  # With the fitted ones
    held_out_s: float | None  # With those fitted without it; None where it is the only one


@dataclass(frozen=True, slots=True)
class MedianError:
    """Median over points of |ln(predicted/measured)|, from 1 MiB on and below; None where there are none."""

    large: float | None
    small: float | None


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What to measure next, and how nccl-tests does."""

    collective: str
    workers: int
    size_bytes: int
    # Shares by which 90 % of predicted times differ at most from those that nccl-tests would measure, on the mean over
    # collectives and sizes: as it is, and once that is measured
    band_now: float
    band_after: float
    command: str


@dataclass(frozen=True, slots=True, repr=False)
class CalibrationResult(ResultForm):
    """What `s2sim.validation.calibrate.run_calibration` returns."""

    spec: CalibrateSpec
    cluster: str
    constants: tuple[machine_fit.FittedConstant, ...]
    points: tuple[CalibratedPoint, ...]
    before: MedianError  # With the shipped constants
    after: MedianError  # With the fitted ones
    held_out: MedianError  # Of each point with those fitted without it
    library: str
    versions: tuple[str, ...]
    suggestion: Suggestion | None
    profile: str  # Text of a file for ``--library``; empty where nothing was measured
    notes: tuple[str, ...]
    provenance: dict[str, Any]


@accept_fields_of(CalibrateSpec)
def run_calibration(
    spec: CalibrateSpec | None = None, progress: ProgressWatcher = SILENT, **options: Any
) -> CalibrationResult:
    """Fit constants of a library to logs of one machine.

    `S2SimError` for logs that cannot be read, and where they do not fit each other.
    """
    spec = CalibrateSpec.from_keywords(spec, {}, options)
    measured = read_runs(spec)
    machine = make_predictor(spec, measured.versions)
    of_logs = (*measured.notes, *measured.notes_on(machine))
    runs = tuple(dict.fromkeys(sample.run for sample in measured.samples))
    workers = max((run.workers for run in runs), default=spec.workers or 1)
    cluster = machine.cluster(workers)
    fitted = fit_samples(machine, measured.samples, progress) if measured.samples else None
    suggestion = suggest(machine, runs, fitted, workers, progress) if spec.suggest else None
    constants: tuple[machine_fit.FittedConstant, ...] = ()
    points: tuple[CalibratedPoint, ...] = ()
    profile = ""
    if fitted is not None:
        deviations = np.sqrt(np.diag(fitted.covariance)).tolist()
        found = zip(fitted.constants, fitted.logs.tolist(), deviations, fitted.is_determined, strict=True)
        constants = tuple(each.fitted(np.exp(each.interval(log, sure))) for each, log, sure, known in found if known)
        points = fitted.points
        sizes = [point.size_bytes for point in points]
        held_out = median_error(points, "held_out_s")
        within = FittedRange(
            topology=machine_text(machine.topology, spec.overrides),
            collectives=tuple(sorted({run.kind for run in runs})),
            workers=tuple(sorted({run.workers for run in runs})),
            nodes=tuple(sorted({machine.nodes(run.workers) for run in runs})),
            smallest_bytes=min(sizes),
            largest_bytes=max(sizes),
            points=len(points),
            median_error_before=median_error(points, "before_s") or 0.0,
            median_error_after=median_error(points, "after_s") or 0.0,
            # The last digits are those of a processor.
            median_error_held_out=None if held_out is None else float(f"{held_out:.4g}"),
            versions=measured.versions,
            logs=measured.origins,
        )
        written = list(zip(constants, (value for _, value in fitted.own), strict=True))
        origin = f"s2sim dev calibrate, s2sim {__version__}"
        profile = machine_fit.profile_text(machine.library, written, within, origin)
    return CalibrationResult(
        spec=spec,
        cluster=summary_line(cluster),
        constants=constants,
        points=points,
        before=median_errors(points, "before_s"),
        after=median_errors(points, "after_s"),
        held_out=median_errors(points, "held_out_s"),
        library=machine.library,
        versions=measured.versions,
        suggestion=suggestion,
        profile=profile,
        notes=(*of_logs, *_notes(measured.samples, fitted)),
        provenance=run_record(
            spec=spec.to_json(),
            inputs={"logs": list(measured.origins), "library": machine.library, "topology": machine.topology},
            named=spec.to_json(),
            measured=["times of the logs"],
            assumed=["times predicted: simulated, with constants that the logs' times are fitted by"],
        ),
    )


def _notes(samples: Sequence[Sample], fitted: "FitResult | None") -> list[str]:
    notes = []
    sizes = {sample.key for sample in samples}
    if fitted is not None and len(fitted.points) < len(samples):
        notes.append(f"{format_number_of(len(samples) - len(fitted.points), 'size')} left out at which nothing is sent")
    if 0 < len(sizes) < 5:
        few = format_number_of(len(sizes), "size")
        notes.append(f"fitted to {few} alone: five from the smallest to the largest tell more")
    points = () if fitted is None else fitted.points
    for name, where in (("large", "from 1 MiB on"), ("small", "below 1 MiB")):
        shipped, left_out = (getattr(median_errors(points, each), name) for each in ("before_s", "held_out_s"))
        # By less than the noise of measurements they are equal.
        if left_out is not None and left_out > shipped + NOISE:
            off = f"points left out are off by {left_out:.3f} {where}, with the shipped constants by {shipped:.3f}"
            notes.append(f"{off}: the fitted ones are likely worse than these there, measure more sizes")
    return notes


@dataclass(frozen=True, slots=True, eq=False)
class FitResult:
    """Constants of a library for one machine, n of them, fitted to samples."""

    points: tuple[CalibratedPoint, ...]  # The samples with their predictions
    constants: tuple[machine_fit.FittableConstant, ...]
    # logs, covariance: logarithms of how many times as large as shipped they are
    logs: Floats
    covariance: Floats
    is_determined: Mask  # Which of them the samples depend on: the others are as shipped
    own: ConstantOverrides  # These, as a library's file has them


def fit_samples(machine: MachinePredictor, measured: Sequence[Sample], progress: ProgressWatcher) -> FitResult:
    """Return the constants that fit best to the samples that take time in simulation."""

    def expanded(samples: Sequence[Sample], own: ConstantOverrides) -> dict[Key, dict[str, CandidateSchedule]]:
        found = {}
        for key in _distinct_keys(samples):
            found[key] = machine.candidates(*key, own)
            progress.advance()
        return found

    def fastest_s(samples: Sequence[Sample]) -> list[float]:
        return [min(each.duration_ps for each in schedules[sample.key].values()) / PS_PER_S for sample in samples]

    progress.start((_PASSES + 1) * len(_distinct_keys(measured)), "taking predictions apart")
    schedules = expanded(measured, ())
    samples = [sample for sample, time_s in zip(measured, fastest_s(measured), strict=True) if time_s]
    if not samples:
        raise OptionError("sizes are so small that nothing is sent: measure larger ones")
    parts = [part for sample in samples for contender in schedules[sample.key].values() for part in contender.parts]
    constants = machine_fit.fittable_constants(machine.library, {name for _, powers in parts for name, _ in powers})
    if not constants:
        raise OptionError(f"what was measured depends on no constant of {machine.library} that a fit could find")
    names = [constant.name for constant in constants]
    before_s = fastest_s(samples)
    spread = np.array([constant.spread for constant in constants])
    highest = np.array([constant.highest for constant in constants])
    rules, weights = FitRules(np.zeros(len(names)), highest, 1 / spread), np.full(len(samples), NOISE**-2)
    cuts, logs = ScheduleLinearisations(), np.zeros(len(names))
    for _ in range(_PASSES):
        for key in _distinct_keys(samples):
            cuts.add(key, schedules[key], dict(zip(names, logs.tolist(), strict=True)))
        model = cuts.model(samples, names)
        logs = fit(model, rules, weights)
        times = zip(constants, np.exp(logs).tolist(), strict=True)
        own = tuple((each.name, each.as_written(each.value * factor)) for each, factor in times)
        schedules = expanded(samples, own)
        if np.abs(np.log(np.array(fastest_s(samples)) / model.predicted_s(logs))).max() < _CONVERGED:
            break
    covariance = machine_fit.covariance_of(model.slopes(logs), spread, model.errors(logs), NOISE)
    known = (np.abs(logs) > _MOVED) | (np.sqrt(np.diag(covariance)) < _SURER * spread)
    own = tuple(each for each, telling in zip(own, known, strict=True) if telling)
    after = {key: machine.time_s(*key, own) for key in _distinct_keys(samples)}
    held_out_s = _held_out(model, rules, weights, samples)
    progress.stop()
    points = tuple(
        CalibratedPoint(
            *(sample.log, sample.line, sample.run.kind, sample.run.workers, sample.size_bytes, sample.measured_s),
            *(before, after[sample.key], held_out),
        )
        for sample, before, held_out in zip(samples, before_s, held_out_s, strict=True)
    )
    return FitResult(points, constants, logs, covariance, known, own)


def _held_out(model: TermModel, rules: FitRules, weights: Floats, samples: Sequence[Sample]) -> list[float | None]:
    """Return the seconds of every sample by constants that were fitted without all of its size."""
    found: list[float | None] = [None] * len(samples)
    fold = {key: place % _MAX_FOLDS for place, key in enumerate(_distinct_keys(samples))}
    folds = np.array([fold[sample.key] for sample in samples], np.int64)
    for number in np.unique(folds) if len(fold) > 1 else ():
        left_out = folds == number
        predicted_s = model.predicted_s(fit(model, rules, np.where(left_out, 0.0, weights)))
        for place in np.flatnonzero(left_out):
            found[place] = float(predicted_s[place])
    return found


def _distinct_keys(samples: Sequence[Sample]) -> list[Key]:
    return list(dict.fromkeys(sample.key for sample in samples))


def median_errors(points: Sequence[CalibratedPoint], name: str) -> MedianError:
    """Return the medians of a prediction's errors, by size."""
    large = [point for point in points if point.size_bytes >= LARGE_BYTES]
    small = [point for point in points if point.size_bytes < LARGE_BYTES]
    return MedianError(median_error(large, name), median_error(small, name))


def median_error(points: Sequence[CalibratedPoint], name: str) -> float | None:
    """Return the median of a prediction's errors; None where there are none."""
    pairs = [(getattr(point, name), point.measured_s) for point in points]
    errors = [abs(np.log(predicted / measured)) for predicted, measured in pairs if predicted]
    return float(np.median(errors)) if errors else None


def suggest(
    machine: MachinePredictor,
    runs: Sequence[MeasuredRun],
    fitted: FitResult | None,
    workers: int,
    progress: ProgressWatcher,
) -> Suggestion:
    """Return what to measure next for the surest predictions over ``workers`` ranks; ``fitted`` is None at first."""
    one_process = bool(runs) and all(run.one_process for run in runs)
    kinds = tuple(dict.fromkeys([*(run.kind for run in runs), *KINDS]))
    counts = dict.fromkeys([workers, *(run.workers for run in runs)])
    if (in_node := int(np.bincount(machine.cluster(workers).node_of_rank).max())) > 1:
        counts[in_node] = None
    choices = [(MeasuredRun(kind, n, one_process), size) for kind in kinds for n in counts for size in SIZES_BYTES]
    own: ConstantOverrides = () if fitted is None else fitted.own
    points = [
        CalibrationPoint("", "", size_bytes, 1.0, False, tuple(machine.candidates(run, size_bytes, own).values()))
        for run, size_bytes in watched(progress, "looking for what to measure", choices)
    ]
    names = {name for each in points for way in each.candidates for _, powers in way.parts for name, _ in powers}
    constants = machine_fit.fittable_constants(machine.library, names)
    slopes = TermModel(points, [constant.name for constant in constants]).slopes(np.zeros(len(constants)))
    covariance = np.diag([constant.spread**2 for constant in constants])
    if fitted is not None:
        # Constants without measurements keep their prior variance.
        here, there = ([constant.name for constant in each] for each in (constants, fitted.constants))
        _, into, out_of = np.intersect1d(here, there, return_indices=True)
        covariance[np.ix_(into, into)] = fitted.covariance[np.ix_(out_of, out_of)]
    wanted = slopes[[run.workers == workers for run, _ in choices]]
    # Covariance of choices with constants: how much measuring one choice reduces the variance of the others.
    shared = slopes @ covariance
    variance = np.einsum("ij,ij->i", shared, slopes)
    now = np.einsum("ij,jk,ik->i", wanted, covariance, wanted)
    reduction = (wanted @ shared.T) ** 2 / (variance + NOISE**2)
    after = (now[:, None] - reduction).mean(axis=0)
    best = int(after.argmin())
    run, size_bytes = choices[best]
    return Suggestion(
        collective=run.kind,
        workers=run.workers,
        size_bytes=size_bytes,
        band_now=_half_width_90(float(now.mean())),
        band_after=_half_width_90(max(0.0, float(after[best]))),
        command=_command(machine, run, size_bytes),
    )


def _half_width_90(variance: float) -> float:
    """Return the half-width of the 90 % interval of times, as a share.

    >>> round(_half_width_90(0.01), 3)
    0.179
    """
    return float(np.expm1(machine_fit.WITHIN_90 * np.sqrt(variance)))


def _command(machine: MachinePredictor, run: MeasuredRun, size_bytes: int) -> str:
    nodes = machine.nodes(run.workers)
    gpus = -(-run.workers // nodes)
    processes = nodes if run.one_process else run.workers
    launcher = "" if processes == 1 else f"mpirun -np {processes} --map-by ppr:{processes // nodes or 1}:node "
    threads = gpus if run.one_process else 1
    size = next(f"{size_bytes >> at}{unit}" for at, unit in ((30, "G"), (20, "M"), (10, "K")) if size_bytes >> at)
    return f"{launcher}{program_of(run.kind)} -b {size} -e {size} -g {threads} -w 20 -n 100"
