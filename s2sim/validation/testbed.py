"""Predicts all times of testbeds: by constants fitted to one setting, training as ``s2sim run --recorded`` does."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import exp, inf, isinf, log
from operator import attrgetter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from s2sim.errors import S2SimError, check_known
from s2sim.experiment import stages
from s2sim.experiment.json_form import finite
from s2sim.experiment.prediction import recorded_error
from s2sim.experiment.progress import SILENT, ProgressWatcher, watched
from s2sim.tables import group_by
from s2sim.testbed.measured import KINDS, Kind, MeasuredSetting, MeasuredTestbeds, MeasuredTiming
from s2sim.testbed.training import PYTORCH, find_recorded
from s2sim.uncertainty.machine_fit import FittedConstant, HostFit
from s2sim.validation import testbed_fit
from s2sim.validation.compare_log_result import LARGE_BYTES

DENSE = "dense"


@dataclass(frozen=True, slots=True)
class ComparedTime:
    """One measured time (the median, and its 10th and 90th percentile) beside its prediction."""

    kind: Kind
    setting: str
    workers: int
    nodes: int
    rate_Bps: float
    uplink_Bps: float
    # As in `s2sim.testbed.measured.MeasuredTiming`
    what: str
    trace: str
    compute_s: float
    payload_bytes: int
    measured_s: float
    low_s: float
    high_s: float
    predicted_s: float
    # Whether it is of the calibrated setting; of training, dense where it was recorded
    seen: bool
    undecided_below: float  # Gains over dense below this share are undecided

    @property
    def error(self) -> float:
        """ln(predicted/measured)."""
        return log(self.predicted_s / self.measured_s)

    @property
    def large(self) -> bool:
        """Whether the size is 1 MiB or more."""
        return self.payload_bytes >= LARGE_BYTES


@dataclass(frozen=True, slots=True)
class WinPrediction:
    """Whether a reducer wins or loses against dense on an unseen setting, as measured and as predicted."""

    kind: Kind
    setting: str
    what: str
    trace: str
    # Dense's time over the reducer's
    measured: float
    predicted: float
    decided: bool  # Whether the prediction is further from 1 than it may be off

    @property
    def right(self) -> bool:
        """Whether both say the same."""
        return (self.measured > 1) == (self.predicted > 1)


@dataclass(frozen=True, slots=True)
class BreakEvenRate:
    """The rate at which a reducer and dense take equally long between so many workers.

    It lies between the measured rates ``low_Bps`` and ``high_Bps``, where the logarithm of the times' ratio is 0 on a
    straight line over that of the rate; predicted at all measured rates in the same way, None where these cross
    nowhere.
    """

    kind: Kind
    workers: int
    what: str
    trace: str
    payload_bytes: int
    low_Bps: float
    high_Bps: float
    measured_Bps: float
    predicted_Bps: float | None

    @property
    def factor(self) -> float:
        """How many times the one is the other, at least 1; infinite where none is predicted."""
        if self.predicted_Bps is None:
            return inf
        ratio = self.predicted_Bps / self.measured_Bps
        return max(ratio, 1 / ratio)


@dataclass(frozen=True, slots=True)
class PredictionComparison:
    """All that a folder has, in its order, predicted with ``constants`` of the setting ``calibrated_on``."""

    calibrated_on: str
    constants: tuple[FittedConstant, ...]
    points: tuple[ComparedTime, ...]
    calls: tuple[WinPrediction, ...]  # Of other settings
    break_even: tuple[BreakEvenRate, ...]  # Where measured times cross
    notes: tuple[str, ...] = ()

    @property
    def unseen(self) -> tuple[ComparedTime, ...]:
        """Points of other settings than the calibrated one."""
        return tuple(point for point in self.points if not point.seen)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON has it, infinite rates as null."""
        found: dict[str, Any] = finite(asdict(self))
        found["median_errors"] = {
            f"{kind} {size}": median_error(p for p in self.unseen if (p.kind, p.large) == (kind, size == "large"))
            for kind in dict.fromkeys(point.kind for point in self.points)
            for size in ("large", "small")
        }
        right = [call.right for call in self.calls if call.decided]
        found["right_calls"] = sum(right) / len(right) if right else None
        return found


