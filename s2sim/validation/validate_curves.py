"""Predicts every curve of a folder, fits constants to curves, and scores both, also without each source."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from s2sim.arrays import Floats
from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.timer import AUTO, Timer
from s2sim.errors import S2SimError
from s2sim.experiment.progress import INTERRUPTED_NOTE, SILENT, ProgressWatcher
from s2sim.uncertainty import constant_fit
from s2sim.uncertainty.interval import RunClass, run_class
from s2sim.units import PS_PER_S
from s2sim.validation import curve_result
from s2sim.validation.curve import (
    INDEX,
    MeasuredCurve,
    MeasuredMachine,
    collective_kind,
    demand_of_row,
    is_large,
    pipelined_messages,
    read_folder,
    requested_algorithm,
    resampled,
    resolve_curves_folder,
)
from s2sim.validation.curve_machine import machine_library, machine_timer
from s2sim.validation.harness import NOT_YET, folder_name, in_turn, origin_of

# A schedule slower than the fastest by this factor is not the fastest with other constants either.
_CANDIDATE_FACTOR = 1.3
# Smaller median errors are not explained.
_LARGE_ERROR = 0.2
_FITTED = (
    "links are those of the catalogue, latencies those of hardware, and what NCCL adds stands in libraries/nccl.toml; "
    "constants of that are fitted to public curves, so that errors of sources left out of a fit tell more of others; "
    "the algorithm and protocol are those that NCCL estimates to be fastest, unless the index names one"
)
# A point determines a constant if the derivative of their logarithms is at least this.
_MIN_POINTS = 0.1


class CurvePredictor:
    """Predicts curves; equal machines are built once."""

    def __init__(self) -> None:
        self._timers: dict[object, Timer] = {}

    def times_s(self, machine: MeasuredMachine, sizes_bytes: Sequence[int]) -> list[float]:
        """Return the predicted time of each size in seconds; `S2SimError` says why there is none."""
        timer, demands = self._timer_and_demands(machine, sizes_bytes)
        messages = pipelined_messages(machine)
        return [timed.duration_ps / messages / PS_PER_S for timed in timer.time_all(demands)]

    def candidates(
        self, machine: MeasuredMachine, sizes_bytes: Sequence[int]
    ) -> list[tuple[constant_fit.CandidateSchedule, ...]]:
        """Return for each size the schedules that may be fastest with other constants; the first is fastest now."""
        timer, demands = self._timer_and_demands(machine, sizes_bytes)
        found = [timer.candidates(demand, _CANDIDATE_FACTOR) for demand in demands]
        where = timer.cluster, getattr(timer.profile, "library", ""), pipelined_messages(machine)
        return [tuple(constant_fit.candidate_of(timed, *where) for timed in each) for each in found]

    def run_class(self, machine: MeasuredMachine) -> RunClass | None:
        """Return the class of a machine's collective."""
        cluster = machine_timer(machine, self._timers).cluster
        return run_class(cluster, machine_library(machine), collective_kind(machine))

    def _timer_and_demands(self, machine: MeasuredMachine, sizes_bytes: Sequence[int]) -> tuple[Timer, list[Demand]]:
        kind = collective_kind(machine)
        algorithm = requested_algorithm(machine, kind)
        base = machine_timer(machine, self._timers)
        if algorithm != AUTO:
            make_algorithm(algorithm, kind)
        timer = Timer(base.cluster, algorithm, base.ways, machine_library(machine))
        return timer, [demand_of_row(machine, kind, size) for size in sizes_bytes]


def likely_error_source(machine: MeasuredMachine, large: float | None, small: float | None) -> tuple[str, ...]:
    """Return the reasons for signed errors at large and at small sizes, the likeliest first."""
    reasons = []
    all_reduces = machine.collective == "all_reduce"
    if large is not None and large > _LARGE_ERROR and machine.has_nvswitch and all_reduces:
        reasons.append("switches that reduce (NVLS) reach another share of the rate than others of their generation")
    if large is not None and large < -_LARGE_ERROR:
        several = machine.nodes > 1
        if several and machine.nic_path in ("host-bridge", "staged"):
            reasons.append(
                f"what the way between GPU and interface ({machine.nic_path}) forwards is a share of its class"
            )
        if machine.p2p == "no":
            reasons.append("copies through host memory between GPUs of a node are a share of their class")
        if several and all_reduces and not machine.algorithm:
            reasons.append("the fastest algorithm is taken, which the library need not choose")
        if not reasons:
            reasons.append("its software reaches another share of the rate than others of its class")
    if small is not None and small < -_LARGE_ERROR:
        software = machine.nodes > 1 and machine.transport in ("tcp", "tcpx", "tcpxo", "efa")
        latency = f"the latency of the software of {machine.transport} is that of its class"
        reasons.append(latency if software else "launches and hops are those of their class")
    return tuple(reasons)


