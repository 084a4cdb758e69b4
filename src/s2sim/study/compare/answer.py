"""From all that a run has found to its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.study.compare.library_notes import warn_of_idle_library_options
from s2sim.study.compare.notes import caveats_of, run_notes
from s2sim.study.compare.origin import origin
from s2sim.study.compare.verdicts import give_verdicts
from s2sim.study.extrapolate.whose import whose_gradients
from s2sim.study.measuring.result import Result
from s2sim.topology.describe import first_line

if TYPE_CHECKING:
    from s2sim.study.compare.found import Found
    from s2sim.study.extrapolate.beyond import Beyond
    from s2sim.study.scenario.reducers import ReducerScenario
    from s2sim.study.spec import RunSpec


def answer(
    spec: RunSpec, scenario: ReducerScenario, found: Found, beyond: Beyond | None, *, interrupted: bool
) -> Result:
    """Return rows, verdict, notes and run record."""
    records = found.recorded[found.largest]
    warn_of_idle_library_options(spec.library, scenario.library, records)
    rows, verdicts = give_verdicts(spec, scenario, found, beyond)
    refused = tuple(found.refused)
    caveats = caveats_of(scenario, records, found.executed[found.largest], beyond, interrupted=interrupted)
    notes = [*([] if beyond is None else beyond.all_notes()), *run_notes(spec, scenario, records)]
    notes += [f"{item.reducer} did not run with {item.workers} workers: {item.why}" for item in refused]
    return Result(
        spec=spec,
        cluster=first_line(scenario.cluster(scenario.ranks_of(found.largest))),
        gradients=whose_gradients(scenario, scenario.ranks_of(found.largest)),
        library=scenario.library.option_string,
        gpu=scenario.gpu.name,
        machines=scenario.machines.text,
        provenance=origin(spec, scenario, beyond),
        results=rows,
        verdict=next(each for each in verdicts if each.workers == found.largest),
        verdicts=verdicts,
        refused=refused,
        notes=tuple(dict.fromkeys([*notes, *caveats])),
        caveats=caveats,
    )
