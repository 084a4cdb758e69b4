"""The rows of a run over successive steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.study.compare.steps import follow, trend
from s2sim.study.compare.workers import Prediction
from s2sim.study.measuring.make_row import traffic
from s2sim.study.measuring.row_parts import Refused

if TYPE_CHECKING:
    from s2sim.reducers.scripts.script import Recording
    from s2sim.replay.run import Replay
    from s2sim.study.compare.found import Found
    from s2sim.study.progress import Progress
    from s2sim.study.scenario.reducers import ReducerScenario
    from s2sim.study.spec import RunSpec


def follow_steps(spec: RunSpec, scenario: ReducerScenario, progress: Progress, found: Found) -> None:
    """Replace each row by one with its successive steps, and what was recorded by the median one or a whole period.

    A warm reducer is a later step already; an optional one that refuses a step loses its row.
    """
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
        found.predictions[one.workers] = [
            each for each in found.predictions[one.workers] if each.row.option_string != one.reducer
        ]


def _followed(prediction: Prediction, count: int, scenario: ReducerScenario, progress: Progress) -> Prediction:
    """Return a prediction with so many steps in its row."""
    recorded, executed, row = prediction.recorded, prediction.executed, prediction.row
    reducer = recorded.reducer

    def execute(recording: Recording) -> tuple[Replay, int]:
        again = replace(executed, recording=recording)
        return again.replay, int(traffic(again)[0].max())

    steps, recording = follow(
        reducer, scenario.trace, row.workers, count, execute, seed=scenario.seed, on_step=progress.advance
    )
    # What waits for the next exchange comes and goes.
    residuals = [step.residual for step in steps[reducer.period - 1 :: reducer.period] if step.residual is not None]
    row = replace(row, steps=steps, residual_trend=trend(residuals) if residuals else None)
    if recording is None:
        return replace(prediction, row=row)
    return Prediction(replace(recorded, recording=recording), replace(executed, recording=recording), row)
