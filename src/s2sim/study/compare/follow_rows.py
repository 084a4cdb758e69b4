"""The rows of a run over successive steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.study.compare.steps import follow, trend
from s2sim.study.measuring.make_row import traffic
from s2sim.study.measuring.row_parts import Refused

if TYPE_CHECKING:
    from s2sim.reducers.scripts.script import Recording
    from s2sim.replay.run import Replay
    from s2sim.study.compare.found import Found
    from s2sim.study.measuring.executed import Executed
    from s2sim.study.progress import Progress
    from s2sim.study.scenario.reducers import ReducerScenario
    from s2sim.study.spec import RunSpec


def follow_steps(spec: RunSpec, scenario: ReducerScenario, progress: Progress, found: Found) -> None:
    """Replace each row by one with its successive steps, and what was recorded by the median one or a whole period.

    A warm reducer is a later step already; an optional one that refuses a step loses its row.
    """
    optional = {item.option_string for item in scenario.reducers if item.optional}
    pairs = [(count, place, *pair) for count in found.recorded for place, pair in enumerate(found.pairs(count))]
    refused: list[Refused] = []
    progress.start(
        spec.steps * sum(not item.reducer.traits.warm for _, _, item, _ in pairs), "following reducers over steps"
    )
    for index, (count, place, item, one) in enumerate(pairs):
        row = found.rows[index]
        if item.reducer.traits.warm:
            continue

        def execute(recording: Recording, like: Executed = one) -> tuple[Replay, int]:
            again = replace(like, recording=recording)
            return again.replay, int(traffic(again)[0].max())

        try:
            steps, recording = follow(
                item.reducer,
                scenario.trace,
                row.workers,
                spec.steps,
                execute,
                seed=scenario.seed,
                on_step=progress.advance,
            )
        except S2SimError as error:
            if item.option_string not in optional:
                raise
            refused.append(Refused(item.option_string, count, str(error)))
            continue
        # What waits for the next exchange comes and goes.
        exchanges = steps[item.reducer.period - 1 :: item.reducer.period]
        residuals = [step.residual for step in exchanges if step.residual is not None]
        found.rows[index] = replace(row, steps=steps, residual_trend=trend(residuals) if residuals else None)
        if recording is not None:
            found.recorded[count][place] = replace(item, recording=recording)
            found.executed[count][place] = replace(one, recording=recording)
    for each in refused:
        found.refuse(each)
