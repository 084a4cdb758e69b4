"""Durations of single rounds without other traffic.

A round takes at least the time of its busiest link for its bytes, and at most the time if every message kept its
initial share of links. If these are equal, as without shared links or with equal messages on the busiest link, that is
the duration; else the messages that may be the last, and those with which they share links, are solved as by the fluid
network. Results are cached.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.collectives.schedules.schedule import CombinedRound, Pattern, Release, Round, Schedule
from s2sim.collectives.timing.library_profile import all_equal
from s2sim.collectives.timing.routes import RouteSet, RouteTable
from s2sim.collectives.timing.shapes import PipelineBound, ScheduleShape, considers_each_latency, crossings_of
from s2sim.network.fluid import solve_batch_ps
from s2sim.network.network import round_up_ps
from s2sim.topology.cluster import Cluster
from s2sim.topology.graph import Routes
from s2sim.units import PS_PER_S

Wanted: TypeAlias = Callable[[Ints, Ints], Mask]


@dataclass(slots=True)
class _RoundBounds:
    """A lower bound of a round in picoseconds, and its last messages once they are known."""

    at_least: int
    last: "dict[bool, LastMessage]" = field(default_factory=dict)  # By whether it is the last delivered, or sent


class LastMessage(NamedTuple):
    """The last message of a round to be delivered or sent, and its time in picoseconds."""

    ps: int
    message: int


class RoundTimes:
    """Times rounds on a cluster, each distinct round once.

    With ``release`` of ``"sent"`` latency passes after bytes instead of before, because the next round follows the last
    byte. ``ways`` are cached routes of the cluster, or of one that differs from it in rates only. ``solved`` counts the
    rounds for which rates were solved.
    """

    def __init__(self, cluster: Cluster, release: Release = "delivered", ways: RouteTable | None = None) -> None:
        self._release = release
        self._ways = ways or RouteTable(cluster)
        self._capacity = cluster.fabric.rate_Bps / PS_PER_S  # bytes per picosecond
        self.links = len(cluster.fabric)
        self._known: dict[bytes, _RoundBounds] = {}
        self.solved = 0

    def routes(self, pattern: Pattern) -> Routes:
        """Return the routes of a pattern's messages."""
        return self._ways.routes(pattern)

    def alone(self, pattern: Pattern) -> Mask:
        """Return a mask of the messages of a pattern that share no link with another, bool of shape (m,)."""
        return self._ways.of(pattern).alone

    def _capacity_of(self, way: RouteSet) -> Floats:
        """Return the bytes per picosecond of every link, and of those that represent limits."""
        if not len(way.limits_Bps):
            return self._capacity
        return np.concatenate([self._capacity, way.limits_Bps / PS_PER_S])

    def message_ps(self, sent: Round, wanted: Mask | None = None) -> tuple[Ints, Ints]:
        """Return when each message has been sent and delivered, int64 picoseconds from the start of the round.

        With ``wanted``, bool of shape (m,), only the times of these messages are valid.
        """
        way = self._ways.of(sent.pattern)
        leaving = round_up_ps(sent.bytes / way.routes.narrowest(self._capacity_of(way)))
        shared = np.flatnonzero(~way.alone if wanted is None else ~way.alone & way.sharing_with(wanted))
        if len(shared):
            leaving[shared] = self._solve(way, sent, shared)
            if self._release == "delivered":
                leaving[shared] -= way.routes.latency_ps[shared]
        return leaving, leaving + way.routes.latency_ps

    def _solve(self, way: RouteSet, sent: Round, messages: Ints) -> Ints:
        """Return when messages that share no link with the others are released, int64 picoseconds."""
        self.solved += 1
        capacity = self._capacity_of(way)
        routes = way.routes if len(messages) == len(way.routes.latency_ps) else way.routes.take(messages)
        if self._release == "sent":
            routes = replace(routes, latency_ps=np.zeros_like(routes.latency_ps))
            if self._ways.kept is not None:
                return self._ways.kept.sent_ps(routes, sent.bytes[messages], capacity)
        return solve_batch_ps(routes, np.zeros(len(messages), np.int64), sent.bytes[messages], capacity)

    def time_ps(self, sent: Round) -> int:
        """Return when the last message of a round is delivered, in integer picoseconds from its start."""
        return self.last_message(sent, delivered=True).ps if sent.pattern.messages else 0

    def left_ps(self, sent: Round) -> int:
        """Return when the last byte of a round has left, in integer picoseconds, if ``release`` is ``sent``."""
        return self.last_message(sent, delivered=False).ps if sent.pattern.messages else 0

    def limiting_link(self, sent: Round, message: int) -> tuple[int, float]:
        """Return the link on the route of a message that takes longest for its bytes, and these bytes.

        Links that represent limits are numbered after those of the cluster.
        """
        way = self._ways.of(sent.pattern)
        crossings = slice(int(way.routes.offsets[message]), int(way.routes.offsets[message + 1]))
        place, links = way.place[crossings], way.routes.links[crossings]
        carried = way.bytes_on_links(sent.bytes)[place]
        busiest = int(np.argmax(carried / self._capacity_of(way)[links]))
        return int(links[busiest]), float(carried[busiest])

    def last_message(self, sent: Round, *, delivered: bool) -> LastMessage:
        """Return the message of a round that is delivered last, or the one that is sent last, if ``release`` is so."""
        known = self._times(sent)
        if delivered not in known.last:
            known.last[delivered] = self._latest(sent, known, delivered=delivered)
        return known.last[delivered]

    def at_least_ps(self, sent: Round) -> int:
        """Return a lower bound of a round: the bytes of a link over its rate, after the least latency on it."""
        return self._times(sent).at_least if sent.pattern.messages else 0

    def left_at_least_ps(self, sent: Round) -> int:
        """Return a lower bound of the time until the last byte of a round has left: that of the bytes of a link."""
        return self._bounds(self._ways.of(sent.pattern), sent, delivered=False)[1] if sent.pattern.messages else 0

    def all_at_least_ps(self, whole: CombinedRound) -> int:
        """Return a lower bound of a chain of rounds: about the sum of `at_least_ps` of each.

        Each round counts the bytes of a link after the least latency on it in rounds up to there, or from there on,
        whichever is longer; with very many links the least latency in all rounds.
        """
        way = self._ways.of(whole.round.pattern)
        each_latency = considers_each_latency(whole, way)
        bound = PipelineBound.of(crossings_of(whole, way), len(way.used), whole.times, each_latency=each_latency)
        return bound.at_least_ps(self._capacity_of(way)[way.used])

    def kept_shape(self, schedule: Schedule) -> tuple[ScheduleShape, Floats] | None:
        """Return the shape of a schedule that is kept for several rates, and the capacities of its kinds of links."""
        kept = self._ways.kept
        shape = None if kept is None else kept.shape(schedule)
        if kept is None or shape is None or (capacity := kept.capacity(self._capacity)) is None:
            return None
        return shape, capacity

    def _times(self, sent: Round) -> _RoundBounds:
        sizes_bytes = sent.bytes[:1] if all_equal(sent.bytes) else sent.bytes
        key = blake2b(sent.pattern.key + sizes_bytes.tobytes(), digest_size=16).digest()
        known = self._known.get(key)
        if known is None:
            at_most_ps, at_least_ps = self._bounds(self._ways.of(sent.pattern), sent, delivered=True)
            known = self._known[key] = _RoundBounds(at_least_ps)
            if at_most_ps.max() <= at_least_ps:
                known.last[True] = _last_message(at_most_ps)
        return known

    def _bounds(self, way: RouteSet, sent: Round, *, delivered: bool) -> tuple[Ints, int]:
        """Return an upper bound for each message, delivered or sent, and a lower bound for the last one."""
        latency_ps, soonest_ps = (way.routes.latency_ps, way.soonest_ps) if delivered else (np.int64(0), np.int64(0))
        share = self._capacity_of(way)[way.used] / way.load
        narrowest = np.minimum.reduceat(share[way.place], way.routes.offsets[:-1])
        at_most_ps = latency_ps + round_up_ps(sent.bytes / narrowest)
        mean_bytes = sent.bytes[0] if all_equal(sent.bytes) else way.bytes_on_links(sent.bytes) / way.load
        return at_most_ps, int((soonest_ps + round_up_ps(mean_bytes / share)).max())

    def _latest(self, sent: Round, known: _RoundBounds, *, delivered: bool) -> LastMessage:
        """Return the last message of a round to be delivered or sent; other results of a solution are cached."""
        way = self._ways.of(sent.pattern)
        at_most_ps, at_least_ps = self._bounds(way, sent, delivered=delivered)
        alone = way.alone
        if at_most_ps.max() <= at_least_ps or alone.all():
            return _last_message(at_most_ps)
        if self._release == "sent":
            known.last = dict(zip((False, True), map(_last_message, self.message_ps(sent)), strict=True))
            return known.last[delivered]
        # The last message ends no sooner than the busiest link.
        chosen = way.sharing_with(at_most_ps >= at_least_ps)
        shared, others = np.flatnonzero(chosen & ~alone), np.flatnonzero(chosen & alone)
        solved = self._solve(way, sent, shared) if len(shared) else np.zeros(0, np.int64)
        last = _last_message(np.concatenate([solved, at_most_ps[others]]))
        return LastMessage(last.ps, int(np.concatenate([shared, others])[last.message]))


