"""The rows of a run: every reducer on every number of workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.collectives.timing.ways import Ways
from s2sim.study.extrapolate.beyond import record_as_asked
from s2sim.study.measuring.executed import Executed
from s2sim.study.measuring.make_row import make_row
from s2sim.study.measuring.record import baseline_of
from s2sim.study.scenario.asked import other_steps

if TYPE_CHECKING:
    from s2sim.study.compare.found import Found
    from s2sim.study.extrapolate.beyond import Beyond
    from s2sim.study.measuring.record import Recorded
    from s2sim.study.measuring.result import Row
    from s2sim.study.progress import Progress
    from s2sim.study.scenario.reducers import ReducerScenario
    from s2sim.study.spec import RunSpec


def run_workers(
    spec: RunSpec,
    scenario: ReducerScenario,
    beyond: Beyond | None,
    progress: Progress,
    found: Found,
    *,
    thorough: bool,
) -> None:
    """Run all reducers on each number of workers; those that are finished stand in ``found``."""
    reducers, trace = scenario.reducers, scenario.trace
    progress.start(sum(spec.workers) + len(reducers) * len(spec.workers), "running reducers on real gradients")
    for count in spec.workers:
        gradients = []
        for rank in range(count):
            gradients.append(trace.gradient(0, rank))
            progress.advance()
        records, refused = record_as_asked(scenario, gradients, other_steps(trace, count), on_reducer=progress.advance)
        found.executed[count] = _executed(scenario, records, count)
        found.rows += _rows(records, found.executed[count], beyond, thorough=thorough)
        found.recorded[count] = records
        found.refused += refused


def _executed(scenario: ReducerScenario, records: list[Recorded], count: int) -> list[Executed]:
    """Return what each does on the cluster, by the algorithm that is its own where it has one."""
    algorithms = {item.reducer.runs_by for item in records}
    ways = Ways(scenario.cluster(count))
    scenarios = {each: scenario.running(each) for each in algorithms}
    timers = {each: scenarios[each].timer(count, ways) for each in algorithms}
    return [Executed(item.recording, scenarios[item.reducer.runs_by], timers[item.reducer.runs_by]) for item in records]


def _rows(records: list[Recorded], executed: list[Executed], beyond: Beyond | None, *, thorough: bool) -> list[Row]:
    dense = next(each for each, item in zip(executed, records, strict=True) if item is baseline_of(records))
    rows = [make_row(item, each, dense, thorough=thorough) for item, each in zip(records, executed, strict=True)]
    return rows if beyond is None else [replace(row, extrapolated=beyond.mark(row)) for row in rows]
