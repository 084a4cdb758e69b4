"""From all that a run has found to its result."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from s2sim.study.compare.fault_notes import fault_notes
from s2sim.study.compare.library_notes import warn_of_idle_library_options
from s2sim.study.compare.notes import run_notes
from s2sim.study.compare.origin import origin
from s2sim.study.compare.verdict import give_verdict
from s2sim.study.extrapolate.whose import whose_gradients
from s2sim.study.measuring.result import Result
from s2sim.study.progress import INTERRUPTED_NOTE
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
    verdict = give_verdict(
        [row for row in found.rows if row.workers == found.largest],
        max_error=spec.max_error,
        scan=found.scan,
        library=scenario.library.option_string,
    )
    notes = [
        *run_notes(spec, scenario, records),
        *fault_notes(scenario, records, found.executed[found.largest]),
        *([INTERRUPTED_NOTE] if interrupted else []),
    ]
    if beyond is not None:
        verdict = replace(verdict, text=f"{verdict.text} Mind that this is {beyond.sentence()}.")
        notes = [*beyond.all_notes(), *notes]
    return Result(
        spec=spec,
        headline=first_line(scenario.cluster(found.largest)),
        gradients=whose_gradients(scenario, found.largest),
        library=scenario.library.option_string,
        gpu=scenario.gpu.name,
        machines=scenario.machines.text,
        provenance=origin(spec, scenario, beyond),
        rows=tuple(found.rows),
        verdict=verdict,
        notes=tuple(notes),
    )
