"""The time of a schedule as terms whose sum is the simulated time to the picosecond.

A chain of rounds adds up the terms of its rounds. Where steps overlap, terms are those of the steps that the last one
waited for, one after the other, back to the launch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.schedules.overheads import MessageConstants, Overheads, Powers
from s2sim.collectives.schedules.schedule import LazySteps, Round, Schedule
from s2sim.collectives.timing.bounds import simulate_ps, step_ends_ps
from s2sim.collectives.timing.collective_run import CompletedRound
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.collectives.timing.timer import TimedSchedule
from s2sim.topology.cluster import Cluster
from s2sim.topology.graph import Routes

BYTES = "bytes"
WIRE_LATENCY = "wire latency"
# Parts of a constant's name that the kind of its term says already.
_CONSTANT_DESCRIPTIONS = (
    "generation",
    "latency",
    "share",
    "share-over-nodes",
    "stages",
    "rendezvous",
    "copy",
    "stream",
    "add",
)
_PROTOCOL_CONSTANTS = {"limit": "", "network": " between nodes", "network-limit": " between nodes"}


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a schedule's time: picoseconds, which add up to its duration over all terms.

    ``kind`` is ``"launch"``, ``"hop"``, ``"in-network"``, ``"fill"`` and other latencies of a library, ``"wire
    latency"``, ``"bytes"`` of a link, or ``"limit"``: bytes that a protocol holds up; ``of`` names constants, or a
    class of link. ``count`` is how often, or of bytes and limits how many; on a ring's clock the mean over it.
    ``constants`` are what it is proportional to, by the names of a library's file: latencies to the power of 1, shares
    of -1.
    """

    kind: str
    of: str
    count: float
    ps: int
    constants: Powers

    def with_constants_ps(self, times: Mapping[str, float]) -> float:
        """Return its picoseconds with some constants so many times as large.

        That is exact as long as the same is sent, and the same is busiest.

        >>> Term("hop", "LL over nvlink", 14, 700, (("protocol.LL.nvlink", 1),)).with_constants_ps(
        ...     {"protocol.LL.nvlink": 2}
        ... )
        1400.0
        """
        return self.ps * prod(float(times.get(name, 1)) ** power for name, power in self.constants)


