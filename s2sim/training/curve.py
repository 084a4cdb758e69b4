"""One training as curves: loss, accuracy, bytes and time against iterations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import exp, isfinite, log, sqrt
from statistics import fmean, stdev
from typing import Literal, NamedTuple

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.experiment.execute import ring_traffic, schedule_traffic
from s2sim.experiment.json_form import LEFT_OUT
from s2sim.experiment.scenario.cluster import Machines, Scenario
from s2sim.profiles.read import open_profile
from s2sim.pytorch.task import Evaluation
from s2sim.reducers import rank, script
from s2sim.simulation.plan import make_plan
from s2sim.simulation.run import replay
from s2sim.topology.hardware import Gpu
from s2sim.training.spec import TrainSpec
from s2sim.units import PS_PER_S, format_seconds, parse_option, parse_time_ps

# Kernels that a parameter takes at least: forward, backward, optimizer.
_LAUNCHES = 3


@dataclass(frozen=True, slots=True)
class StepTime:
    """The time of one step on the cluster in seconds, and the bytes of the busiest rank."""

    time_s: float
    sent_bytes: int


def step_clock(
    where: Scenario, machines: Machines, reducer: rank.Reducer, workers: int, compute_ps: int
) -> Callable[[script.Recording], StepTime]:
    """Return what times the steps of one reducer; equal scripts are replayed once."""
    running = where.running(reducer.runs_by)
    timer = running.timer(workers)

    @cache
    def tick(recording: script.Recording) -> StepTime:
        plan = make_plan(recording, machines.library)
        found = replay(recording, timer, machines.gpu, plan, compute_ps=compute_ps, faults=running.faults)
        sent = (ring_traffic(plan.lowered, workers) if running.uses_ring_bytes else schedule_traffic(found, workers))[0]
        return StepTime((compute_ps + found.total_ps) / PS_PER_S, int(sent.max(initial=0)))

    return tick


def compute_time(spec: TrainSpec, gpu: Gpu, operations: int, tensors: int) -> tuple[int, str]:
    """Return the picoseconds that a step computes and their origin: given, of a profile, or by operations on a GPU."""
    if spec.compute is not None:
        return parse_option("--compute", parse_time_ps, spec.compute), f"{spec.compute}, as asked for"
    if spec.profile is not None:
        profile = open_profile(spec.profile).on(gpu)
        spent_ps = profile.forward_ps + profile.backward_ps + profile.optimizer_ps
        said = f"forward, backward and optimizer of the profile {profile.name}, {profile.setting}"
        return spent_ps, f"{format_seconds(spent_ps / PS_PER_S)}, {said}"
    spent_ps = round(gpu.flops_s(operations) * PS_PER_S) + _LAUNCHES * tensors * gpu.kernel_launch_ps
    why = (
        f"{format_seconds(spent_ps / PS_PER_S)}, estimated: {operations / 1e6:.0f} million operations of a mini-batch "
        f"at the rate of {gpu.name}, and {_LAUNCHES} kernels started for each of {tensors} parameters; --compute sets "
        "it"
    )
    return spent_ps, why


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One reducer with one seed."""

    reducer: str  # By its option string
    seed: int  # Of initial weights, shards and draws
    # Of n evaluations, shape (n,)
    iterations: Ints  # Steps until then; the first is 0
    train_loss: Floats  # Mean over the mini-batches since the evaluation before; at 0 that of the first step
    eval_loss: Floats  # On held-out data
    accuracy: Floats  # On held-out data
    sent_bytes: Ints  # By the busiest rank until then
    time_s: Floats  # Simulated, until then
    # Of all steps, shape (steps,)
    step_loss: Floats  # Mean of all ranks' mini-batches before the step
    step_s: Floats  # Simulated
    step_bytes: Ints  # Sent by the busiest rank
    stopped: str | None = None  # Reason if it ended before its last step
    accuracy_step: float = field(default=0.0, metadata=LEFT_OUT)  # What one held-out item is of it; 0 if not known


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be reached on held-out data: a loss at most, or an accuracy at least."""

    what: Literal["loss", "accuracy"]
    value: float


class TargetCrossing(NamedTuple):
    """When a curve first crosses a target, between two evaluations on the line through both."""

    iterations: float
    time_s: float
    sent_bytes: float


@dataclass(slots=True)
class CurveHistory:
    """A curve while it grows."""

    step_loss: list[float] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)
    step_bytes: list[int] = field(default_factory=list)
    iterations: list[int] = field(default_factory=list)
    eval_loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    stopped: str | None = None
    items: int | None = None

    def add_step(self, loss: float, tick: StepTime) -> None:
        """Add a step."""
        self.step_loss.append(loss)
        self.step_s.append(tick.time_s)
        self.step_bytes.append(tick.sent_bytes)

    def add_evaluation(self, found: Evaluation) -> None:
        """Add an evaluation after the steps so far."""
        self.iterations.append(len(self.step_loss))
        self.eval_loss.append(found.loss)
        self.accuracy.append(found.accuracy)
        self.items = found.items

    def curve(self, reducer: str, seed: int) -> Curve:
        """Return the curve so far."""
        at = np.array(self.iterations, np.int64)
        loss = np.array(self.step_loss)
        step_s, step_bytes = np.array(self.step_s), np.array(self.step_bytes, np.int64)
        spans = zip([0, *self.iterations[:-1]], self.iterations, strict=True)
        train = [loss[start:end].mean() if end > start else (loss[0] if len(loss) else np.nan) for start, end in spans]
        return Curve(
            reducer=reducer,
            seed=seed,
            iterations=at,
            train_loss=np.array(train),
            eval_loss=np.array(self.eval_loss),
            accuracy=np.array(self.accuracy),
            sent_bytes=np.concatenate([[0], np.cumsum(step_bytes)])[at],
            time_s=np.concatenate([[0.0], np.cumsum(step_s)])[at],
            step_loss=loss,
            step_s=step_s,
            step_bytes=step_bytes,
            stopped=self.stopped,
            accuracy_step=1 / self.items if self.items else 0.0,
        )


def plateau(curve: Curve, window: int) -> int | None:
    """Return the first step that ends ``window`` steps in which the least loss fell by less than a hundredth."""
    least = np.minimum.accumulate(curve.eval_loss)
    before = np.searchsorted(curve.iterations, curve.iterations - window, side="right")
    ends = (before > 0) & (least > 0.99 * least[before - 1])
    return int(curve.iterations[ends.argmax()]) if ends.any() else None


def find_crossing(curve: Curve, target: Target) -> TargetCrossing | None:
    """Return the first crossing of a target; None if there is none."""
    values = curve.eval_loss if target.what == "loss" else -curve.accuracy
    wanted = target.value if target.what == "loss" else -target.value
    below = np.flatnonzero(values <= wanted)
    if not len(below):
        return None
    after = int(below[0])
    if after == 0:
        return TargetCrossing(0.0, 0.0, 0.0)
    before = after - 1
    share = (values[before] - wanted) / (values[before] - values[after]) if isfinite(values[before]) else 1.0
    steps = curve.iterations[before] + share * (curve.iterations[after] - curve.iterations[before])
    at = np.arange(len(curve.step_s) + 1)
    return TargetCrossing(
        float(steps),
        float(np.interp(steps, at, np.concatenate([[0.0], np.cumsum(curve.step_s)]))),
        float(np.interp(steps, at, np.concatenate([[0], np.cumsum(curve.step_bytes)]))),
    )


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over some seeds, and between which values that of all seeds lies; both None where there is one seed."""

    mean: float
    low: float | None
    high: float | None
    seeds: int

    def text(self, form: str) -> str:
        """Return the mean and, in parentheses, both ends, each as ``form`` has it."""
        mean, *ends = (form.format(each) for each in (self.mean, self.low, self.high) if each is not None)
        return f"{mean} ({' to '.join(ends)})" if ends else mean