def predict_curves(
    curves: Sequence[MeasuredCurve], *, tell: bool
) -> Iterator[tuple[curve_result.CurveErrors, list[constant_fit.CalibrationPoint]]]:
    """Yield each curve with its errors, and with ``tell`` its points by constants where these may be fitted to it."""
    predictor = CurvePredictor()
    for curve in curves:
        try:
            yield _predict_curve(curve, predictor, tell=tell and is_fit_for_calibration(curve))
        except S2SimError as error:
            yield unpredicted_curve(curve, str(error)), []


def is_fit_for_calibration(curve: MeasuredCurve) -> bool:
    """Return whether constants may be fitted to a curve: it is good and without a doubt."""
    return curve.machine is not None and curve.machine.quality == "good" and not curve.machine.doubt


def _predict_curve(
    curve: MeasuredCurve, predictor: CurvePredictor, *, tell: bool
) -> tuple[curve_result.CurveErrors, list[constant_fit.CalibrationPoint]]:
    if curve.machine is None or curve.problem:
        raise S2SimError(curve.problem)
    if not (points := resampled(curve.points, curve.machine.outlier_sizes_bytes)):
        raise S2SimError("no size is within 20 % of a power of two and no hiccup")
    sizes = [point.size_bytes for point in points]
    calibration: list[constant_fit.CalibrationPoint] = []
    if tell:
        candidates = predictor.candidates(curve.machine, sizes)
        times_s = [each[0].duration_ps / PS_PER_S for each in candidates]
        calibration = [
            constant_fit.CalibrationPoint(
                curve.id, curve.machine.source, p.size_bytes, p.measured_s, is_large(p.size_bytes), each
            )
            for p, each, time_s in zip(points, candidates, times_s, strict=True)
            if time_s
        ]
    else:
        times_s = predictor.times_s(curve.machine, sizes)
    pairs = [replace(point, predicted_s=time_s) for point, time_s in zip(points, times_s, strict=True)]
    found = curve_result.score_curve(unpredicted_curve(curve, ""), pairs)
    why = likely_error_source(curve.machine, found.signed_log_error_large, found.signed_log_error_small)
    return replace(found, likely_why=why, run=predictor.run_class(curve.machine)), calibration


def unpredicted_curve(curve: MeasuredCurve, reason: str) -> curve_result.CurveErrors:
    """Return a curve that is not predicted, and why."""
    machine = curve.machine
    same = ("source_url", "transport", "collective", "launch", "algorithm", "quality")
    as_its_row: dict[str, Any] = {name: getattr(machine, name, "") for name in same}
    return curve_result.CurveErrors(
        id=curve.id,
        source=machine.source if machine else curve.id,
        gpu=machine.gpu_model if machine else "",
        ranks=machine.ranks if machine else None,
        doubt=(machine.doubt or None) if machine else None,
        predicted=False,
        reason=reason,
        **as_its_row,
        n_points=len(resampled(curve.points, machine.outlier_sizes_bytes if machine else ())),
    )


def run_validation(
    folder: str | None = None, progress: ProgressWatcher = SILENT, *, fit: bool = True
) -> curve_result.ValidationResult:
    """Return the errors of predictions of a folder's curves; after Ctrl-C those that are finished.

    Parameters
    ----------
    folder : str, optional
        One with an index of curves; without it the public ones. `S2SimError` where the index cannot be read.
    progress : ProgressWatcher
        Called as the work advances.
    fit : bool
        Whether constants are fitted again, to these curves and the public ones, which are then predicted too, and
        without each source of the folder.
    """
    path = resolve_curves_folder(folder)
    curves = read_folder(path)
    others: list[MeasuredCurve] = []
    if fit and folder is not None:
        ids = {curve.id for curve in curves}
        public = read_folder(resolve_curves_folder(None))
        others = [curve for curve in public if curve.id not in ids and is_fit_for_calibration(curve)]
    predicted = in_turn(predict_curves([*curves, *others], tell=fit), len(curves) + len(others), "curves", progress)
    complete = len(predicted) == len(curves) + len(others)
    found = [curve for curve, _ in predicted[: len(curves)]]
    found += [unpredicted_curve(curve, NOT_YET) for curve in curves[len(found) :]]
    calibration = [point for _, points in predicted for point in points]
    counted = [curve for curve in found if curve.counts]
    own_sources = list(dict.fromkeys(curve.source for curve in counted))
    fits = fit_constants(calibration, own_sources) if fit and complete else None
    left_out = None if fits is None else leave_one_out_errors(fits, counted)
    return replace(
        result_of_curves(path, curves, [curve_result.add_interval_coverage(curve, left_out) for curve in found]),
        parameters=() if fits is None else fitted_parameters(fits),
        leave_one_source_out=left_out,
        notes=(_FITTED,) if complete else (_FITTED, INTERRUPTED_NOTE),
        complete=complete,
    )