def median_error(points: Iterable[ComparedTime]) -> float | None:
    """Return the median of |ln(predicted/measured)|; None of no points."""
    errors = [abs(point.error) for point in points]
    return median(errors) if errors else None


def win_predictions(points: Sequence[ComparedTime]) -> tuple[WinPrediction, ...]:
    """Return a call for each reducer of each unseen setting that has measured dense too."""
    found = []
    for dense, point in _with_dense(points):
        if not point.seen:
            measured, predicted = dense.measured_s / point.measured_s, dense.predicted_s / point.predicted_s
            sure = not point.undecided_below or max(predicted, 1 / predicted) > 1 + point.undecided_below
            found.append(WinPrediction(point.kind, point.setting, point.what, point.trace, measured, predicted, sure))
    return tuple(found)


def break_even_rates(points: Sequence[ComparedTime]) -> tuple[BreakEvenRate, ...]:
    """Return the rates at which measured times of a reducer and dense cross, of settings that differ in rate alone."""
    limited = [pair for pair in _with_dense(points) if not isinf(pair[1].rate_Bps)]
    alike = attrgetter("kind", "workers", "nodes", "what", "trace", "compute_s")
    found = []
    for pairs in group_by(limited, lambda pair: alike(pair[1])).values():
        pairs.sort(key=lambda pair: pair[1].rate_Bps)
        rates = [point.rate_Bps for _, point in pairs]
        measured = _first_crossing(rates, [log(dense.measured_s / point.measured_s) for dense, point in pairs])
        predicted = _first_crossing(rates, [log(dense.predicted_s / point.predicted_s) for dense, point in pairs])
        if measured is not None:
            first = pairs[0][1]
            of = (first.kind, first.workers, first.what, first.trace, first.payload_bytes)
            found.append(BreakEvenRate(*of, *measured, None if predicted is None else predicted[2]))
    return tuple(found)


def _with_dense(points: Sequence[ComparedTime]) -> Iterator[tuple[ComparedTime, ComparedTime]]:
    same_run = attrgetter("kind", "setting", "trace", "compute_s")
    dense = {same_run(point): point for point in points if point.what == DENSE}
    for point in points:
        if point.what != DENSE and same_run(point) in dense:
            yield dense[same_run(point)], point


def _first_crossing(rates: Sequence[float], gains: Sequence[float]) -> tuple[float, float, float] | None:
    for (low, gain), (high, loss) in pairwise(zip(rates, gains, strict=True)):
        if gain > 0 >= loss:
            share = gain / (gain - loss)
            return low, high, exp(log(low) + share * (log(high) - log(low)))
    return None


def setting_named(measured: MeasuredTestbeds, name: str | None) -> MeasuredSetting:
    """Return a setting by name; of those that measured collectives the first without one."""
    settings = {setting.name: setting for setting in measured.settings}
    if name is None:
        name = next((row.setting for row in (*measured.collectives, *measured.training)), None)
        if name is None:
            raise S2SimError("no collective was measured, and no constants follow from anything else: measure some")
    check_known(name, settings, f"no setting {name!r} was measured")
    return settings[name]


class PredictedIteration(NamedTuple):
    """An iteration of training as predicted."""

    seconds: float
    recorded_on: str  # The setting on which it was recorded
    undecided_below: float  # Share of the time that the prediction of the recorded job itself is off


def predict_trainings(
    measured: MeasuredTestbeds, folder: Path | None, first: str, progress: ProgressWatcher = SILENT
) -> dict[MeasuredTiming, PredictedIteration]:
    """Return the predictions of rows by the recordings in ``folder``, of several that of the setting ``first``.

    Without a recording between as many workers a row is left out, as are those of PyTorch's own hooks.
    """
    settings = {setting.name: setting for setting in measured.settings}
    own = [row for row in measured.training if folder is not None and not row.what.startswith(PYTORCH)]
    groups = group_by(own, lambda row: (row.setting, row.trace))
    found: dict[MeasuredTiming, PredictedIteration] = {}
    for (name, trace), rows in watched(progress, "predicting training", list(groups.items())):
        assert folder is not None
        if (job := find_recorded(folder, trace, settings[name].workers, first)) is not None:
            predicted = predict_iterations(settings[name], job, [row.what for row in rows])
            found |= {row: predicted[row.what] for row in rows if row.what in predicted}
    return found


