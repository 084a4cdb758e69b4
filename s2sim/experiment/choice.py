"""The choice: which of several reducers to use, or none.

An exact reducer is chosen for its time alone. A lossy one needs an error below the allowed one or, without a limit, a
gain that nothing with less error has. One that is worse than zeros on any layer is rejected; one that rests on an
assumption is never chosen without naming the best that does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median_low
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats
from s2sim.experiment.rows import Row

Decision = Literal["use", "undecided", "do not compress"]

# A gain below one per cent is within what models of this kind can tell apart.
WORTHWHILE = 1.01
# What loses more than this is not offered for its speed: three quarters of the gradient's energy are there. What error
# feedback delivers later is, since one step does not tell what it loses.
_NO_OFFER = 0.5
# What types of 16 bits round is below.
_HARDLY = 0.01


@dataclass(frozen=True, slots=True)
class Candidate:
    """A reducer as the choice sees it."""

    name: str  # Option string
    time_s: float  # Of what the verdict is about: a phase or an iteration, of one step or of the median one
    error: float | None  # Relative L2 error; None where the exact mean is zero and the reducer's is not
    exact: bool  # Whether all that is lost is rounding
    baseline: bool = False  # Whether it is what others are compared with
    assumes: str | None = None  # On what its time rests beside what is simulated
    rejected: str | None = None  # Why it cannot be chosen, whatever its time
    doubt: float = 1.0  # By which factor its time may be longer, where it is extrapolated, or of a recorded job
    doubted: str = "the gradients it stands on"  # What may be off by that
    error_range: tuple[float, float] | None = None  # Between what the error lies, where it is hardly known
    # Whether training adds what is lost to later steps, and only one step is known: its error then says little
    feedback: bool = False
    unbeatable: bool = False  # Whether so little of its communication is exposed that no reducer could gain

    @property
    def loss(self) -> float:
        """What it loses, to be compared: to the two digits that errors are printed with; rounding is nothing."""
        return 0.0 if self.exact else float(f"{self.error or 0.0:.2g}")

    def gains_on(self, other: "Candidate") -> bool:
        """Return whether it is faster by more than the model can err."""
        return self.time_s * WORTHWHILE <= other.time_s and self.time_s < other.time_s

    def pays_over(self, dense: "Candidate") -> bool:
        """Return whether `choose` takes it, if dense is the only other candidate."""
        return self.rejected is None and self.gains_on(dense) and self.time_s * self.doubt < dense.time_s


@dataclass(frozen=True, slots=True)
class Choice:
    """What to use."""

    decision: Decision  # Undecided: there is a gain, but less than the model can err, or what it was extrapolated from
    exact: Candidate  # The fastest exact one, which may be the baseline
    lossy: Candidate | None  # The one to use if its error is acceptable, where one gains on all exact ones
    faster: Candidate | None  # One that gains on ``lossy`` with more error, where nobody has said how much is allowed
    # What would be chosen first, if its gain were not less than what it was extrapolated from may be off
    doubtful: Candidate | None
    # The fastest that is not rejected beside the baseline and what does as it does; None without any
    runner_up: Candidate | None
    without: "Choice | None" = None  # What is chosen of those that assume nothing, where the best one assumes something

    @property
    def best(self) -> Candidate:
        """What the verdict names first."""
        return _default_choice(self.exact, self.lossy)

    def named(self) -> tuple[Candidate, ...]:
        """Return all but the baseline that a verdict speaks of."""
        several = (self.exact, self.lossy, self.faster, self.doubtful, self.runner_up)
        own = (each for each in several if each is not None and not each.baseline)
        return tuple(dict.fromkeys([*own, *(self.without.named() if self.without is not None else ())]))


def find_dominated(candidates: Sequence[Candidate]) -> dict[str, str]:
    """Return by name who is no worse in time and error and better in one; with an assumption, of those with one.

    What error feedback makes good one step does not tell: it is compared with what else needs that, or hardly loses.
    A gain on the baseline that is surely there is not given up for one that may be none.
    """
    able = [each for each in candidates if each.rejected is None]
    sure, found = _without_doubt(able), dict[str, str]()
    quickest_first = sorted(able, key=lambda each: (each.time_s, each.loss))
    for each in able:
        time_s, loss = each.time_s, each.loss
        for other in quickest_first:
            if other.time_s > time_s:
                break
            if (
                other.loss <= loss
                and (other.time_s, other.loss) != (time_s, loss)
                and (other.feedback or not each.feedback or other.loss <= _HARDLY)
                and (other.assumes is None or each.assumes is not None)
                and (other.name in sure or each.name not in sure)
            ):
                found[each.name] = other.name
                break
    return found


def _without_doubt(candidates: Sequence[Candidate]) -> set[str]:
    """Return the names of the baseline and of what is faster however long its time may be."""
    baseline = next(each for each in candidates if each.baseline)
    return {each.name for each in candidates if each.baseline or each.time_s * each.doubt < baseline.time_s}


def choose(candidates: Sequence[Candidate], max_error: float | None) -> Choice:
    """Return the choice among candidates with the baseline; who is above ``max_error`` is rejected already."""
    baseline = next(each for each in candidates if each.baseline)
    able = [each for each in candidates if each.rejected is None]
    beaten, without_doubt = find_dominated(able), _without_doubt(able)
    best = [each for each in able if each.baseline or each.name not in beaten]
    sure = [each for each in best if each.name in without_doubt]
    exact, lossy, faster = _pick(sure, baseline, max_error)
    wished = _default_choice(*_pick(best, baseline, max_error)[:2])
    others = [each for each in able if not each.baseline and (not each.exact or each.time_s != baseline.time_s)]
    doubtful = None if wished in sure else wished
    runner_up = min(others, key=lambda each: (each.time_s, each.loss), default=None)
    choice = Choice("use", exact, lossy, faster, doubtful=doubtful, runner_up=runner_up)
    if choice.best.baseline:
        gains = choice.runner_up is not None and choice.runner_up.time_s < baseline.time_s
        undecided = gains and (doubtful is not None or not baseline.unbeatable)
        return replace(choice, decision="undecided" if undecided else "do not compress")
    if choice.best.assumes is None:
        return choice
    return replace(choice, without=choose([each for each in candidates if each.assumes is None], max_error))


def compare_times(candidates: Sequence[Candidate], times_s: Floats) -> NDArray[np.int8]:
    """Return all that `choose` takes from times, float64 seconds of shape (candidates, cases), as rows of signs."""
    baseline_s = times_s[next(place for place, each in enumerate(candidates) if each.baseline)]
    saved_s, doubts = baseline_s - times_s, np.array([[each.doubt] for each in candidates])
    differences = (
        times_s[:, None] - times_s,
        times_s[:, None] * WORTHWHILE - times_s,
        saved_s[:, None] - saved_s[[each.feedback for each in candidates]] / 2,
        times_s * doubts - baseline_s,
    )
    return np.concatenate([np.sign(each).reshape(-1, times_s.shape[1]) for each in differences]).T.astype(np.int8)


def _default_choice(exact: Candidate, lossy: Candidate | None) -> Candidate:
    return lossy if lossy is not None and exact.baseline else exact


def _pick(
    able: Sequence[Candidate], baseline: Candidate, max_error: float | None
) -> tuple[Candidate, Candidate | None, Candidate | None]:
    """Return the exact, the lossy and the faster candidate, as `Choice` defines them."""
    exacts = [each for each in able if each.exact or each.baseline]
    exact = _fastest([each for each in exacts if each.gains_on(baseline)] or [baseline])
    # An error is no price for what something exact gains as well, however little that is.
    quickest = min(exacts, key=lambda each: each.time_s)
    gaining = [each for each in able if each not in exacts and each.gains_on(quickest)]
    gaining = [each for each in gaining if each.assumes is None] or gaining
    least_s = least_saving_s(gaining, baseline)
    gaining = [each for each in gaining if not each.feedback or baseline.time_s - each.time_s >= least_s]
    if not gaining:
        return exact, None, None
    fastest_s = min(each.time_s for each in gaining)
    near = [each for each in gaining if each.time_s <= fastest_s * WORTHWHILE]
    if max_error is not None:
        return exact, min(near, key=_least_loss), None
    lossy = min(gaining, key=_least_loss)
    offers = (each for each in near if each.feedback or max(each.error_range or [each.loss]) < _NO_OFFER)
    return exact, lossy, min((each for each in offers if each.gains_on(lossy)), key=_least_loss, default=None)


def least_saving_s(gaining: Sequence[Candidate], baseline: Candidate) -> float:
    """Return what one with feedback has to save, whatever one step loses: half of what the quickest with it does."""
    return max((baseline.time_s - each.time_s for each in gaining if each.feedback), default=0.0) / 2


def _fastest(candidates: Sequence[Candidate]) -> Candidate:
    """Return the fastest; of equals, one that assumes nothing."""
    fastest_s = min(each.time_s for each in candidates)
    near = [each for each in candidates if each.time_s <= fastest_s * WORTHWHILE]
    return min(near, key=lambda each: (each.assumes is not None, each.time_s))


def _least_loss(candidate: Candidate) -> tuple[float, float]:
    return candidate.loss, candidate.time_s


# An error of 1 on a layer sends nothing of it, which error feedback makes good; what has clearly more is worse.
_ZEROS = 1.01

# From here on an error rounds to 1 in two digits: hardly anything arrives, and speed alone is no gain. Only steps in
# which error feedback makes that good can say otherwise.
_WORSE_THAN_ZEROS = 0.995

ONLY_TRAINING = "only training can tell"
_NO_MEAN = {
    "sign": f"signs, not the mean: {ONLY_TRAINING}",
    "weights": f"models of their own: {ONLY_TRAINING}",
    "shards": "parts of tables: no rank ends with the mean",
    "update": f"steps of an optimizer of its own: {ONLY_TRAINING}",
}


def judged_time_s(row: Row) -> float:
    """Return the compared time, of phase or iteration: of the median step; the mean where not every step exchanges."""
    if row.iteration_s is None:
        return _phase_s(row)
    return row.iteration_s if row.iteration is not None else row.iteration_s - row.time_s.total + _phase_s(row)


def _phase_s(row: Row) -> float:
    times_s = [step.total_s for step in row.steps if step.settled]
    if row.period == 1:
        return median_low(times_s) if times_s else row.time_s.total
    # In the median step nothing is exchanged: the mean over the first whole periods.
    whole = len(times_s) // row.period * row.period
    return fmean(times_s[:whole]) if whole else row.time_s.total


def _share_doubt(doubt: float, time: float, phase: float) -> float:
    """Return the factor by which a compared time may be longer: compute is not extrapolated."""
    return 1 + (doubt - 1) * phase / time if time else 1.0


def required_dense(time: float, row: Row, doubt: float = 1.0, phase: float = 0.0) -> float:
    """Return dense's least time with which `choose` takes the reducer of a row, of which ``phase`` may be longer."""
    return time * max(WORTHWHILE, _share_doubt(doubt, time, phase), 1 + (row.recorded_error or 0.0))


