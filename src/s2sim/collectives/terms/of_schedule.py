"""The time of a schedule as terms whose sum is the simulated time to the picosecond.

A chain of rounds adds up the terms of its rounds. Where steps overlap, terms are those of the steps that the last one
waited for, one after the other, back to the launch.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.schedules.schedule import LazySteps
from s2sim.collectives.terms.of_round import RoundTerms
from s2sim.collectives.terms.term import Terms, in_words
from s2sim.collectives.timing.duration import simulate_ps, step_ends_ps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s2sim.arrays import Ints
    from s2sim.collectives.schedules.per_message import PerMessage
    from s2sim.collectives.schedules.schedule import Round, Schedule
    from s2sim.collectives.terms.term import Term
    from s2sim.collectives.timing.rounds import RoundTimes
    from s2sim.collectives.timing.running import RanRound
    from s2sim.collectives.timing.timer import Timed
    from s2sim.topology.cluster import Cluster


def terms_of(timed: Timed, cluster: Cluster) -> tuple[Term, ...]:
    """Return the terms of a schedule's time on a cluster with nothing else in flight; they add up to its duration.

    A round belongs to its last message: the latency of that, on a ring's clock the mean around it, and then the bytes
    of the link on its way that has most to carry, or the limit of its protocol. Where GPUs wait for their host, all is
    the host's time.
    """
    schedule, times = timed.schedule, timed.times
    terms = Terms()
    if schedule.host_bound:
        _add_launch(terms, schedule.host)
        return terms.whole(timed.duration_ps)
    _add_launch(terms, schedule.launch)
    if schedule.launch_ps and not schedule.launch:
        terms.add("launch", "library", 1, schedule.launch_ps)
    rounds = RoundTerms(terms, cluster, times)
    if schedule.stage.chain:
        for sent, repeated in _counted(schedule):
            rounds.delivered(sent, repeated)
    elif (ends_ps := step_ends_ps(schedule, cluster, times)) is not None:
        _follow_back(rounds, schedule, times, ends_ps)
    else:
        _follow_simulated(rounds, schedule, cluster, times)
    return terms.whole(timed.duration_ps)


def _add_launch(terms: Terms, made_of: Iterable[PerMessage]) -> None:
    for made in made_of:
        for powers, value in zip(made.powers, made.values, strict=True):
            terms.add(made.kind, in_words(powers[0][0]), made.times, float(made.times * value), powers)


def _counted(schedule: Schedule) -> Iterable[tuple[Round, int]]:
    """Return the rounds of a chain and how often each comes; those that are made when asked for one after the other."""
    if isinstance(schedule.steps, LazySteps):
        return ((step.round, step.times) for step in schedule.steps)
    counts: Counter[Round] = Counter()
    for step in schedule.steps:
        counts[step.round] += step.times
    return counts.items()


def _follow_back(rounds: RoundTerms, schedule: Schedule, times: RoundTimes, ends_ps: Ints) -> None:
    """Add the terms of the longest path through steps that end at known times, int64 of shape (steps,)."""
    index: int | None = int(np.argmax(ends_ps)) if len(ends_ps) else None
    by_sending = False
    while index is not None:
        step = schedule.steps[index]
        round_ps = times.time_ps(step.round)
        start_ps = int(ends_ps[index]) - step.times * round_ps
        rounds.delivered(step.round, step.times - by_sending)
        if by_sending:
            rounds.left(step.round)
        before = next((other for other in step.waits(index) if ends_ps[other] == start_ps), None)
        by_sending = before is None
        index = before
        if by_sending:
            index = next(
                (each for each in step.after_sent if _left_ps(schedule, times, ends_ps, each) == start_ps), None
            )


def _left_ps(schedule: Schedule, times: RoundTimes, ends_ps: Ints, index: int) -> int:
    """Return when the last byte of a step has left."""
    sent = schedule.steps[index].round
    return int(ends_ps[index]) - times.time_ps(sent) + times.left_ps(sent)


def _follow_simulated(rounds: RoundTerms, schedule: Schedule, cluster: Cluster, times: RoundTimes) -> None:
    """Add the terms of the rounds that followed each other to the end, as they ran beside the others."""
    ran: dict[tuple[int, int], RanRound] = {}

    def note(each: RanRound) -> None:
        ran[each.step, each.time] = each

    simulate_ps(schedule, cluster, on_round=note)
    at: RanRound | None = max(ran.values(), key=lambda each: int(each.end_ps.max(initial=each.start_ps)))
    by_sending = False
    while at is not None:
        if at.round.pattern.messages:
            ends_ps = _left_of(at, times) if by_sending else at.end_ps
            last = int(np.argmax(ends_ps))
            lasts_ps = int(ends_ps[last]) - at.start_ps
            rounds.message(at.round, last, lasts_ps, 1, with_latency=not by_sending)
        at, by_sending = _waited_for(at, schedule, times, ran)


def _waited_for(
    at: RanRound, schedule: Schedule, times: RoundTimes, ran: dict[tuple[int, int], RanRound]
) -> tuple[RanRound | None, bool]:
    """Return the round at whose end another one began, and whether that was the end of its sending."""
    if at.time:
        return ran[at.step, at.time - 1], False
    step = schedule.steps[at.step]
    for by_sending, others in ((False, step.waits(at.step)), (True, step.after_sent)):
        for other in others:
            before = ran[other, schedule.steps[other].times - 1]
            ends_ps = _left_of(before, times) if by_sending else before.end_ps
            if int(ends_ps.max(initial=before.start_ps)) == at.start_ps:
                return before, by_sending
    return None, False


def _left_of(ran: RanRound, times: RoundTimes) -> Ints:
    """Return when the last byte of each message of a round has left, int64 of shape (m,)."""
    if not ran.round.pattern.messages:
        return ran.end_ps
    return ran.end_ps - times.routes(ran.round.pattern).latency_ps
