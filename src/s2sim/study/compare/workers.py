"""The rows of a run: every reducer on every number of workers, and over successive steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from s2sim.study.break_even.scan import Scan
from s2sim.study.compare.steps import follow, trend
from s2sim.study.extrapolate.beyond import record_as_asked
from s2sim.study.measuring.executed import Executed
from s2sim.study.measuring.make_row import make_row, traffic
from s2sim.study.measuring.timeline import watch
from s2sim.study.scenario.asked import earlier_gradients

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s2sim.reducers.scripts.script import Recording
    from s2sim.replay.run import Replay
    from s2sim.study.extrapolate.beyond import Beyond
    from s2sim.study.measuring.record import Recorded
    from s2sim.study.measuring.result import Row
    from s2sim.study.measuring.timeline import Timeline
    from s2sim.study.progress import Progress
    from s2sim.study.scenario.reducers import ReducerScenario
    from s2sim.study.spec import RunSpec


@dataclass(slots=True)
class Found:
    """What a run has found so far.

    Attributes
    ----------
    recorded, executed : dict of int to list
        What every reducer did, and how it ran on the cluster, by number of workers.
    rows : list of Row
        One a reducer and number of workers.
    scan : Scan
        Where reducers break even.
    """

    recorded: dict[int, list[Recorded]] = field(default_factory=dict)
    executed: dict[int, list[Executed]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    scan: Scan = field(default_factory=lambda: Scan(None))

    @property
    def largest(self) -> int:
        """Largest number of workers that is finished."""
        return max(self.recorded)

    def pairs(self, workers: int) -> Iterable[tuple[Recorded, Executed]]:
        """Return each recording with its execution."""
        return zip(self.recorded[workers], self.executed[workers], strict=True)

    def timelines(self) -> dict[str, Timeline]:
        """Return what ranks and links do under each reducer, for the largest number of workers."""
        return {item.option_string: watch(each) for item, each in self.pairs(self.largest)}


def run_workers(
    spec: RunSpec, scenario: ReducerScenario, beyond: Beyond | None, progress: Progress, found: Found
) -> None:
    """Run all reducers on each number of workers; those that are finished stand in ``found``."""
    reducers, trace = scenario.reducers, scenario.trace
    progress.start(sum(spec.workers) + len(reducers) * len(spec.workers), "running reducers on real gradients")
    for count in spec.workers:
        gradients = []
        for rank in range(count):
            gradients.append(trace.gradient(0, rank))
            progress.advance()
        earlier = earlier_gradients(trace, reducers, count)
        records = record_as_asked(scenario, gradients, earlier, forgiving=spec.by_default, on_reducer=progress.advance)
        timer = scenario.timer(count)
        found.executed[count] = [Executed(item.recording, scenario, timer) for item in records]
        found.rows += _rows(records, found.executed[count], beyond)
        found.recorded[count] = records


def _rows(records: list[Recorded], executed: list[Executed], beyond: Beyond | None) -> list[Row]:
    dense = next(each for each, item in zip(executed, records, strict=True) if item.reducer.traits.name == "dense")
    rows = [make_row(item, each, dense) for item, each in zip(records, executed, strict=True)]
    return rows if beyond is None else [replace(row, extrapolated=beyond.mark(row)) for row in rows]


def follow_steps(spec: RunSpec, scenario: ReducerScenario, progress: Progress, found: Found) -> None:
    """Replace each row by one with its successive steps; a warm reducer is a later step of one without it."""
    pairs = [pair for count in found.recorded for pair in found.pairs(count)]
    progress.start(spec.steps * sum(not item.reducer.traits.warm for item, _ in pairs), "following reducers over steps")
    for index, (item, one) in enumerate(pairs):
        row = found.rows[index]
        if item.reducer.traits.warm:
            continue

        def execute(recording: Recording, like: Executed = one) -> tuple[Replay, int]:
            again = replace(like, recording=recording)
            return again.replay, int(traffic(again)[0].max())

        steps = follow(
            item.reducer,
            scenario.trace,
            row.workers,
            spec.steps,
            execute,
            seed=scenario.seed,
            on_step=progress.advance,
        )
        residuals = [step.residual for step in steps if step.residual is not None]
        found.rows[index] = replace(row, steps=steps, residual_trend=trend(residuals) if residuals else None)