def predict_iterations(setting: MeasuredSetting, job: Path, reducers: Sequence[str]) -> dict[str, PredictedIteration]:
    """Return the iteration of a recorded job on a setting with each reducer that can run there."""
    with TemporaryDirectory() as place:
        topology = Path(place) / f"{setting.name}.toml"
        topology.write_text(testbed_fit.setting_toml(setting), "utf-8")
        recorded = stages.record(str(topology), workers=setting.workers, reducers=reducers, recorded=str(job))
        found = stages.predict(recorded)
    known = {row.reducer: row.iteration_s for row in found.state.rows if row.iteration_s is not None}
    error = recorded_error(found.scenario) or 0.0
    return {name: PredictedIteration(time_s, job.parent.name, error) for name, time_s in known.items()}


def compare_testbeds(
    measured: MeasuredTestbeds, calibrate_on: str | None, progress: ProgressWatcher = SILENT, folder: Path | None = None
) -> PredictionComparison:
    """Return measured times with predictions: constants and codec times are of one setting, all else is predicted.

    Training is predicted by ``s2sim run --recorded`` of the recordings in ``folder``, those of the calibrated setting
    first; PyTorch's own hooks are not predicted, and neither is training without a folder.
    """
    chosen = setting_named(measured, calibrate_on)
    simulated = measured.collectives or measured.reducers or measured.iterations or not measured.training
    fit = testbed_fit.fit_setting(chosen, measured.collectives, progress) if simulated else HostFit((), (), 0.0, 0.0)
    settings = {setting.name: setting for setting in measured.settings}
    codecs = {
        (row.what, row.trace): testbed_fit.measured_codec_time(chosen, row, fit.own)
        for row in (*measured.iterations, *measured.reducers)
        if row.setting == chosen.name
    }
    rows = [(kind, row) for kind in KINDS for row in measured.of(kind)]
    trained = predict_trainings(measured, folder, chosen.name, progress)
    left_out = sum(row not in trained and not row.what.startswith(PYTORCH) for row in measured.training)
    points, unmeasured = [], set()
    for kind, row in watched(progress, "predicting", rows):
        setting, seen, undecided_below = settings[row.setting], row.setting == chosen.name, 0.0
        if kind == "collectives":
            predicted_s = testbed_fit.collective_s(setting, row.what, row.payload_bytes, fit.own)
        elif kind == "training":
            if row not in trained:
                continue
            predicted_s, recorded_on, undecided_below = trained[row]
            seen = row.setting == recorded_on and row.what == DENSE
        else:
            codec = codecs.get((row.what, row.trace))
            unmeasured |= {row.what} if codec is None else set()
            exchanged_s = testbed_fit.exchange_s(setting, row.what, row.trace, fit.own)
            predicted_s = row.compute_s + (exchanged_s + testbed_fit.predict_codec_s(setting, row, codec))
        cluster = setting.name, setting.workers, setting.nodes, setting.rate_Bps, setting.uplink_Bps
        work = row.what, row.trace, row.compute_s, row.payload_bytes
        times_s = row.median_s, row.low_s, row.high_s, predicted_s
        points.append(ComparedTime(*(kind, *cluster, *work, *times_s, seen, undecided_below)))
    exchanged = [point for point in points if point.kind != "collectives"]
    codecs_note = (
        f"codecs are NumPy on the processors that workers share: what {chosen.name} measured beside exchanges, "
        "in proportion to the work that its script notes and to the workers for each processor"
    )
    unmeasured_note = f"{chosen.name} did not measure {', '.join(sorted(unmeasured))}: codecs count nothing there"
    training_note = (
        "training is predicted by s2sim run --recorded, from its recording on one setting for each number of workers; "
        "PyTorch's own hooks are measured only"
    )
    return PredictionComparison(
        chosen.name,
        fit.constants,
        tuple(points),
        win_predictions(exchanged),
        break_even_rates(exchanged),
        (codecs_note,) * any(point.kind != "training" for point in exchanged)
        + (unmeasured_note,) * bool(unmeasured)
        + (training_note,) * bool(trained)
        + (f"{left_out} rows of training are left out, as no recording of them is in the folder",) * bool(left_out),
    )