def _last_message(ends_ps: Ints) -> LastMessage:
    message = int(np.argmax(ends_ps))
    return LastMessage(int(ends_ps[message]), message)


# Messages whose bytes are added up before they are yielded, so that alternating patterns are yielded once.
_MESSAGES_PER_BATCH = 1 << 17


def bytes_by_pattern(schedule: Schedule, wanted: Wanted | None = None) -> Iterator[tuple[Pattern, Floats]]:
    """Yield the patterns of a schedule, and the bytes of each message over many rounds.

    A pattern is yielded again if there are too many others between its rounds. With ``wanted`` only messages through
    switches and those for which ``wanted(src, dst)`` is true are yielded, the latter of many patterns as one pattern.
    """
    parts: list[tuple[Ints, Ints, Floats]] = []
    messages = 0

    def concatenated() -> tuple[Pattern, Floats]:
        src, dst, parts_bytes = (np.concatenate(side) for side in zip(*parts, strict=True))
        return Pattern(src, dst), parts_bytes

    for pattern, sizes_bytes in _batch_patterns(schedule):
        if wanted is None or pattern.through_switch:
            yield pattern, sizes_bytes
            continue
        chosen = np.flatnonzero(wanted(pattern.src, pattern.dst))
        parts.append((pattern.src[chosen], pattern.dst[chosen], sizes_bytes[chosen]))
        messages += len(chosen)
        if messages > _MESSAGES_PER_BATCH:
            yield concatenated()
            parts, messages = [], 0
    if messages:
        yield concatenated()


