"""The result of a training: curves, the cost of reaching the target per reducer, and an answer as text."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log10
from typing import Any

from s2sim.experiment import choice, json_form, progress
from s2sim.experiment.scenario.content_hash import cluster_content, hashable_content, library_content
from s2sim.provenance import run_record
from s2sim.pytorch.model_updates import TrainingSetup
from s2sim.topology.shape import HourlyCost
from s2sim.training.curve import Curve, Interval, Target, TargetCrossing, find_crossing, ratio_interval, t_interval
from s2sim.training.resolve import ResolvedTraining, TaskFacts
from s2sim.training.spec import TrainSpec
from s2sim.units import format_count, format_money, format_number_of, format_seconds


@dataclass(frozen=True, slots=True)
class TrainRow:
    """One reducer over all seeds."""

    reducer: str  # By its option string
    feedback: str  # Of what was not sent: ``ef`` and the like, ``own`` of the reducer itself, or ``none``
    trained: int  # Seeds
    seeds: int  # Seeds that took all steps
    stopped: tuple[str, ...]  # Reasons of the other seeds
    loss: Interval | None  # On held-out data after the last step; None if a seed did not take it
    accuracy: Interval | None  # Likewise
    step_s: Interval  # Simulated time, mean over the steps
    step_bytes: Interval  # Sent by the busiest rank, mean over the steps
    reached: int  # Seeds that reached the target
    # Until the target was reached, if it was with every seed, and ratios to dense's seed by seed
    iterations: Interval | None
    time_s: Interval | None
    sent_bytes: Interval | None
    time_ratio: Interval | None
    bytes_ratio: Interval | None
    cost: Interval | None = None  # Until then, in the currency of the topology's price; None without one


@dataclass(frozen=True, slots=True, repr=False)
class TrainResult(json_form.ResultForm):
    """The answer of `s2sim.training.run.train`."""

    spec: TrainSpec
    headline: str  # Model, cluster and machines in a line
    score: str  # What accuracy is the share of
    target: Target | None  # What was to be reached; None where dense reached nothing
    target_why: str  # Who chose it
    rows: tuple[TrainRow, ...]  # One a reducer, dense first
    curves: tuple[Curve, ...]  # One a reducer and seed
    verdict: tuple[str, ...]  # The answer, a line a reducer
    compute_why: str  # What a rank computes in a step, and where that is from
    notes: tuple[str, ...]  # What is to be known
    provenance: dict[str, Any]  # The run record
    price: HourlyCost | None = None  # Of the cluster; None where the topology states none

    @property
    def complete(self) -> bool:
        """Whether it was not interrupted."""
        return progress.INTERRUPTED_NOTE not in self.notes


def make_train_row(
    reducer: str,
    feedback: str,
    curves: dict[int, Curve],
    reaches: dict[int, TargetCrossing | None],
    base: dict[int, TargetCrossing | None],
    steps: int,
    price: HourlyCost | None = None,
) -> TrainRow:
    """Return the row of a reducer from its curves and target crossings by seed, with those of dense."""
    whole = [each for each in curves.values() if len(each.step_loss) >= steps and not each.stopped]
    finished = whole if len(whole) == len(curves) else []
    there = {seed: found for seed, found in reaches.items() if found is not None}
    every = list(there.values()) if len(there) == len(curves) else []
    pairs = [(found, other) for seed, found in there.items() if (other := base.get(seed)) is not None] if every else []
    stepped = [each for each in curves.values() if len(each.step_s)]
    step_s = t_interval([float(each.step_s.mean()) for each in stepped])
    step_bytes = t_interval([float(each.step_bytes.mean()) for each in stepped])
    assert step_s is not None
    assert step_bytes is not None
    return TrainRow(
        reducer=reducer,
        feedback=feedback,
        trained=len(curves),
        seeds=len(whole),
        stopped=tuple(f"seed {seed}: {each.stopped}" for seed, each in curves.items() if each.stopped),
        loss=t_interval([float(each.eval_loss[-1]) for each in finished]),
        accuracy=t_interval(
            [float(each.accuracy[-1]) for each in finished], finished[0].accuracy_step if finished else 0
        ),
        step_s=step_s,
        step_bytes=step_bytes,
        reached=len(there),
        iterations=t_interval([each.iterations for each in every]),
        time_s=t_interval([each.time_s for each in every]),
        sent_bytes=t_interval([each.sent_bytes for each in every]),
        time_ratio=ratio_interval([own.time_s for own, _ in pairs], [other.time_s for _, other in pairs]),
        bytes_ratio=ratio_interval([own.sent_bytes for own, _ in pairs], [other.sent_bytes for _, other in pairs]),
        cost=None if price is None else t_interval([price.of(each.time_s) for each in every]),
    )


def target_text(target: Target) -> str:
    """Return a target as text.

    >>> target_text(Target("loss", 5.1)), target_text(Target("accuracy", 0.9))
    ('loss 5.1', 'accuracy 90 %')
    """
    return f"loss {target.value:.4g}" if target.what == "loss" else f"accuracy {100 * target.value:.3g} %"


def interval_text(interval: Interval) -> str:
    """Return a ratio with its interval.

    >>> interval_text(Interval(0.61, 0.55, 0.68, 3))
    '0.61x [0.55, 0.68]'
    """
    mean = f"{interval.mean:.3g}x"
    return mean if interval.low is None else f"{mean} [{interval.low:.3g}, {interval.high:.3g}]"


def train_verdict_lines(
    rows: Sequence[TrainRow], curves: Sequence[Curve], target: Target | None, base: str, currency: str = ""
) -> tuple[str, ...]:
    """Return which reducer is first at the target; and a line for each, in which share of dense's time it is there."""
    if target is None:
        return ()
    lines = _first_lines(rows, target, base, currency)
    for row in rows:
        if row.reached < row.trained:
            lines.append(_unreached(row, curves, target))
        elif row.stopped:
            lines.append(f"{row.reducer} reaches {target_text(target)} on its way, and does not stay: {row.stopped[0]}")
        elif row.reducer == base:
            continue
        elif row.time_ratio is None:
            lines.append(f"{row.reducer} reaches {target_text(target)}, where {base} has no time to compare with")
        else:
            low, high = row.time_ratio.low, row.time_ratio.high
            is_open = low is not None and high is not None and low <= 1 <= high and low != high
            undecided = ": no difference that is sure" if is_open else ""
            sent = "" if row.bytes_ratio is None else f" and {interval_text(row.bytes_ratio)} its bytes"
            lines.append(
                f"{row.reducer} reaches {target_text(target)} in {interval_text(row.time_ratio)} the simulated time of "
                f"{base}{sent}, over {format_number_of(row.trained, 'seed')}{undecided}"
            )
    return tuple(lines)


