"""The rows of a run with what is thought of each, and the verdict on each number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.study.break_even.scan import Scan
from s2sim.study.compare.choice import choose
from s2sim.study.compare.judge import candidates_of, judge
from s2sim.study.compare.over_counts import over_workers
from s2sim.study.compare.sensitivity import find_flips
from s2sim.study.compare.verdict import Known, give_verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.compare.found import Found
    from s2sim.study.measuring.result import Row
    from s2sim.study.measuring.verdict_row import Verdict
    from s2sim.study.scenario.reducers import ReducerScenario
    from s2sim.study.scenario.training import Training
    from s2sim.study.spec import RunSpec


def give_verdicts(
    spec: RunSpec, scenario: ReducerScenario, found: Found
) -> tuple[tuple[Row, ...], tuple[Verdict, ...]]:
    """Return all rows, judged, and a verdict for each number of workers, in the order in which they ran."""
    rows: list[Row] = []
    verdicts = []
    for workers, predictions in found.predictions.items():
        judged = judge([each.row for each in predictions], spec.max_error)
        rows += judged
        verdicts.append(give_verdict(judged, _known(spec, scenario, found, workers, judged)))
    return tuple(rows), tuple(verdicts)


def _known(spec: RunSpec, scenario: ReducerScenario, found: Found, workers: int, rows: Sequence[Row]) -> Known:
    """Return what the verdict on the rows of one number of workers is given beside them."""
    candidates = candidates_of(rows, spec.max_error)
    executed = [each.executed for each in found.predictions[workers]]
    stands_on, beyond = None, found.extrapolated
    if beyond is not None and any(row.extrapolated is not None for row in rows):
        stands_on = "extrapolated from toy gradients" if beyond.toy else "extrapolated"
    training = scenario.training
    simulated = {} if training is None else {"compute": _compute_text(training), "behind": _behind(training)}
    return Known(
        library=scenario.library.option_string,
        max_error=spec.max_error,
        steps=spec.steps,
        scan=found.scan if workers == found.largest else Scan(None),
        flips=find_flips(candidates, executed, choose(candidates, spec.max_error), spec.max_error),
        stands_on=stands_on,
        faults=tuple(dict.fromkeys(fault.partition(":")[0] for fault in spec.faults)),
        pays_over=(*found.over_batches, *over_workers(found.rows)) if workers == found.largest else (),
        **simulated,
    )


def _compute_text(training: Training) -> str:
    """Return whose compute iterations have."""
    times = f" x {training.accumulate}" if training.accumulate > 1 else ""
    return f"{training.profile.gpu} batch {training.profile.batch}{times}"


def _behind(training: Training) -> str:
    """Return what communication may hide behind: the next forward too, where that waits for its own layers alone."""
    return "backward" if training.discipline.waits_for_all else "compute"
