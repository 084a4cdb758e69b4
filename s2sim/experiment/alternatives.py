"""The same question elsewhere: on the cluster without its faults, and on other hardware."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from s2sim.experiment.judgement import judge
from s2sim.experiment.prediction import predict, record
from s2sim.experiment.recording_store import recordings_content
from s2sim.experiment.row_parts import Alternative
from s2sim.experiment.run_state import RunState
from s2sim.experiment.scenario.reducers import ReducerScenario
from s2sim.experiment.spec import RunSpec
from s2sim.experiment.verdict import VerdictContext, give_verdict

HEALTHY = "without faults"


def find_alternatives(
    spec: RunSpec, scenario: ReducerScenario, state: RunState, resolve: Callable[[RunSpec], ReducerScenario]
) -> tuple[Alternative, ...]:
    """Return what a run gives without its faults, if it has some, and with the overrides of each ``spec.instead``.

    It is about the largest number of workers. What was recorded is predicted there, unless the other cluster has other
    nodes or buckets: then it is recorded anew, so that a run there says the same.
    """
    predictions, ranks = state.predictions[state.largest], scenario.ranks_of(state.largest)
    others = {HEALTHY: (spec.overrides, replace(scenario, faults=()))} if spec.faults else {}
    for text in spec.instead:
        added = [each.strip() for each in text.split(",")]
        fields = {each.partition("=")[0].strip() for each in added}
        kept = (each for each in spec.overrides if each.partition("=")[0].strip() not in fields)
        overrides = (*kept, *added)
        others[text] = overrides, resolve(replace(spec, overrides=overrides, workers=(state.largest,), instead=()))
    found = []
    for name, (overrides, there) in others.items():
        recorded = [each.recorded for each in predictions]
        if recordings_content(scenario, ranks) != recordings_content(there, ranks):
            recorded, _ = record(there, ranks)
        rows = judge([each.row for each in state.mark(predict(there, recorded, thorough=False), ranks)], spec.max_error)
        verdict = give_verdict(rows, VerdictContext(max_error=spec.max_error))
        times_s = {row.reducer: row.judgement.time_s for row in rows if row.judgement is not None}
        found.append(Alternative(name, overrides, verdict.decision, verdict.best, times_s))
    return tuple(found)
