"""How long one round takes with nothing else in flight.

A round takes at least as long as its busiest link needs for its bytes, and at most as long as if every message kept the
share that it has while all are in flight. Where both are the same picosecond, as where messages share no link or all of
those on the busiest link are alike, that is its time; else those messages that may be the last, and what shares links
with them, are solved as the fluid network would, which the tests check, but for completions so close that the network
counts them as one. A round that was seen before is not solved again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.collectives.schedules.schedule import CombinedRound, Pattern, Release, Round
from s2sim.collectives.timing.routes import RouteSet, RouteTable, all_equal
from s2sim.network.fluid import solve_batch_ps
from s2sim.network.network import round_up_ps
from s2sim.topology.cluster import Cluster
from s2sim.topology.graph import Routes
from s2sim.units import PS_PER_S

# Links in rounds, beyond which looking at each latency takes longer than a bound may.
_MAX_LATENCIES = 2**20


@dataclass(slots=True)
class _RoundBounds:
    """What is known of a round: a bound in picoseconds, and where bounds tell or when asked for its last messages."""

    at_least: int
    delivered: _LastMessage | None = None
    left: _LastMessage | None = None


class _LastMessage(NamedTuple):
    """When the last message of a round is delivered, or has left, in picoseconds, and which that is."""

    ps: int
    message: int


class RoundTimes:
    """Times rounds on a cluster, each distinct round once.

    Parameters
    ----------
    cluster : Cluster
        Where they run.
    release : {"delivered", "sent"}
        Whether latency passes before bytes share links, or after, because the next round follows the last byte.
    route_table : Ways, optional
        Routes already found on this cluster, or on one that differs from it in rates alone.

    Attributes
    ----------
    links : int
        Of the cluster.
    solved : int
        Rounds for which rates had to be solved.
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
        """Return which messages of a pattern share no link with another of them, bool of shape (m,)."""
        return self._ways.of(pattern).alone

    def _capacity_of(self, way: RouteSet) -> Floats:
        """Return the bytes per picosecond of every link, and of those that stand for limits."""
        if not len(way.limits_Bps):
            return self._capacity
        return np.concatenate([self._capacity, way.limits_Bps / PS_PER_S])

    def message_ps(self, sent: Round, wanted: Mask | None = None) -> tuple[Ints, Ints]:
        """Return when each message has left and when it is delivered, int64 picoseconds from the round's start.

        With ``wanted``, bool of shape (m,), nobody asks for the others, of which no time may be right.
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
        """Return when some messages, which share no link with others, are delivered, or with ``sent`` have left."""
        self.solved += 1
        capacity = self._capacity_of(way)
        routes = way.routes.crossing_only(way.binding(capacity)).take(messages)
        if self._release == "sent":
            routes = replace(routes, latency_ps=np.zeros_like(routes.latency_ps))
        at_once = np.zeros(len(messages), np.int64)
        return solve_batch_ps(routes, at_once, sent.bytes[messages], capacity)

    def time_ps(self, sent: Round) -> int:
        """Return when the last message of a round is delivered, in integer picoseconds from its start."""
        return self._delivered(sent).ps if sent.pattern.messages else 0

    def left_ps(self, sent: Round) -> int:
        """Return when the last byte of a round has left, in integer picoseconds, where ``release`` is ``sent``."""
        return self._left(sent).ps if sent.pattern.messages else 0

    def last_delivered(self, sent: Round) -> int:
        """Return which message of a round is delivered last."""
        return self._delivered(sent).message

    def last_left(self, sent: Round) -> int:
        """Return which message of a round has left last, where ``release`` is ``sent``."""
        return self._left(sent).message

    def limiting_link(self, sent: Round, message: int) -> tuple[int, float]:
        """Return the link on a message's way that takes longest for what it carries, and the bytes of that.

        Links that stand for limits are numbered after the cluster's.
        """
        way = self._ways.of(sent.pattern)
        crossings = slice(int(way.routes.offsets[message]), int(way.routes.offsets[message + 1]))
        place, links = way.place[crossings], way.routes.links[crossings]
        carried = way.bytes_on_links(sent.bytes)[place]
        busiest = int(np.argmax(carried / self._capacity_of(way)[links]))
        return int(links[busiest]), float(carried[busiest])

    def _delivered(self, sent: Round) -> _LastMessage:
        known = self._times(sent)
        if known.delivered is None:
            known.delivered = self._latest(sent, known, delivered=True)
        return known.delivered

    def _left(self, sent: Round) -> _LastMessage:
        known = self._times(sent)
        if known.left is None:
            known.left = self._latest(sent, known, delivered=False)
        return known.left

    def at_least_ps(self, sent: Round) -> int:
        """Return a time that a round cannot beat: the bytes of a link over its rate, after the least latency on it."""
        return self._times(sent).at_least if sent.pattern.messages else 0

    def left_at_least_ps(self, sent: Round) -> int:
        """Return a time before which the last byte of a round cannot have left: that of the bytes of a link."""
        return self._bounds(self._ways.of(sent.pattern), sent, delivered=False)[1] if sent.pattern.messages else 0

    def all_at_least_ps(self, whole: CombinedRound) -> int:
        """Return a time that a chain of rounds cannot beat: that of `at_least_ps` of each, or a little less.

        It is that of the bytes that a link has in each round, after the least latency on it in any round up to there,
        or from there on, whichever is longer; of very many links in any round at all.
        """
        way, stages = self._ways.of(whole.round.pattern), int(whole.first.max()) + 1
        messages = np.repeat(np.arange(len(whole.first)), np.diff(way.routes.offsets))
        places = whole.first[messages] * len(way.used) + way.place
        carried = np.bincount(places, whole.round.bytes[messages] * way.routes.weights, stages * len(way.used))
        until = np.zeros((stages + 1, len(way.used)))
        np.cumsum(carried.reshape(stages, -1), axis=0, out=until[1:])
        so_far_ps = from_there_ps = np.broadcast_to(way.soonest_ps, (stages, len(way.used)))
        if so_far_ps.size <= _MAX_LATENCIES:
            soonest_ps = np.full((stages, len(way.used)), np.inf)
            np.minimum.at(soonest_ps.reshape(-1), places, way.routes.latency_ps[messages])
            so_far_ps = np.minimum.accumulate(soonest_ps)
            from_there_ps = np.minimum.accumulate(soonest_ps[::-1])[::-1]
        rate = self._capacity_of(way)[way.used]
        # Rounds at whose end as many messages have begun and ended are alike.
        rounds = np.arange(1, stages + whole.times)
        begun, ended = np.minimum(rounds, stages), np.maximum(rounds - whole.times, 0)
        at_least_ps = 0
        for both, times in zip(*np.unique(begun * stages + ended, return_counts=True), strict=True):
            first, last = both % stages, both // stages - 1
            sent_bytes = until[last + 1] - until[first]
            busy_ps = (np.maximum(so_far_ps[last], from_there_ps[first]) + sent_bytes / rate)[sent_bytes > 0]
            at_least_ps += int(times) * int(busy_ps.max(initial=0))
        return at_least_ps

    def _times(self, sent: Round) -> _RoundBounds:
        key = _digest(sent)
        known = self._known.get(key)
        if known is None:
            at_most_ps, at_least_ps = self._bounds(self._ways.of(sent.pattern), sent, delivered=True)
            known = self._known[key] = _RoundBounds(at_least_ps)
            if at_most_ps.max() <= at_least_ps:
                known.delivered = _last_message(at_most_ps)
        return known

    def _bounds(self, way: RouteSet, sent: Round, *, delivered: bool) -> tuple[Ints, int]:
        """Return when each message is there (delivered, or gone) at the latest, and when the last is at the soonest."""
        latency_ps, soonest_ps = (way.routes.latency_ps, way.soonest_ps) if delivered else (np.int64(0), np.int64(0))
        share = self._capacity_of(way)[way.used] / way.load
        at_most_ps = latency_ps + round_up_ps(
            sent.bytes / np.minimum.reduceat(share[way.place], way.routes.offsets[:-1])
        )
        mean_bytes = sent.bytes[0] if all_equal(sent.bytes) else way.bytes_on_links(sent.bytes) / way.load
        return at_most_ps, int((soonest_ps + round_up_ps(mean_bytes / share)).max())

    def _latest(self, sent: Round, known: _RoundBounds, *, delivered: bool) -> _LastMessage:
        """Return when the last message of a round is delivered, or has left; what else a solution tells is noted."""
        way = self._ways.of(sent.pattern)
        at_most_ps, at_least_ps = self._bounds(way, sent, delivered=delivered)
        alone = way.alone
        if at_most_ps.max() <= at_least_ps or alone.all():
            return _last_message(at_most_ps)
        if self._release == "sent":
            known.left, known.delivered = (_last_message(each) for each in self.message_ps(sent))
            return known.delivered if delivered else known.left
        # Whatever ends last ends no sooner than the busiest link.
        chosen = way.sharing_with(at_most_ps >= at_least_ps)
        shared, others = np.flatnonzero(chosen & ~alone), np.flatnonzero(chosen & alone)
        solved = self._solve(way, sent, shared) if len(shared) else np.zeros(0, np.int64)
        last = _last_message(np.concatenate([solved, at_most_ps[others]]))
        return _LastMessage(last.ps, int(np.concatenate([shared, others])[last.message]))


def _last_message(ends_ps: Ints) -> _LastMessage:
    """Return the last of some messages that end at these times, int64 of shape (m,)."""
    message = int(np.argmax(ends_ps))
    return _LastMessage(int(ends_ps[message]), message)


def _digest(sent: Round) -> bytes:
    """Return what tells a round from others by its content."""
    digest = blake2b(sent.pattern.key, digest_size=16)
    digest.update((sent.bytes[:1] if all_equal(sent.bytes) else sent.bytes).tobytes())
    return digest.digest()