class Terms:
    """Terms as they add up, round after round."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, Powers], tuple[float, float]] = {}

    def add(self, kind: str, of: str, count: float, ps: float, constants: Powers = ()) -> None:
        """Add a count and its picoseconds, which need not be whole."""
        before = self._found.get((kind, of, constants), (0.0, 0.0))
        self._found[kind, of, constants] = before[0] + count, before[1] + ps

    def whole(self, duration_ps: int) -> tuple[Term, ...]:
        """Return the terms in whole picoseconds that add up to a duration.

        What rounding leaves goes to the bytes that take most time, or else to the longest term.
        """
        terms = {key: [count, round(ps)] for key, (count, ps) in self._found.items()}
        left_ps = duration_ps - sum(int(ps) for _, ps in terms.values())
        if left_ps:
            longest = max(terms, key=lambda key: (key[0] == BYTES and terms[key][1] + left_ps >= 0, terms[key][1]))
            terms[longest][1] += left_ps
        return tuple(Term(*key[:2], count, int(ps), key[2]) for key, (count, ps) in terms.items() if ps or key[2])


def describe_constant(constant: str) -> str:
    """Return what a latency or limit of a library is of, from its name in the library's file.

    >>> [describe_constant(name) for name in ("protocol.LL.nvlink", "protocol.LL.network", "network.roce.latency")]
    ['LL over nvlink', 'LL between nodes', 'network roce']
    """
    table, *names = constant.split(".")
    if table == "protocol":
        protocol, of = names
        return protocol + _PROTOCOL_CONSTANTS.get(of, f" over {of}")
    if table == "launch":
        return " ".join(names)
    return " ".join(name for name in (table, *names) if name not in _CONSTANT_DESCRIPTIONS)


class RoundTerms:
    """Adds the terms of a schedule's rounds on a cluster, which take ``times``, to ``terms``."""

    def __init__(self, terms: Terms, cluster: Cluster, times: RoundTimes) -> None:
        self._terms, self._cluster, self._times = terms, cluster, times

    def delivered(self, sent: Round, repeated: int) -> None:
        """Add the time until the last message of a round is delivered, so many times."""
        if sent.pattern.messages and repeated:
            last = self._times.last_delivered(sent)
            self.message(sent, last, self._times.time_ps(sent), repeated, with_latency=True)

    def left(self, sent: Round) -> None:
        """Add the time until the last byte of a round has left."""
        if sent.pattern.messages:
            self.message(sent, self._times.last_left(sent), self._times.left_ps(sent), 1, with_latency=False)

    def message(self, sent: Round, message: int, lasts_ps: int, repeated: int, *, with_latency: bool) -> None:
        """Add the picoseconds from the start of a round to the end of a message for which it waits, so many times."""
        latency_ps = int(self._times.routes(sent.pattern).latency_ps[message]) if with_latency else 0
        if latency_ps:
            self._latency(sent, message, latency_ps, repeated)
        self._bytes(sent, message, lasts_ps - latency_ps, repeated)

    def _latency(self, sent: Round, message: int, latency_ps: int, repeated: int) -> None:
        added = sent.pattern.overheads
        if added is not None and added.round_latency is not None:
            clock = added.round_latency
            told_ps = sum(self._made_of(each, clock.rounds, repeated) for each in clock.latencies)
            routes, over = self._cluster.routes(clock.src, clock.dst), clock.rounds
        else:
            clocks = np.array([message])
            routes, over = self._times.routes(sent.pattern).take(clocks), 1
            told_ps = 0.0 if added is None else self._library(added, clocks, repeated)
        self._wire(routes, over, latency_ps - told_ps, repeated)

    def _library(self, added: Overheads, clocks: Ints, repeated: int) -> float:
        """Add what a library adds to the latency of a message, and return it in picoseconds."""
        if added.latencies:
            return sum(self._made_of(each.take(clocks), 1, repeated) for each in added.latencies)
        library_ps = float(added.latency_ps[clocks[0]])
        if library_ps:
            self._terms.add("library", "each message", repeated, repeated * library_ps)
        return library_ps

    def _made_of(self, made: MessageConstants, over: int, repeated: int) -> float:
        """Add what messages have of one kind of latency over so many rounds, and return it in picoseconds a round."""
        share = np.bincount(made.row, minlength=len(made.values)) / over * made.times
        for row in np.flatnonzero(share):
            if made.powers[row]:
                of = describe_constant(made.powers[row][0][0])
                mean_ps = float(share[row] * made.values[row])
                self._terms.add(made.kind, of, repeated * float(share[row]), repeated * mean_ps, made.powers[row])
        return float(share @ made.values)

    def _wire(self, routes: Routes, over: int, wire_ps: float, repeated: int) -> None:
        """Add the latency of links, by class, of the ways of some messages over so many rounds."""
        fabric = self._cluster.fabric
        passed_ps = routes.weights * fabric.latency_ps[routes.links]
        by_class = np.bincount(fabric.link_class[routes.links], passed_ps, len(fabric.class_names))
        crossed = np.bincount(fabric.link_class[routes.links], routes.weights, len(fabric.class_names)) / over
        if not by_class.any():
            return
        part_ps = by_class / by_class.sum() * wire_ps
        for kind in np.flatnonzero(by_class):
            count = repeated * float(crossed[kind])
            self._terms.add(WIRE_LATENCY, fabric.class_names[kind], count, repeated * float(part_ps[kind]))

    def _bytes(self, sent: Round, message: int, lasts_ps: int, repeated: int) -> None:
        fabric, added = self._cluster.fabric, sent.pattern.overheads
        link, carried = self._times.limiting_link(sent, message)
        limited = link >= len(fabric)
        constants = () if added is None else _bandwidth_powers(added, message, limited=limited)
        if not limited:
            kind, of = BYTES, fabric.class_names[fabric.link_class[link]]
        else:
            known = [name for name, power in constants if power < 0]
            kind, of = "limit", describe_constant(known[-1]) if known else "library"
        self._terms.add(kind, of, repeated * carried, float(repeated * lasts_ps), constants)