def t_interval(values: Sequence[float], step: float = 0.0) -> Interval | None:
    """Return Student's interval of the mean, of 95 %; None without values.

    Values that come in multiples of a ``step`` deviate by at least what rounding to it does, step / sqrt(12): few that
    agree to the digit tell no more.

    >>> t_interval([1.0, 2.0, 3.0])
    Interval(mean=2.0, low=-0.48413771175033027, high=4.48413771175033, seeds=3)
    >>> t_interval([1.0, 1.0], step=0.5).text("{:.1f}")
    '1.0 (-0.3 to 2.3)'
    """
    if not values:
        return None
    mean, count = fmean(values), len(values)
    if count == 1:
        return Interval(mean, None, None, 1)
    from scipy.stats import t

    half = float(t.ppf(0.975, count - 1)) * max(stdev(values), step / sqrt(12)) / sqrt(count)
    return Interval(mean, mean - half, mean + half, count)


def ratio_interval(own: Sequence[float], base: Sequence[float]) -> Interval | None:
    """Return the mean ratio of pairs, one per seed, by Student's interval of its logarithm; None without any.

    >>> ratio_interval([2.0, 2.0], [4.0, 4.0])
    Interval(mean=0.5, low=0.5, high=0.5, seeds=2)
    """
    pairs = list(zip(own, base, strict=True))
    if not pairs or min(map(min, pairs)) <= 0:
        return None
    found = t_interval([log(one / other) for one, other in pairs])
    assert found is not None
    low, high = (None if end is None else exp(end) for end in (found.low, found.high))
    return Interval(exp(found.mean), low, high, found.seeds)
