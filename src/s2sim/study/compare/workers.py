"""The rows of a run: every reducer on every number of workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.study.extrapolate.beyond import record_as_asked
from s2sim.study.extrapolate.buckets import record_buckets
from s2sim.study.measuring.executed import Executed
from s2sim.study.measuring.make_row import make_row
from s2sim.study.measuring.record import baseline_of
from s2sim.study.scenario.asked import other_steps

if TYPE_CHECKING:
    from s2sim.gradients.gradient import Gradient
    from s2sim.study.compare.found import Found
    from s2sim.study.extrapolate.beyond import Beyond
    from s2sim.study.measuring.record import Recorded
    from s2sim.study.measuring.result import Row
    from s2sim.study.measuring.row_parts import Refused
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
    ranks = {count: scenario.ranks_of(count) for count in spec.workers}
    progress.start(sum(ranks.values()) + len(reducers) * len(ranks), "running reducers on real gradients")
    for count in spec.workers:
        gradients = []
        for rank in range(ranks[count]):
            gradients.append(trace.gradient(0, rank))
            progress.advance()
        records, refused = _record(scenario, gradients, progress)
        found.executed[count] = _executed(scenario, records, ranks[count])
        found.rows += _rows(records, found.executed[count], beyond, thorough=thorough)
        found.recorded[count] = records
        found.refused += refused


def _record(
    scenario: ReducerScenario, gradients: list[Gradient], progress: Progress
) -> tuple[list[Recorded], list[Refused]]:
    """Run each reducer: on all layers at once or, where iterations are asked for, on each bucket of them."""
    training, count = scenario.training, len(gradients)
    others = other_steps(scenario.trace, count)
    if training is None:
        return record_as_asked(scenario, gradients, others, on_reducer=progress.advance)
    timer = scenario.timer(count).with_profile(scenario.library.profile)
    return record_buckets(
        scenario.reducers_on(count),
        gradients,
        training.profile.tensors,
        training.buckets(timer, scenario.dtype),
        seed=scenario.seed,
        others=others,
        model=training.model,
        on_reducer=progress.advance,
    )


def _executed(scenario: ReducerScenario, records: list[Recorded], count: int) -> list[Executed]:
    """Return what each does on the cluster, by the algorithm that is its own where it has one."""
    algorithms = {item.reducer.runs_by for item in records}
    ways = scenario.ways(count)
    scenarios = {each: scenario.running(each) for each in algorithms}
    timers = {each: scenarios[each].timer(count, ways) for each in algorithms}
    return [
        Executed(item.recording, scenarios[item.reducer.runs_by], timers[item.reducer.runs_by], item.exchange)
        for item in records
    ]


def _rows(records: list[Recorded], executed: list[Executed], beyond: Beyond | None, *, thorough: bool) -> list[Row]:
    dense = next(each for each, item in zip(executed, records, strict=True) if item is baseline_of(records))
    rows = [make_row(item, each, dense, thorough=thorough) for item, each in zip(records, executed, strict=True)]
    if beyond is None:
        return rows
    ranks = dense.recording.workers
    return [replace(row, extrapolated=beyond.mark(row, ranks)) for row in rows]
