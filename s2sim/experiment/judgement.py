"""Judgements of rows: the rule of the choice that put each where it is, and the Pareto fronts of error and cost."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Context
from math import inf, isclose
from typing import NamedTuple

from s2sim.experiment import choice as choices
from s2sim.experiment.choice import Candidate, Choice
from s2sim.experiment.row_parts import Judgement
from s2sim.experiment.rows import Row
from s2sim.units import format_seconds


class Reason(NamedTuple):
    """Why a candidate is where it is."""

    rule: str
    threshold: float | None
    change: str | None


def judge(rows: Sequence[Row], max_error: float | None) -> list[Row]:
    """Return the rows of one number of workers, ``dense`` among them, each with its judgement."""
    candidates = choices.candidates_of(rows, max_error)
    choice = choices.choose(candidates, max_error)
    dense_s = next(each.time_s for each in candidates if each.baseline)
    beaten = choices.find_dominated(candidates)
    judged = []
    for row, each in zip(rows, candidates, strict=True):
        judgement = Judgement(
            time_s=each.time_s,
            speedup=dense_s / each.time_s if each.time_s else 1.0 if dense_s == 0 else float("inf"),
            rejected=each.rejected,
            dominated_by=beaten.get(each.name),
            as_dense=not each.baseline and isclose(each.time_s, dense_s, rel_tol=1e-9) and each.exact,
            exact=each.exact,
            doubt=each.doubt,
            **_explain(each, candidates, choice, beaten.get(each.name), max_error)._asdict(),
        )
        judged.append(replace(row, judgement=judgement))
    return judged


def _explain(
    each: Candidate, candidates: Sequence[Candidate], choice: Choice, dominator: str | None, max_error: float | None
) -> Reason:
    """Return the rule of `choose` that put a candidate where it is."""
    dense = next(other for other in candidates if other.baseline)
    if each.baseline:
        return Reason("what others are compared with", None, None)
    if each.rejected is not None:
        limit = max_error if each.rejected.startswith("error over") else 1.0 if each.error is not None else None
        return Reason(f"rejected: {each.rejected}", limit, None if limit is None else f"an error of at most {limit:g}")
    needed = max(choices.WORTHWHILE, each.doubt)
    if not each.pays_over(dense):
        faster = f"a time of at most {format_seconds(dense.time_s / needed)}"
        if each.time_s >= dense.time_s:
            return Reason("not faster than dense", needed, faster)
        doubted = "its extrapolation" if "gradients" in each.doubted else each.doubted
        small = "less than 1%" if each.doubt <= choices.WORTHWHILE else f"less than {doubted} may be off"
        return Reason(f"gains {small} on dense", needed, faster)
    accepted = f"--max-error {_round_up(each.error or 0.0):g} or more"
    without = choice.without
    if each is choice.best:
        return Reason("chosen", needed, None)
    if without is not None and each is without.best:
        return Reason("chosen if nothing is assumed", needed, None)
    if each in (choice.lossy, choice.faster) or (without is not None and each is without.lossy):
        condition = "training confirms it" if each.feedback else "its error is acceptable"
        return Reason(f"an alternative if {condition}", needed, accepted)
    best = choice.lossy or choice.best
    if dominator is None and each.time_s <= best.time_s and each.loss > best.loss:
        return Reason(f"more error than {best.name}", needed, accepted)
    return _lost_to(each, candidates, best, dominator, dense)


def _round_up(error: float) -> float:
    """Return the least error of two digits that is no less.

    >>> _round_up(0.000231), _round_up(0.801), _round_up(0.1)
    (0.00024, 0.81, 0.1)
    """
    return float(Context(prec=2, rounding=ROUND_CEILING).create_decimal(repr(error)))


def _lost_to(
    each: Candidate, candidates: Sequence[Candidate], best: Candidate, dominator: str | None, dense: Candidate
) -> Reason:
    """Return which other candidate is taken before one that pays."""
    exact = (other for other in candidates if other.rejected is None and (other.exact or other.baseline))
    quickest = min(exact, key=lambda other: other.time_s)
    gaining = [other for other in candidates if other.rejected is None and other.gains_on(quickest) and not other.exact]
    most_s = dense.time_s - choices.least_saving_s(gaining, dense)
    if dominator is not None:
        winner, why = next(other for other in candidates if other.name == dominator), "no faster and no more exact than"
    elif not each.exact and not each.gains_on(quickest):
        winner, why = quickest, "its error buys less than 1% over"
    elif each.feedback and each.time_s > most_s:
        name = min((other for other in gaining if other.feedback), key=lambda other: other.time_s).name
        faster = f"a time of at most {format_seconds(most_s)}"
        return Reason(f"saves less than half of what {name} does", dense.time_s / most_s, faster)
    elif each.assumes is not None:
        return Reason(f"assumes more than {best.name}", None, each.assumes)
    else:
        winner, why = best, "slower than"
    gain = dense.time_s / winner.time_s if winner.time_s else None
    return Reason(f"{why} {winner.name}", gain, f"a time below {format_seconds(winner.time_s)}")


def pareto_front(rows: Sequence[Row], cost: Callable[[Row], float]) -> frozenset[str]:
    """Return the option strings that are Pareto-optimal in error and cost at one number of workers, if acceptable."""
    best, best_cost = inf, -inf
    chosen = set()
    for row in sorted(rows, key=lambda row: (cost(row), _error(row))):
        error = _error(row)
        if error < best or (error == best < inf and cost(row) == best_cost):
            chosen.add(row.reducer)
            best, best_cost = error, cost(row)
    return frozenset(chosen)


def pareto_fronts(rows: Sequence[Row]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the fronts of error and bytes, and of error and time: of iterations where they were simulated."""
    # One rank alone sends nothing: what it would hand to a network stands for that.
    alone = rows[0].workers == 1
    by_bytes = pareto_front(rows, lambda row: row.payload_bytes_per_rank if alone else row.bytes_sent_per_rank)
    by_time = pareto_front(rows, lambda row: row.time_s.total if row.iteration is None else row.iteration.total_s)
    return by_bytes, by_time


def _error(row: Row) -> float:
    """Return the error for comparison: 0 for exact rows, infinite for unacceptable ones."""
    if row.exact:
        return 0.0
    error = row.error.relative_l2
    return inf if error is None or choices.rejected(row, None) is not None else error
