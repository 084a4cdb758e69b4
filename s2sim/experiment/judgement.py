"""Judgements of rows: the rule of the choice that put each where it is, and the Pareto fronts of error and cost."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Context
from functools import partial
from math import inf, isclose
from typing import NamedTuple

from s2sim.experiment.choice import (
    WORTHWHILE,
    Candidate,
    Choice,
    candidates_of,
    choose,
    find_dominated,
    least_saving_s,
    rejected,
)
from s2sim.experiment.row_parts import Judgement
from s2sim.experiment.rows import Row
from s2sim.units import format_seconds


class Reason(NamedTuple):
    """Why a candidate is where it is."""

    rule: str
    threshold: float | None
    change: str | None


class Compared(NamedTuple):
    """Candidates of one number of workers, ``dense`` among them, with what was chosen."""

    candidates: Sequence[Candidate]
    choice: Choice
    max_error: float | None
    within: Callable[[float], list[Candidate]]  # The candidates by another limit of error

    @property
    def dense(self) -> Candidate:
        """What others are compared with."""
        return next(each for each in self.candidates if each.baseline)

    @property
    def quickest_exact(self) -> Candidate:
        """The quickest without an error, which may be ``dense``."""
        exact = (each for each in self.candidates if each.rejected is None and (each.exact or each.baseline))
        return min(exact, key=lambda each: each.time_s)


def judge(rows: Sequence[Row], max_error: float | None) -> list[Row]:
    """Return the rows of one number of workers, ``dense`` among them, each with its judgement."""
    candidates = candidates_of(rows, max_error)
    compared = Compared(candidates, choose(candidates, max_error), max_error, partial(candidates_of, rows))
    dense_s = compared.dense.time_s
    beaten = find_dominated(candidates)
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
            **_explain(each, compared, beaten.get(each.name))._asdict(),
        )
        judged.append(replace(row, judgement=judgement))
    return judged


def _explain(each: Candidate, compared: Compared, dominator: str | None) -> Reason:
    """Return the rule of `choose` that put a candidate where it is."""
    dense, choice, most = compared.dense, compared.choice, compared.max_error
    if each.baseline:
        return Reason("what others are compared with", None, None)
    if each.rejected is not None:
        limit = most if each.rejected.startswith("error over") else 1.0 if each.error is not None else None
        return Reason(f"rejected: {each.rejected}", limit, None if limit is None else f"an error of at most {limit:g}")
    needed = max(WORTHWHILE, each.doubt)
    if not each.pays_over(dense):
        doubted = "its extrapolation" if "gradients" in each.doubted else each.doubted
        small = "less than 1%" if each.doubt <= WORTHWHILE else f"less than {doubted} may be off"
        why = "not faster than dense" if each.time_s >= dense.time_s else f"gains {small} on dense"
        return Reason(why, needed, longest_offered_s(each, compared)[1])
    accepted = f"--max-error {_round_up(each.error or 0.0):g} or more"
    without = choice.without
    if each is choice.best:
        return Reason("chosen", needed, None)
    if without is not None and each is without.best:
        return Reason("chosen if nothing is assumed", needed, None)
    if each in (choice.lossy, choice.faster) or (without is not None and each is without.lossy):
        condition = "training confirms it" if each.feedback else "its error is acceptable"
        return Reason(f"an alternative if {condition}", needed, accepted)
    if each.assumes is not None and dominator is None:
        return Reason(f"assumes more than {(choice.lossy or choice.best).name}", None, each.assumes)
    return _lost(each, compared, dominator)


def _lost(each: Candidate, compared: Compared, dominator: str | None) -> Reason:
    """Return the rule by which another one is taken before one that pays, and what would make it an offer."""
    why, limit = _lost_to(each, compared, dominator), _round_up(each.error or 0.0)
    above = not each.exact and (compared.max_error or 0.0) < limit
    if above and is_offered(each, choose(compared.within(limit), limit)):
        return Reason(why, limit, f"--max-error {limit:g} or more")
    longest_s, change = longest_offered_s(each, compared)
    return Reason(why, compared.dense.time_s / longest_s if longest_s else None, change)


def longest_offered_s(each: Candidate, compared: Compared) -> tuple[float | None, str | None]:
    """Return the longest time with which one that is not offered would be, and that in words; None if there is none."""
    candidates, choice, max_error, _ = compared
    dense, quickest = compared.dense, compared.quickest_exact
    gaining = [other for other in candidates if other.rejected is None and other.feedback]
    at_most = {dense.time_s - least_saving_s(gaining, dense), dense.time_s / max(WORTHWHILE, each.doubt)}
    below = {other.time_s for other in (quickest, *choice.named())}
    at_most |= {time_s * by for time_s in below for by in (WORTHWHILE, 1 / WORTHWHILE)}
    for time_s in sorted(below | at_most, reverse=True):
        just_below = replace(each, time_s=time_s * (1 - 1e-12))
        quicker = [just_below if other is each else other for other in candidates]
        if time_s <= each.time_s and is_offered(each, choose(quicker, max_error)):
            return time_s, f"a time {'of at most' if time_s in at_most else 'below'} {format_seconds(time_s)}"
    return None, None


def is_offered(each: Candidate, choice: Choice) -> bool:
    """Return whether a choice, or what is chosen without assumptions, offers a candidate."""
    offers = (choice.best, choice.exact, choice.lossy, choice.faster)
    offered = any(other is not None and other.name == each.name for other in offers)
    return offered or (choice.without is not None and is_offered(each, choice.without))


def _round_up(error: float) -> float:
    """Return the least error of two digits that is no less.

    >>> _round_up(0.000231), _round_up(0.801), _round_up(0.1)
    (0.00024, 0.81, 0.1)
    """
    return float(Context(prec=2, rounding=ROUND_CEILING).create_decimal(repr(error)))


def _lost_to(each: Candidate, compared: Compared, dominator: str | None) -> str:
    """Return why one that pays is not taken, and which other candidate is before it."""
    candidates, dense, quickest = compared.candidates, compared.dense, compared.quickest_exact
    best = compared.choice.lossy or compared.choice.best
    gaining = [other for other in candidates if other.rejected is None and other.gains_on(quickest) and not other.exact]
    if dominator is not None:
        winner, why = next(other for other in candidates if other.name == dominator), "no faster and no more exact than"
    elif not each.exact and not each.gains_on(quickest):
        winner, why = quickest, "its error buys less than 1% over"
    elif each.feedback and each.time_s > dense.time_s - least_saving_s(gaining, dense):
        winner = min((other for other in gaining if other.feedback), key=lambda other: other.time_s)
        return f"saves less than half of what {winner.name} does"
    else:
        winner, why = best, "more error than" if each.time_s <= best.time_s and each.loss > best.loss else "slower than"
    return f"{why} {winner.name}"


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
    return inf if error is None or rejected(row, None) is not None else error
