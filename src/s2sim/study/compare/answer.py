"""From all that a run has found to its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.study.break_even.scan import Scan
from s2sim.study.compare.choice import choose
from s2sim.study.compare.fault_notes import fault_notes
from s2sim.study.compare.judge import candidates_of, judge
from s2sim.study.compare.library_notes import warn_of_idle_library_options
from s2sim.study.compare.notes import missing_rivals, run_notes
from s2sim.study.compare.origin import origin
from s2sim.study.compare.sensitivity import find_flips
from s2sim.study.compare.verdict import Known, give_verdict
from s2sim.study.extrapolate.whose import whose_gradients
from s2sim.study.measuring.result import Result
from s2sim.study.progress import INTERRUPTED_NOTE
from s2sim.topology.describe import first_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.compare.found import Found
    from s2sim.study.extrapolate.beyond import Beyond
    from s2sim.study.measuring.result import Row
    from s2sim.study.scenario.reducers import ReducerScenario
    from s2sim.study.spec import RunSpec


def answer(
    spec: RunSpec, scenario: ReducerScenario, found: Found, beyond: Beyond | None, *, interrupted: bool
) -> Result:
    """Return rows, verdict, notes and run record."""
    records = found.recorded[found.largest]
    warn_of_idle_library_options(spec.library, scenario.library, records)
    rows: list[Row] = []
    verdicts = []
    for workers in found.recorded:
        judged = judge([row for row in found.rows if row.workers == workers], spec.max_error)
        rows += judged
        verdicts.append(give_verdict(judged, _known(spec, scenario, found, beyond, judged)))
    caveats = [
        *missing_rivals(records),
        *fault_notes(scenario, records, found.executed[found.largest]),
        *([INTERRUPTED_NOTE] if interrupted else []),
    ]
    if beyond is not None:
        caveats.insert(0, beyond.sentence())
    notes = [*([] if beyond is None else beyond.all_notes()), *run_notes(spec, scenario, records)]
    return Result(
        spec=spec,
        headline=first_line(scenario.cluster(found.largest)),
        gradients=whose_gradients(scenario, found.largest),
        library=scenario.library.option_string,
        gpu=scenario.gpu.name,
        machines=scenario.machines.text,
        provenance=origin(spec, scenario, beyond),
        rows=tuple(rows),
        verdict=next(each for each in verdicts if each.workers == found.largest),
        verdicts=tuple(verdicts),
        notes=tuple(dict.fromkeys([*notes, *caveats])),
        caveats=tuple(caveats),
    )


def _known(spec: RunSpec, scenario: ReducerScenario, found: Found, beyond: Beyond | None, rows: Sequence[Row]) -> Known:
    """Return what the verdict on the rows of one number of workers is given beside them."""
    workers = rows[0].workers
    candidates = candidates_of(rows, spec.max_error)
    stands_on = None
    if beyond is not None and any(row.extrapolated is not None for row in rows):
        stands_on = "extrapolated from toy gradients" if beyond.toy else "extrapolated"
    return Known(
        library=scenario.library.option_string,
        max_error=spec.max_error,
        steps=spec.steps,
        scan=found.scan if workers == found.largest else Scan(None),
        flips=find_flips(candidates, found.executed[workers], choose(candidates, spec.max_error), spec.max_error),
        stands_on=stands_on,
    )
