"""The law of choice: which of several reducers to use, or none.

What is exact needs no reason to be used but time. What is not needs one for its error: that it stays below what the
user allows, or, where nobody has said what is allowed, that nothing with less error gains anything. What is worse than
zeros on any layer is out, however fast; and what rests on an assumption is never chosen without the best that does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal

    Decision = Literal["use", "undecided", "do not compress"]

# A gain below one per cent is within what models of this kind can tell apart.
WORTHWHILE = 1.01


@dataclass(frozen=True, slots=True)
class Candidate:
    """A reducer as the choice sees it.

    Attributes
    ----------
    name : str
        Option string.
    time_s : float
        Of what the verdict is about: a phase or an iteration, of one step or of the median one.
    error : float or None
        Relative L2 error; None where the exact mean is zero and the reducer's is not.
    exact : bool
        Whether all that is lost is rounding.
    baseline : bool
        Whether it is what others are compared with.
    assumes : str or None
        On what its time rests beside what is simulated.
    rejected : str or None
        Why it cannot be chosen, whatever its time.
    doubt : float
        By which factor its time may be longer, where it is extrapolated.
    """

    name: str
    time_s: float
    error: float | None
    exact: bool
    baseline: bool = False
    assumes: str | None = None
    rejected: str | None = None
    doubt: float = 1.0

    @property
    def loss(self) -> float:
        """What it loses, to be compared: rounding is nothing."""
        return 0.0 if self.exact else self.error or 0.0

    def gains_on(self, other: Candidate) -> bool:
        """Return whether it is faster by more than the model can err."""
        return self.time_s * WORTHWHILE <= other.time_s and self.time_s < other.time_s


@dataclass(frozen=True, slots=True)
class Choice:
    """What to use.

    Attributes
    ----------
    decision : {"use", "undecided", "do not compress"}
        Undecided: there is a gain, but less than the model can err, or what it was extrapolated from.
    exact : Candidate
        The fastest exact one, which may be the baseline.
    instead : Candidate or None
        The fastest exact one that assumes nothing, where ``exact`` does.
    lossy : Candidate or None
        The one to use if its error is acceptable, where one gains on all exact ones.
    faster : Candidate or None
        One that gains on ``lossy`` with more error, where nobody has said how much is allowed.
    runner_up : Candidate or None
        The fastest that can be chosen beside the baseline; None without any.
    """

    decision: Decision
    exact: Candidate
    instead: Candidate | None
    lossy: Candidate | None
    faster: Candidate | None
    runner_up: Candidate | None

    @property
    def best(self) -> Candidate:
        """What the verdict names first."""
        return self.lossy if self.lossy is not None and self.exact.baseline else self.exact

    def named(self) -> tuple[Candidate, ...]:
        """Return all but the baseline that a verdict speaks of."""
        several = (self.exact, self.instead, self.lossy, self.faster, self.runner_up)
        return tuple(dict.fromkeys(each for each in several if each is not None and not each.baseline))


def dominated(candidates: Sequence[Candidate]) -> dict[str, str]:
    """Return which candidates another one beats in time or error and equals in both, and which one does.

    One that rests on an assumption beats only others that do.
    """
    able = [each for each in candidates if each.rejected is None]
    found = {}
    for each in able:
        better = [
            other
            for other in able
            if (other.time_s, other.loss) != (each.time_s, each.loss)
            and other.time_s <= each.time_s
            and other.loss <= each.loss
            and (other.assumes is None or each.assumes is not None)
        ]
        if better:
            found[each.name] = min(better, key=lambda other: (other.time_s, other.loss)).name
    return found


def choose(candidates: Sequence[Candidate], max_error: float | None) -> Choice:
    """Return what to use of several candidates, the baseline among them.

    Parameters
    ----------
    candidates : sequence of Candidate
        Those with more than ``max_error`` are rejected already.
    max_error : float or None
        Largest relative L2 error that the user allows, if they have said so.
    """
    baseline = next(each for each in candidates if each.baseline)
    able = [each for each in candidates if each.rejected is None]
    exact = _fastest(each for each in able if each.exact or each.baseline)
    if not exact.gains_on(baseline):
        exact = baseline
    instead = None
    if exact.assumes is not None:
        instead = _fastest(each for each in able if (each.exact or each.baseline) and each.assumes is None)
        instead = instead if instead.gains_on(baseline) else baseline
    gaining = [each for each in able if not (each.exact or each.baseline) and each.gains_on(exact)]
    gaining = [each for each in gaining if each.assumes is None] or gaining
    lossy = faster = None
    if gaining:
        fastest = min(each.time_s for each in gaining)
        near = [each for each in gaining if each.time_s <= fastest * WORTHWHILE]
        if max_error is None:
            lossy = min(gaining, key=_least_loss)
            more = [each for each in near if each.gains_on(lossy)]
            faster = min(more, key=_least_loss, default=None)
        else:
            lossy = min(near, key=_least_loss)
    others = [each for each in able if not each.baseline]
    runner_up = min(others, key=lambda each: (each.time_s, each.loss), default=None)
    choice = Choice("use", exact, instead, lossy, faster, runner_up)
    best = choice.best
    if not best.baseline:
        return choice if best.time_s * best.doubt < baseline.time_s else replace(choice, decision="undecided")
    gains = runner_up is not None and runner_up.time_s < baseline.time_s
    return replace(choice, decision="undecided" if gains else "do not compress")


def _fastest(candidates: Iterable[Candidate]) -> Candidate:
    """Return the fastest; of those that nothing tells apart one that assumes nothing."""
    held = list(candidates)
    fastest = min(each.time_s for each in held)
    near = [each for each in held if each.time_s <= fastest * WORTHWHILE]
    return min(near, key=lambda each: (each.assumes is not None, each.time_s))


def _least_loss(candidate: Candidate) -> tuple[float, float]:
    return candidate.loss, candidate.time_s
