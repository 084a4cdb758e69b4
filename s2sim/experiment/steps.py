"""Successive steps of a trace: the state that reducers keep, and whether residuals settle."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt
from statistics import fmean, median_low

import numpy as np
from numpy.typing import NDArray

from s2sim.errors import S2SimError
from s2sim.experiment.prediction import Prediction
from s2sim.experiment.progress import ProgressWatcher
from s2sim.experiment.row_parts import Refused, StepRow
from s2sim.experiment.run_state import RunState
from s2sim.experiment.scenario.reducers import ReducerScenario
from s2sim.experiment.spec import RunSpec
from s2sim.gradients.gradient import Gradient, add, add_into, stored
from s2sim.gradients.synthetic import AnyTrace
from s2sim.reducers.measure import error_of, final_results, mean_float64, worst_error, worst_of
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.rank import Reducer
from s2sim.reducers.registry import with_feedback
from s2sim.reducers.script import Recording, join_recordings
from s2sim.simulation.run import Replay
from s2sim.units import PS_PER_S

_MIN_STEPS, _SETTLED = 6, 0.05
_ACCELERATION = 1.2
"""How much more residuals have to grow than a third of the steps earlier to be called diverging; those that will settle
grow less and less."""


def residual_trend(residuals: Sequence[float]) -> str:
    """Return the trend of residuals: whether the last third of the steps exceeds all before, and rises faster.

    >>> [residual_trend(each) for each in ([1, 2, 2.7, 2.7, 2.7, 2.8], range(1, 7), [1, 2, 4, 8, 16, 32], [1, 2])]
    ['settled', 'still grows', 'diverges', 'too few steps']
    """
    third = len(residuals) // 3
    if third < _MIN_STEPS // 3:
        return "too few steps"
    first, middle, last = (fmean(residuals[len(residuals) - third * (n + 1) :][:third]) for n in (2, 1, 0))
    if last <= max(residuals[:-third]) * (1 + _SETTLED):
        return "settled"
    rose = middle > first * (1 + _SETTLED)
    return "diverges" if rose and last - middle > _ACCELERATION * (middle - first) else "still grows"


def run_steps(
    reducer: Reducer,
    trace: AnyTrace,
    ranks: int,
    steps: int,
    execute: Callable[[Recording], tuple[Replay, int]],
    *,
    seed: int,
    bare: bool = False,
    on_step: Callable[[], None] = lambda: None,
) -> tuple[tuple[StepRow, ...], Recording | None]:
    """Run a reducer, with error feedback if it needs it and is not to be ``bare``, over the first steps of a trace.

    ``execute`` returns the replay of a recording and the bytes of the busiest rank. Residuals are those of all
    ranks together, over the gradients of the first step; errors of reducers with momentum are against the mean with
    the same momentum.

    Returns the rows, and the scripts of the median step after a warm-up or, if not every step is exchanged, of the last
    full period (None without one).
    """
    instances = make_instances(reducer if bare else with_feedback(reducer), ranks)
    # Where ranks do not end alike, what each has been delivered is followed.
    followed = 1 if reducer.traits.agrees or reducer.traits.estimates == "shards" else ranks
    wanted: list[NDArray[np.float64]] = []
    delivered: list[list[NDArray[np.float64]]] = []
    rows: list[StepRow] = []
    recordings: list[Recording] = []
    usual = 0.0
    momentum = reducer.momentum_within
    exact: Gradient | None = None
    for step in range(steps):
        gradients = [trace.gradient(step, rank) for rank in range(ranks)]
        mean = mean_float64(gradients)
        # What plain training would take its step by.
        exact = mean if exact is None or not momentum else add(exact.map(lambda values: momentum * values), mean)
        of_ranks, recording = run_group(instances, gradients, seed=seed, step=step)
        results = final_results(of_ranks, reducer.traits)
        if not wanted:
            wanted, *delivered = ([np.zeros(layer.shape) for layer in exact.layers] for _ in range(1 + followed))
        means = [result.mean for result in results[:followed]]
        for sums, each in zip((wanted, *delivered), (exact, *means), strict=True):
            for summed, layer in zip(sums, each.layers, strict=True):
                add_into(summed, layer)
        usual = usual or sqrt(_square(gradients))
        held = [kept for each in instances if (kept := each.held_back()) is not None]
        # Over that of all gradients of the first step; without error feedback there is none.
        residual = (sqrt(_square(held)) / usual if usual else 0.0) if held else None
        replayed, sent = execute(recording)
        recordings.append(recording)
        sums_wanted = Gradient(exact.names, tuple(wanted))
        so_far = worst_of(error_of(Gradient(exact.names, tuple(sums)), sums_wanted, ()) for sums in delivered)
        rows.append(
            StepRow(
                step=step,
                error=worst_error(results, exact, ()).whole.relative_l2,
                error_so_far=so_far.whole.relative_l2,
                residual=residual,
                total_s=replayed.total_ps / PS_PER_S,
                bytes_sent_per_rank=sent,
                settled=step >= reducer.warmup_steps,
            )
        )
        on_step()
    settled = recordings[reducer.warmup_steps :]
    if reducer.period > 1:
        whole = len(settled) // reducer.period * reducer.period
        return tuple(rows), join_recordings(settled[whole - reducer.period : whole]) if whole else None
    times_s = [row.total_s for row in rows if row.settled]
    return tuple(rows), settled[times_s.index(median_low(times_s))] if times_s else None


def _square(gradients: Sequence[Gradient]) -> float:
    layers = (layer for gradient in gradients for layer in gradient.layers)
    return sum(float(np.square(stored(layer), dtype=np.float64).sum()) for layer in layers)


def add_step_rows(spec: RunSpec, scenario: ReducerScenario, progress: ProgressWatcher, found: RunState) -> None:
    """Replace rows by those of steps, recordings by the median step's or a period's; optional refusers lose theirs."""
    optional = {item.option_string for item in scenario.reducers if item.optional}
    every = [each for predictions in found.predictions.values() for each in predictions]
    followed = sum(not each.recorded.reducer.traits.warm for each in every)
    progress.start(spec.steps * followed, "following reducers over steps")
    refused: list[Refused] = []
    for count, predictions in found.predictions.items():
        for place, each in enumerate(predictions):
            if each.recorded.reducer.traits.warm:
                continue
            try:
                predictions[place] = _followed(each, spec.steps, scenario, progress)
            except S2SimError as error:
                if each.row.option_string not in optional:
                    raise
                refused.append(Refused(each.row.option_string, count, str(error)))
    for one in refused:
        found.refused.append(one)
        others = [each for each in found.predictions[one.workers] if each.row.option_string != one.reducer]
        found.predictions[one.workers] = others


def _followed(prediction: Prediction, count: int, scenario: ReducerScenario, progress: ProgressWatcher) -> Prediction:
    recorded, executed, row = prediction.recorded, prediction.executed, prediction.row
    reducer = recorded.reducer

    def execute(recording: Recording) -> tuple[Replay, int]:
        again = replace(executed, recording=recording)
        return again.replay, int(again.traffic()[0].max())

    run = partial(run_steps, seed=scenario.seed, bare=recorded.spec.bare, on_step=progress.advance)
    steps, recording = run(reducer, scenario.trace, row.workers, count, execute)
    # What waits for the next exchange comes and goes, and a warm-up holds back less.
    settled = [step.residual for step in steps if step.settled]
    residuals = [each for each in settled[reducer.period - 1 :: reducer.period] if each is not None]
    row = replace(row, steps=steps, residual_trend=residual_trend(residuals) if residuals else None)
    if recording is None:
        return replace(prediction, row=row)
    return Prediction(replace(recorded, recording=recording), replace(executed, recording=recording), row)