def _first_lines(rows: Sequence[TrainRow], target: Target, base: str, currency: str) -> list[str]:
    """Return time, and money at a known price, until the first reducer and dense; dense leads where none saves 1 %."""

    def spent(row: TrainRow, time: Interval) -> str:
        money = "" if row.cost is None else f" and {format_money(row.cost.mean, currency)}"
        return f"{format_seconds(time.mean)}{money}"

    there = [(row, row.time_s) for row in rows if row.time_s is not None and not row.stopped]
    there.sort(key=lambda reached: reached[1].mean / (choice.WORTHWHILE if reached[0].reducer == base else 1))
    if not there:
        return []
    (first, time), *others = there
    after = "" if first.iterations is None else f" after {first.iterations.mean:.3g} steps"
    beside = [f"; {base} takes {spent(row, later)}" for row, later in others if row.reducer == base]
    return [f"{first.reducer} is first at {target_text(target)}: {spent(first, time)}{after}{''.join(beside)}"]


def _unreached(row: TrainRow, curves: Sequence[Curve], target: Target) -> str:
    own = [each for each in curves if each.reducer == row.reducer]
    values = [each.eval_loss if target.what == "loss" else each.accuracy for each in own]
    best = min(float(each.min()) for each in values) if target.what == "loss" else max(float(e.max()) for e in values)
    how = f"lowest loss {best:.4g}" if target.what == "loss" else f"highest accuracy {100 * best:.3g} %"
    times = "with no seed" if not row.reached else f"with {row.reached} of {format_number_of(row.trained, 'seed')}"
    stopped = f"; {row.stopped[0]}" if row.stopped else ""
    return f"{row.reducer} reaches {target_text(target)} {times} ({how}{stopped})"


