"""All that can be refused or warned of before a run computes anything long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.errors import OptionError
from s2sim.study.scenario.asked import warn_of_later_options
from s2sim.study.scenario.reducers import resolve_run

if TYPE_CHECKING:
    from s2sim.study.scenario.reducers import ReducerScenario
    from s2sim.study.spec import RunSpec


def prepare(spec: RunSpec) -> ReducerScenario:
    """Return the scenario of a run with all its clusters built.

    Raises
    ------
    S2SimError
        For anything that cannot be done as asked.
    """
    scenario = resolve_run(spec)
    for workers in spec.workers:
        scenario.cluster(scenario.ranks_of(workers))
    scenario.warn_of_idle_overrides(scenario.ranks_of(max(spec.workers)))
    if spec.steps == 1:
        warn_of_later_options(scenario.reducers, what="a run")
    trace = scenario.trace
    if spec.steps > trace.steps:
        raise OptionError(
            f"--steps {spec.steps}: trace {trace.name} has {trace.steps}; s2sim list traces tells what others have, "
            "and synthetic:steps=8 has as many as are asked for"
        )
    return scenario