def _bandwidth_powers(added: Overheads, message: int, *, limited: bool) -> Powers:
    """Return what the time of a message's bytes is proportional to."""
    powers: dict[str, int] = {}
    for made in (*added.shares, *(added.limits if limited else ())):
        for name, power in made.powers[made.row[message]]:
            powers[name] = powers.get(name, 0) + power
    return tuple((name, power) for name, power in powers.items() if power)


def schedule_terms(timed: TimedSchedule, cluster: Cluster) -> tuple[Term, ...]:
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
        for sent, repeated in _count_rounds(schedule):
            rounds.delivered(sent, repeated)
    elif (ends_ps := step_ends_ps(schedule, cluster, times)) is not None:
        _add_longest_path(rounds, schedule, times, ends_ps)
    else:
        _add_simulated_path(rounds, schedule, cluster, times)
    return terms.whole(timed.duration_ps)


def _add_launch(terms: Terms, made_of: Iterable[MessageConstants]) -> None:
    for made in made_of:
        for powers, value in zip(made.powers, made.values, strict=True):
            terms.add(made.kind, describe_constant(powers[0][0]), made.times, float(made.times * value), powers)


def _count_rounds(schedule: Schedule) -> Iterable[tuple[Round, int]]:
    """Return the rounds of a chain and how often each comes; those that are made when asked for one after the other."""
    if isinstance(schedule.steps, LazySteps):
        return ((step.round, step.times) for step in schedule.steps)
    counts: Counter[Round] = Counter()
    for step in schedule.steps:
        counts[step.round] += step.times
    return counts.items()


def _add_longest_path(rounds: RoundTerms, schedule: Schedule, times: RoundTimes, ends_ps: Ints) -> None:
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
                (each for each in step.after_sent if _sent_ps(schedule, times, ends_ps, each) == start_ps), None
            )


def _sent_ps(schedule: Schedule, times: RoundTimes, ends_ps: Ints, index: int) -> int:
    """Return when the last byte of a step has left."""
    sent = schedule.steps[index].round
    return int(ends_ps[index]) - times.time_ps(sent) + times.left_ps(sent)


def _add_simulated_path(rounds: RoundTerms, schedule: Schedule, cluster: Cluster, times: RoundTimes) -> None:
    """Add the terms of the rounds that followed each other to the end, as they ran beside the others."""
    ran: dict[tuple[int, int], CompletedRound] = {}

    def note(each: CompletedRound) -> None:
        ran[each.step, each.time] = each

    simulate_ps(schedule, cluster, on_round=note)
    at: CompletedRound | None = max(ran.values(), key=lambda each: int(each.end_ps.max(initial=each.start_ps)))
    by_sending = False
    while at is not None:
        if at.round.pattern.messages:
            ends_ps = _message_sent_ps(at, times) if by_sending else at.end_ps
            last = int(np.argmax(ends_ps))
            lasts_ps = int(ends_ps[last]) - at.start_ps
            rounds.message(at.round, last, lasts_ps, 1, with_latency=not by_sending)
        at, by_sending = _predecessor_round(at, schedule, times, ran)


def _predecessor_round(
    at: CompletedRound, schedule: Schedule, times: RoundTimes, ran: dict[tuple[int, int], CompletedRound]
) -> tuple[CompletedRound | None, bool]:
    """Return the round at whose end another one began, and whether that was the end of its sending."""
    if at.time:
        return ran[at.step, at.time - 1], False
    step = schedule.steps[at.step]
    for by_sending, others in ((False, step.waits(at.step)), (True, step.after_sent)):
        for other in others:
            before = ran[other, schedule.steps[other].times - 1]
            ends_ps = _message_sent_ps(before, times) if by_sending else before.end_ps
            if int(ends_ps.max(initial=before.start_ps)) == at.start_ps:
                return before, by_sending
    return None, False


def _message_sent_ps(ran: CompletedRound, times: RoundTimes) -> Ints:
    """Return when the last byte of each message of a round has left, int64 of shape (m,)."""
    if not ran.round.pattern.messages:
        return ran.end_ps
    return ran.end_ps - times.routes(ran.round.pattern).latency_ps