def make_train_result(wanted: ResolvedTraining, curves: Sequence[Curve], *, interrupted: bool) -> TrainResult:
    """Return the result of the trained curves."""
    spec, facts = wanted.spec, wanted.facts
    assert facts is not None
    base = wanted.fittings[0].option_string
    by_reducer = {
        each.option_string: {c.seed: c for c in curves if c.reducer == each.option_string} for each in wanted.fittings
    }
    target, why = _choose_target(wanted, list(by_reducer[base].values()))
    reaches = {
        name: {seed: None if target is None else find_crossing(each, target) for seed, each in own.items()}
        for name, own in by_reducer.items()
    }
    where, known = wanted.cluster_scenario, wanted.cluster_scenario.shape.price
    price = None if known is None else known.cost(spec.workers, where.cluster(spec.workers).layout.nodes)
    rows = tuple(
        make_train_row(name, _feedback_text(each), by_reducer[name], reaches[name], reaches[base], spec.steps, price)
        for each in wanted.fittings
        if by_reducer[name := each.option_string]
    )
    notes = [note for each in wanted.fittings for note in each.notes]
    notes += [
        f"{each.option_string} sent nothing in so few steps, as it does not exchange in each: give more"
        for each in wanted.fittings
        if each.reducer.period > 1
        and not any(curve.step_bytes.any() for curve in by_reducer[each.option_string].values())
    ]
    return TrainResult(
        spec=spec,
        headline=_headline(wanted, facts),
        score=facts.score,
        target=target,
        target_why=why,
        rows=rows,
        curves=tuple(curves),
        verdict=train_verdict_lines(rows, curves, target, base, "" if price is None else price.currency),
        compute_why=facts.compute_why,
        notes=(*notes, *([progress.INTERRUPTED_NOTE] if interrupted else [])),
        provenance=_provenance(wanted, facts),
        price=price,
    )


def _choose_target(wanted: ResolvedTraining, dense: Sequence[Curve]) -> tuple[Target | None, str]:
    spec = wanted.spec
    if spec.target_loss is not None:
        return Target("loss", spec.target_loss), "as asked for"
    if spec.target_accuracy is not None:
        return Target("accuracy", spec.target_accuracy), "as asked for"
    name = wanted.fittings[0].option_string
    target = _rounded_up(max(float(each.eval_loss.min()) for each in dense)) if dense else inf
    if target >= min((float(each.eval_loss[0]) for each in dense), default=0.0):
        return None, f"{name} does not get below where all seeds begin: train longer, or give --target-loss"
    return Target("loss", target), f"the lowest that {name} reaches with every seed"


def _rounded_up(value: float) -> float:
    """Return a number above 0 with four digits, no less than it.

    >>> _rounded_up(5.09312), _rounded_up(0.0412345)
    (5.094, 0.04124)
    """
    digits = 3 - floor(log10(value))
    return float(round(ceil(value * 10**digits) / 10**digits, digits))


def _feedback_text(fitting: TrainingSetup) -> str:
    options = fitting.reducer.options()
    if options.get("ef") not in (None, False, True):
        return str(options["ef"])
    kinds = [key for key in ("ef", "momentum", "gmc") if options.get(key) not in (None, False, 0.0)]
    return kinds[0] if kinds else "own" if fitting.reducer.traits.feedback == "own" else "none"


def _headline(wanted: ResolvedTraining, facts: TaskFacts) -> str:
    spec, where = wanted.spec, wanted.cluster_scenario
    nodes = int(where.cluster(spec.workers).node_of_rank.max()) + 1
    settings = wanted.settings
    momentum = f", momentum {settings.momentum:g}" if settings.momentum else ""
    return (
        f"{facts.model}, {format_count(facts.parameters)} parameters, {settings.optimizer} (learning rate "
        f"{settings.learning_rate:g}{momentum}) on {facts.data}; {format_number_of(spec.workers, 'worker')} in "
        f"{format_number_of(nodes, 'node')} of {where.shape.name}; {wanted.machines.text}"
    )


def _provenance(wanted: ResolvedTraining, facts: TaskFacts) -> dict[str, object]:
    spec = wanted.spec
    return run_record(
        spec={
            "cluster": cluster_content(wanted.cluster_scenario, [spec.workers]),
            "library": library_content(wanted.machines.library),
            "gpu": hashable_content(wanted.machines.gpu),
            "model": hashable_content(wanted.settings),
            "reducers": [each.option_string for each in wanted.fittings],
            "steps": spec.steps,
            "seeds": [spec.seed + number for number in range(spec.seeds)],
            "compute_ps": facts.compute_ps,
        },
        inputs={"data": facts.data, "texts": list(spec.text), "seed": spec.seed},
        named=spec.to_json(),
        measured=["loss", "accuracy", "bytes"],
        assumed=[
            "time: every step's scripts simulated on the topology above, and compute beside them without overlap",
            "encode and decode: bytes over memory bandwidth and launches",
        ],
    )
