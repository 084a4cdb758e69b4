"""The law of choice: which of several reducers to use, or none.

What is exact needs no reason to be used but time. What is not needs one for its error: that it stays below what the
user allows, or, where nobody has said what is allowed, that nothing with less error gains anything. What is worse than
zeros on any layer is out, however fast; and what rests on an assumption is never chosen without the best that does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
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
    lossy : Candidate or None
        The one to use if its error is acceptable, where one gains on all exact ones.
    faster : Candidate or None
        One that gains on ``lossy`` with more error, where nobody has said how much is allowed.
    doubtful : Candidate or None
        What would be chosen first, if its gain were not less than what it was extrapolated from may be off.
    runner_up : Candidate or None
        The fastest that is not rejected beside the baseline and what does as it does; None without any.
    without : Choice or None
        What is chosen of those that assume nothing, where the best one assumes something.
    """

    decision: Decision
    exact: Candidate
    lossy: Candidate | None
    faster: Candidate | None
    doubtful: Candidate | None
    runner_up: Candidate | None
    without: Choice | None = None

    @property
    def best(self) -> Candidate:
        """What the verdict names first."""
        return _first(self.exact, self.lossy)

    def named(self) -> tuple[Candidate, ...]:
        """Return all but the baseline that a verdict speaks of."""
        several = (self.exact, self.lossy, self.faster, self.doubtful, self.runner_up)
        own = (each for each in several if each is not None and not each.baseline)
        return tuple(dict.fromkeys([*own, *(self.without.named() if self.without is not None else ())]))


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
    beaten = dominated(able)
    best = [each for each in able if each.baseline or each.name not in beaten]
    sure = [each for each in best if each.baseline or each.time_s * each.doubt < baseline.time_s]
    exact, lossy, faster = _pick(sure, baseline, max_error)
    wished = _first(*_pick(best, baseline, max_error)[:2])
    others = [each for each in able if not each.baseline and (not each.exact or each.time_s != baseline.time_s)]
    choice = Choice(
        "use",
        exact,
        lossy,
        faster,
        doubtful=None if wished in sure else wished,
        runner_up=min(others, key=lambda each: (each.time_s, each.loss), default=None),
    )
    if choice.best.baseline:
        gains = choice.runner_up is not None and choice.runner_up.time_s < baseline.time_s
        return replace(choice, decision="undecided" if gains else "do not compress")
    if choice.best.assumes is None:
        return choice
    return replace(choice, without=choose([each for each in candidates if each.assumes is None], max_error))


def _first(exact: Candidate, lossy: Candidate | None) -> Candidate:
    """Return what is recommended first: what is exact, if it gains anything."""
    return lossy if lossy is not None and exact.baseline else exact


def _pick(
    able: Sequence[Candidate], baseline: Candidate, max_error: float | None
) -> tuple[Candidate, Candidate | None, Candidate | None]:
    """Return the exact one to use, the lossy one, and a faster one with more error, as `Choice` has them."""
    exacts = [each for each in able if each.exact or each.baseline]
    exact = _fastest([each for each in exacts if each.gains_on(baseline)] or [baseline])
    # An error is no price for what something exact gains as well, however little that is.
    quickest = min(exacts, key=lambda each: each.time_s)
    gaining = [each for each in able if each not in exacts and each.gains_on(quickest)]
    gaining = [each for each in gaining if each.assumes is None] or gaining
    if not gaining:
        return exact, None, None
    fastest_s = min(each.time_s for each in gaining)
    near = [each for each in gaining if each.time_s <= fastest_s * WORTHWHILE]
    if max_error is not None:
        return exact, min(near, key=_least_loss), None
    lossy = min(gaining, key=_least_loss)
    return exact, lossy, min((each for each in near if each.gains_on(lossy)), key=_least_loss, default=None)


def _fastest(candidates: Sequence[Candidate]) -> Candidate:
    """Return the fastest; of those that nothing tells apart one that assumes nothing."""
    fastest_s = min(each.time_s for each in candidates)
    near = [each for each in candidates if each.time_s <= fastest_s * WORTHWHILE]
    return min(near, key=lambda each: (each.assumes is not None, each.time_s))


def _least_loss(candidate: Candidate) -> tuple[float, float]:
    return candidate.loss, candidate.time_s