def rejected(row: Row, max_error: float | None) -> str | None:
    """Return why a reducer cannot be recommended, however fast; None if it can.

    It must send other bytes than dense (another schedule is no compressor) and end with a mean, or its error says
    nothing. The error must be defined, below that of zeros overall and on the compressed layers, not above it on
    any layer, and within the user's limit. Without residuals over steps it must be clearly below that of zeros;
    with them, they must not diverge.
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
    # Where an error may be off by a factor, that of a layer may be as much less.
    least, _ = row.error_range or (error, error)
    if worst is not None and worst * least > _ZEROS * error:
        return f"worse than zeros on {layer}"
    if row.residual_trend is None and largest >= _WORSE_THAN_ZEROS:
        return "as bad as zeros"
    if row.residual_trend == "diverges":
        return "residuals diverge"
    return f"error over {max_error:g}" if max_error is not None and error > max_error and not row.exact else None


def exposed_share(dense: Row) -> float:
    """Return the share of an iteration of dense with exposed communication; 1 if iterations are not simulated."""
    if dense.iteration is None or not dense.iteration.total_s:
        return 1.0
    waiting = dense.iteration.waiting - dense.iteration.pipeline_wait
    return (dense.iteration.exposed_communication + waiting) / dense.iteration.total_s


def candidates_of(rows: Sequence[Row], max_error: float | None) -> list[Candidate]:
    """Return the candidates of rows of one number of workers; the first ``dense``, the baseline, is never rejected."""
    baseline = next(row for row in rows if row.baseline)

    def doubt_of(row: Row) -> tuple[float, str]:
        found = [(1 + (row.recorded_error or 0.0), "the prediction of the recorded job")]
        if row.extrapolated is not None:
            doubt = _share_doubt(row.extrapolated.doubt, judged_time_s(row), _phase_s(row))
            found.append((doubt, "the gradients it stands on"))
        return max(found)

    return [
        Candidate(
            name=row.reducer,
            time_s=judged_time_s(row),
            error=row.error.relative_l2,
            exact=row.exact,
            baseline=row is baseline,
            assumes=row.assumes,
            rejected=None if row is baseline else rejected(row, max_error),
            doubt=doubt_of(row)[0],
            doubted=doubt_of(row)[1],
            error_range=row.error_range,
            feedback=row.feedback != "no" and not row.exact and row.residual_trend is None,
            unbeatable=row is baseline and exposed_share(row) < WORTHWHILE - 1,
        )
        for row in rows
    ]