def result_of_curves(
    path: Path, curves: Sequence[MeasuredCurve], found: Sequence[curve_result.CurveErrors]
) -> curve_result.ValidationResult:
    """Return the statistics of the errors of a folder's curves, to which nothing is fitted."""
    counted = [curve for curve in found if curve.counts]
    readable = [curve for curve in found if curve.quality]
    measured = [[curve.id, [[p.size_bytes, p.measured_s] for p in curve.points]] for curve in curves]
    return curve_result.ValidationResult(
        what=f"{len(readable)} curves of {len({curve.source for curve in readable})} sources in {folder_name(path)}",
        overall=curve_result.group_errors("good", counted),
        apart=curve_result.Apart(
            curve_result.group_errors("doubtful", [each for each in found if each.quality == "good" and each.doubt]),
            curve_result.group_errors("suspect", [each for each in found if each.quality == "suspect"]),
            curve_result.group_errors("cannot be read", [each for each in found if not each.quality]),
        ),
        by_source=curve_result.grouped(counted, "source"),
        by_class=curve_result.by_class(counted),
        curves=tuple(found),
        parameters=(),
        leave_one_source_out=None,
        notes=(),
        provenance=origin_of("curves", "index_sha256", path / INDEX, "the curves", points=measured),
        complete=True,
    )


@dataclass(frozen=True, slots=True, eq=False)
class ConstantFits:
    """Logarithms of constants over those shipped, float64 (n,): of all points, and without each source."""

    model: constant_fit.TermModel
    constants: tuple[constant_fit.MeasuredConstant, ...]
    rules: constant_fit.FitRules
    whole: Floats
    without: dict[str, Floats]

    def left_out(self, curves: Sequence[curve_result.CurveErrors]) -> list[curve_result.CurveErrors]:
        """Return those of curves that are predicted, as constants fitted without their sources predict them."""
        times_s: dict[tuple[str, int], float] = {}
        for source, logs in self.without.items():
            own = self.model.of_source(source)
            for row, time_s in zip(np.flatnonzero(own), self.model.predicted_s(logs)[own].tolist(), strict=True):
                times_s[self.model.points[row].curve, self.model.points[row].size_bytes] = time_s
        return [
            curve_result.score_curve(
                curve, [replace(p, predicted_s=times_s.get((curve.id, p.size_bytes), 0.0)) for p in curve.points]
            )
            for curve in curves
            if curve.predicted
        ]


def fit_constants(points: Sequence[constant_fit.CalibrationPoint], sources: Sequence[str]) -> ConstantFits | None:
    """Return fits to points, and without each of some sources; None if points depend on no constant."""
    names = {name for point in points for each in point.candidates for _, powers in each.parts for name, _ in powers}
    if not (constants := constant_fit.fittable_library_constants(names)):
        return None
    model = constant_fit.TermModel(points, [constant.owned for constant in constants])
    rules = constant_fit.fit_rules(constants)
    weights = constant_fit.point_weights(model)
    found = constant_fit.fit(model, rules, weights), constant_fit.leave_one_out(model, rules, weights, sources)
    return ConstantFits(model, constants, rules, *found)


def fitted_parameters(fits: ConstantFits) -> tuple[curve_result.Parameter, ...]:
    """Return each constant with its sources, and its drift when one of them is left out."""
    steep = np.abs(fits.model.slopes(np.zeros(len(fits.constants)))) >= _MIN_POINTS
    # How much larger the error of left-out sources is, one voice a source, with each constant at its prior.
    model, weights = fits.model, constant_fit.point_weights(fits.model)
    more = np.zeros(len(fits.constants))
    for source, logs in fits.without.items():
        own = model.of_source(source)
        tried = [logs, *constant_fit.each_at_prior(model, fits.rules, np.where(own, 0.0, weights), logs)]
        error, *errors = [float((weights * np.abs(model.errors(each)))[own].sum()) for each in tried]
        more += np.array(errors) - error
    worths, found = (more / weights.sum()).tolist(), []
    for number, constant in enumerate(fits.constants):
        telling = [fits.model.points[row] for row in np.flatnonzero(steep[:, number])]
        sources = tuple(dict.fromkeys(point.source for point in telling))
        logs_of = {source: fits.without[source][number] for source in sources if source in fits.without}
        without = {source: float(constant.value * np.exp(log)) for source, log in logs_of.items()}
        drift = curve_result.Drift(min(without.values()), max(without.values()), without) if without else None
        refitted = float(constant.value * np.exp(fits.whole[number]))
        curves = len({point.curve for point in telling})
        values = asdict(constant) | {"refitted": refitted, "fitted_on": sources, "curves": curves, "drift": drift}
        found.append(curve_result.Parameter(**values, worth=worths[number]))
    return tuple(found)


def leave_one_out_errors(fits: ConstantFits, curves: Sequence[curve_result.CurveErrors]) -> curve_result.LeftOut:
    """Return the errors of curves whose source was left out of the fit."""
    found = fits.left_out(curves)
    parts = curve_result.by_size(found), curve_result.grouped(found, "source"), curve_result.by_class(found, sources=3)
    return curve_result.LeftOut(curve_result.group_errors("left out", found), *parts, tuple(found))
