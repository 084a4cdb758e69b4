"""From rows to what the choice is made of: the time that the verdict is about, and what rules a row out."""

from __future__ import annotations

from dataclasses import replace
from math import isclose
from statistics import fmean, median_low
from typing import TYPE_CHECKING

from s2sim.study.compare.choice import Candidate, dominated
from s2sim.study.measuring.row_parts import Judgement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.study.measuring.result import Row

# What has an error of 1 on a layer sends nothing of it, which error feedback makes good; what has more is worse.
_ZEROS = 1 + 1e-6

# From here on an error rounds to 1 in two digits: hardly anything arrives, and speed alone is no gain. Only steps in
# which error feedback makes that good can say otherwise.
_AS_BAD_AS_ZEROS = 0.995

_NO_MEAN = {
    "sign": "signs, not the mean: only training can tell",
    "weights": "models of their own: only training can tell",
    "shards": "parts of tables: no rank ends with the mean",
}


def judged_time_s(row: Row) -> float:
    """Return the time that a verdict is about: of the phase or the iteration; of the median step if there are some.

    Of what does not exchange every step it is the mean.
    """
    if row.iteration_s is None:
        return _phase_s(row)
    return row.iteration_s if row.iteration is not None else row.iteration_s - row.time_s.total + _phase_s(row)


def _phase_s(row: Row) -> float:
    if row.period == 1:
        return median_low(step.total_s for step in row.steps) if row.steps else row.time_s.total
    # In the median step nothing is exchanged: the mean over the last whole periods.
    whole = len(row.steps) // row.period * row.period
    return fmean(step.total_s for step in row.steps[-whole:]) if whole else row.time_s.total


def _doubt(row: Row) -> float:
    """Return by which factor the time that a verdict is about may be longer: what GPUs compute is not extrapolated."""
    time_s = judged_time_s(row)
    if row.extrapolated is None or not time_s:
        return 1.0
    return 1 + (row.extrapolated.doubt - 1) * _phase_s(row) / time_s


def rejected(row: Row, max_error: float | None) -> str | None:
    """Return why a reducer cannot be recommended, however fast; None where it can.

    It has to send something else than dense does: another schedule for the same bytes is no compressor. It has to end
    with a mean, or its error says nothing. That has to be defined, below that of zeros as a whole and
    over what is compressed, not above it on any layer, and not above what the user allows. Where no residuals were
    followed it has to be clearly below that of zeros; where they were, they must not diverge.
    """
    if row.estimates != "mean":
        return _NO_MEAN[row.estimates]
    if row.lossless:
        rescheduled = row.options.get("collective") is not None and not row.baseline
        return "dense by another schedule, as --collective times all reducers by" if rescheduled else None
    error, compressed = row.error.relative_l2, row.error_compressed.relative_l2
    if error is None:
        return "error undefined"
    largest = max(error, compressed or 0)
    if largest >= 1:
        return "worse than zeros"
    layer, worst = row.error_worst_layer
    if worst is not None and worst > _ZEROS:
        return f"worse than zeros on {layer}"
    if row.residual_trend is None and largest >= _AS_BAD_AS_ZEROS:
        return "as bad as zeros"
    if row.residual_trend == "diverges":
        return "residuals diverge"
    if max_error is not None and error > max_error:
        return f"error over {max_error:g}"
    return None


def acceptable(row: Row, max_error: float | None) -> bool:
    """Return whether a reducer's error allows it to win, see `rejected`."""
    return rejected(row, max_error) is None


def candidates_of(rows: Sequence[Row], max_error: float | None) -> list[Candidate]:
    """Return the rows of one number of workers as the choice sees them; the first ``dense`` is the baseline.

    What training does without a compressor is never rejected, however its type rounds.
    """
    baseline = next(row for row in rows if row.baseline)
    return [
        _candidate(row, None if row is baseline else rejected(row, max_error), baseline=row is baseline) for row in rows
    ]


def _candidate(row: Row, why_not: str | None, *, baseline: bool) -> Candidate:
    return Candidate(
        name=row.reducer,
        time_s=judged_time_s(row),
        error=row.error.relative_l2,
        exact=row.exact,
        baseline=baseline,
        assumes=row.assumes,
        rejected=why_not,
        doubt=_doubt(row),
    )


def judge(rows: Sequence[Row], max_error: float | None) -> list[Row]:
    """Return the rows of one number of workers with what is thought of each, ``dense`` among them."""
    candidates = candidates_of(rows, max_error)
    dense_s = next(each.time_s for each in candidates if each.baseline)
    beaten = dominated(candidates)
    return [
        replace(
            row,
            judgement=Judgement(
                time_s=each.time_s,
                speedup=dense_s / each.time_s if each.time_s else 1.0 if dense_s == 0 else float("inf"),
                rejected=each.rejected,
                dominated_by=beaten.get(each.name),
                as_dense=not each.baseline and isclose(each.time_s, dense_s, rel_tol=1e-9) and each.exact,
            ),
        )
        for row, each in zip(rows, candidates, strict=True)
    ]
