"""The duration of a schedule as terms whose sum is the simulated duration to the picosecond.

A chain of rounds has the terms of its rounds. If steps overlap, terms are those of the steps on the critical path, from
the launch to the last step.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.schedules.overheads import MessageConstants, Powers
from s2sim.collectives.schedules.schedule import LazySteps, Round, Schedule
from s2sim.collectives.timing.bounds import simulate_ps, step_ends_ps
from s2sim.collectives.timing.collective_run import CompletedRound
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.collectives.timing.timer import TimedSchedule
from s2sim.topology.cluster import Cluster
from s2sim.topology.graph import Routes

BYTES, WIRE_LATENCY = "bytes", "wire latency"
# Parts of the name of a constant that the kind of its term has already.
_IMPLIED = ("generation", "latency", "share", "share-over-nodes", "stages", "rendezvous", "copy", "stream", "add")
_PROTOCOL_CONSTANTS = {"limit": "", "network": " between nodes", "posting": " posting", "launch": " launch"}


@dataclass(frozen=True, slots=True)
class Term:
    """A part of the duration of a schedule, which is the sum of the picoseconds of all terms.

    ``kind`` is ``"launch"``, ``"hop"``, ``"in-network"``, ``"fill"`` and other latencies of a library, ``"wire
    latency"``, ``"bytes"`` of a link, or ``"limit"``: bytes at the rate limit of a protocol; ``of`` names constants, or
    a class of link. ``count`` is the number of occurrences, of bytes and limits the bytes; in rings their mean.
    ``constants`` are those to which it is proportional, with powers: 1 for latencies, -1 for shares.
    """

    kind: str
    of: str
    count: float
    ps: int
    constants: Powers


class Terms:
    """Accumulates terms over the rounds of a schedule on a cluster, which take ``times``."""

    def __init__(self, cluster: Cluster, times: RoundTimes) -> None:
        self._cluster, self._times = cluster, times
        self._found: dict[tuple[str, str, Powers], tuple[float, float]] = {}

    def add(self, kind: str, of: str, count: float, ps: float, constants: Powers = ()) -> None:
        """Add a count and its picoseconds, which may be fractions."""
        before = self._found.get((kind, of, constants), (0.0, 0.0))
        self._found[kind, of, constants] = before[0] + count, before[1] + ps

    def whole(self, duration_ps: int) -> tuple[Term, ...]:
        """Return the terms in whole picoseconds that add up to a duration.

        The rounding difference is added to the bytes that take most time, or else to the longest term.
        """
        terms = {key: [count, round(ps)] for key, (count, ps) in self._found.items()}
        if left_ps := duration_ps - sum(int(ps) for _, ps in terms.values()):
            longest = max(terms, key=lambda key: (key[0] == BYTES and terms[key][1] + left_ps >= 0, terms[key][1]))
            terms[longest][1] += left_ps
        return tuple(Term(*key[:2], count, int(ps), key[2]) for key, (count, ps) in terms.items() if ps or key[2])

    def ended(self, sent: Round, repeated: int = 1, *, delivered: bool = True) -> None:
        """Add the time until the last message of a round is delivered, with repetitions, or its last byte has left."""
        if sent.pattern.messages and repeated:
            last = self._times.last_message(sent, delivered=delivered)
            self.message(sent, last.message, last.ps, repeated, with_latency=delivered)

    def message(self, sent: Round, message: int, lasts_ps: int, repeated: int, *, with_latency: bool) -> None:
        """Add the picoseconds from the start of a round to the end of its last message, with repetitions."""
        latency_ps = int(self._times.routes(sent.pattern).latency_ps[message]) if with_latency else 0
        if latency_ps:
            self._latency(sent, message, latency_ps, repeated)
        self._bytes(sent, message, lasts_ps - latency_ps, repeated)

    def _latency(self, sent: Round, message: int, latency_ps: int, repeated: int) -> None:
        added = sent.pattern.overheads
        if added is not None and added.round_latency is not None:
            mean = added.round_latency
            library_ps = sum(self._constants(each, mean.rounds, repeated) for each in mean.latencies)
            routes, over = self._cluster.routes(mean.src, mean.dst), mean.rounds
        else:
            chosen = np.array([message])
            routes, over = self._times.routes(sent.pattern).take(chosen), 1
            library_ps = 0.0 if added is None else float(added.latency_ps[message])
            if added is not None and added.latencies:
                library_ps = sum(self._constants(each.take(chosen), 1, repeated) for each in added.latencies)
            elif library_ps:
                self.add("library", "each message", repeated, repeated * library_ps)
        self._wire(routes, over, latency_ps - library_ps, repeated)

    def _constants(self, made: MessageConstants, over: int, repeated: int) -> float:
        """Add one kind of latency of some messages over some rounds, and return it in picoseconds per round."""
        share = np.bincount(made.row, minlength=len(made.values)) / over * made.times
        for row in np.flatnonzero(share):
            if made.powers[row]:
                of = describe_constant(made.powers[row][0][0])
                mean_ps = float(share[row] * made.values[row])
                self.add(made.kind, of, repeated * float(share[row]), repeated * mean_ps, made.powers[row])
        return float(share @ made.values)

    def _wire(self, routes: Routes, over: int, wire_ps: float, repeated: int) -> None:
        fabric = self._cluster.fabric
        passed_ps = routes.weights * fabric.latency_ps[routes.links]
        by_class = np.bincount(fabric.link_class[routes.links], passed_ps, len(fabric.class_names))
        crossed = np.bincount(fabric.link_class[routes.links], routes.weights, len(fabric.class_names)) / over
        if not by_class.any():
            return
        part_ps = by_class / by_class.sum() * wire_ps
        for kind in np.flatnonzero(by_class):
            count = repeated * float(crossed[kind])
            self.add(WIRE_LATENCY, fabric.class_names[kind], count, repeated * float(part_ps[kind]))

    def _bytes(self, sent: Round, message: int, lasts_ps: int, repeated: int) -> None:
        fabric, added = self._cluster.fabric, sent.pattern.overheads
        link, carried = self._times.limiting_link(sent, message)
        limited = link >= len(fabric)
        powers = Counter[str]()
        for made in () if added is None else (*added.shares, *(added.limits if limited else ())):
            for name, power in made.powers[made.row[message]]:
                powers[name] += power
        constants = tuple((name, power) for name, power in powers.items() if power)
        if not limited:
            kind, of = BYTES, fabric.class_names[fabric.link_class[link]]
        else:
            names = [name for name, power in constants if power < 0]
            kind, of = "limit", describe_constant(names[-1]) if names else "library"
        self.add(kind, of, repeated * carried, float(repeated * lasts_ps), constants)


def describe_constant(constant: str) -> str:
    """Return the description of a constant, a latency or limit, from its name in the file of a library.

    >>> [describe_constant(name) for name in ("protocol.LL.nvlink", "protocol.LL.network", "network.roce.latency")]
    ['LL over nvlink', 'LL between nodes', 'network roce']
    """
    table, *names = constant.split(".")
    if table == "protocol":
        protocol, of = names
        return protocol + _PROTOCOL_CONSTANTS.get(of, f" over {of}")
    return " ".join(names) if table == "launch" else " ".join(name for name in (table, *names) if name not in _IMPLIED)


def schedule_terms(timed: TimedSchedule, cluster: Cluster) -> tuple[Term, ...]:
    """Return the terms of a schedule on a cluster without other traffic; they add up to its duration.

    A round has the terms of its last message: its latency, in rings their mean, and then the bytes of the busiest link
    on its route, or the limit of its protocol. If GPUs wait for their host, all terms are of the host.
    """
    schedule, times = timed.schedule, timed.times
    terms = Terms(cluster, times)
    if schedule.host_bound:
        _add_launch(terms, schedule.host)
        return terms.whole(timed.duration_ps)
    _add_launch(terms, schedule.launch)
    if schedule.launch_ps and not schedule.launch:
        terms.add("launch", "library", 1, schedule.launch_ps)
    if schedule.stage.chain:
        steps, counts = schedule.steps, Counter[Round]()
        for step in steps:
            # Steps that are created on access have rounds of their own.
            if isinstance(steps, LazySteps):
                terms.ended(step.round, step.times)
            else:
                counts[step.round] += step.times
        for sent, repeated in counts.items():
            terms.ended(sent, repeated)
    elif (ends_ps := step_ends_ps(schedule, cluster, times)) is not None:
        _add_longest_path(terms, schedule, times, ends_ps)
    else:
        _add_simulated_path(terms, schedule, cluster, times)
    return terms.whole(timed.duration_ps)


def _add_launch(terms: Terms, made_of: Iterable[MessageConstants]) -> None:
    for made in made_of:
        for powers, value in zip(made.powers, made.values, strict=True):
            terms.add(made.kind, describe_constant(powers[0][0]), made.times, float(made.times * value), powers)


def _add_longest_path(terms: Terms, schedule: Schedule, times: RoundTimes, ends_ps: Ints) -> None:
    """Add the terms of the longest path through steps with these end times, int64 of shape (steps,)."""
    index: int | None = int(np.argmax(ends_ps)) if len(ends_ps) else None
    by_sending = False
    while index is not None:
        step = schedule.steps[index]
        start_ps = int(ends_ps[index]) - step.times * times.time_ps(step.round)
        terms.ended(step.round, step.times - by_sending)
        if by_sending:
            terms.ended(step.round, delivered=False)
        before = next((other for other in step.waits(index) if ends_ps[other] == start_ps), None)
        by_sending = before is None
        index = before
        if by_sending:
            senders = {other: schedule.steps[other].round for other in step.after_sent}
            sent_ps = {n: int(ends_ps[n]) - times.time_ps(sent) + times.left_ps(sent) for n, sent in senders.items()}
            index = next((other for other, left_ps in sent_ps.items() if left_ps == start_ps), None)


def _add_simulated_path(terms: Terms, schedule: Schedule, cluster: Cluster, times: RoundTimes) -> None:
    ran: dict[tuple[int, int], CompletedRound] = {}
    simulate_ps(schedule, cluster, on_round=lambda done: ran.update({(done.step, done.time): done}))
    at: CompletedRound | None = max(ran.values(), key=lambda each: int(each.end_ps.max(initial=each.start_ps)))
    by_sending = False
    while at is not None:
        if at.round.pattern.messages:
            ends_ps = _message_sent_ps(at, times) if by_sending else at.end_ps
            last = int(np.argmax(ends_ps))
            terms.message(at.round, last, int(ends_ps[last]) - at.start_ps, 1, with_latency=not by_sending)
        at, by_sending = _predecessor_round(at, schedule, times, ran)


def _predecessor_round(
    at: CompletedRound, schedule: Schedule, times: RoundTimes, ran: dict[tuple[int, int], CompletedRound]
) -> tuple[CompletedRound | None, bool]:
    """Return the round at the end of which another began, and whether that was the end of its sending."""
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
    return ran.end_ps - times.routes(ran.round.pattern).latency_ps if ran.round.pattern.messages else ran.end_ps