def _batch_patterns(schedule: Schedule) -> Iterator[tuple[Pattern, Floats]]:
    """Yield patterns with the bytes of their messages over rounds that are not too far apart."""
    gathered: dict[bytes, tuple[Pattern, Floats]] = {}
    messages = 0
    for step in schedule.steps:
        pattern = step.round.pattern
        if pattern.messages == 0:
            continue
        if pattern.key not in gathered:
            gathered[pattern.key] = pattern, np.zeros(pattern.messages)
            messages += pattern.messages
            while messages > _MESSAGES_PER_BATCH and len(gathered) > 1:
                first, sizes_bytes = gathered.pop(next(iter(gathered)))
                messages -= first.messages
                yield first, sizes_bytes
        gathered[pattern.key][1][:] += step.times * step.round.bytes
    yield from gathered.values()


def link_bytes(schedule: Schedule, times: RoundTimes) -> Floats:
    """Return the bytes on every link, float64 of shape (links,)."""
    carried = np.zeros(times.links)
    for pattern, sizes_bytes in bytes_by_pattern(schedule):
        routes = times.routes(pattern)
        per_crossing = np.repeat(sizes_bytes, np.diff(routes.offsets)) * routes.weights
        carried += np.bincount(routes.links, per_crossing, len(carried))
    return carried
