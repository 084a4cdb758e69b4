"""How long one round takes with nothing else in flight.

A message that shares no link with another of its round takes its latency plus its bytes over its narrowest link; the
others share links max-min fairly. Both give the integer picoseconds of the fluid network, which the tests check, but
for completions so close that the network counts them as one. A round that was seen before is not solved again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from s2sim.network.fluid import whole_ps
from s2sim.network.together import Together
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.collectives.schedules.schedule import Pattern, Release, Round
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.routes import Routes

# Routes of so many patterns are kept: a pairwise exchange of P ranks has P - 1 of P routes each.
_KEPT_PATTERNS = 64
# Some 24 bytes each.
_KEPT_CROSSINGS = 1 << 25


def find_routes(cluster: Cluster, pattern: Pattern) -> Routes:
    """Return one route a message of the pattern."""
    if pattern.through_switch:
        return cluster.reduction_tree()
    return cluster.routes(pattern.src, pattern.dst)


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What is known of a pattern: its routes, which messages share no link with another, and those that do.

    Also how long its rounds take, and take at least, by a digest of their bytes.
    """

    routes: Routes
    alone: NDArray[np.bool_]
    sharing: Together | None
    times_ps: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    latest: dict[bytes, tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=dict)  # at most one
    bounds_ps: dict[bytes, int] = field(default_factory=dict)


def _digest(sent: Round) -> bytes:
    return blake2b(sent.bytes.tobytes(), digest_size=16).digest()


class RoundTimes:
    """Times rounds on a cluster, each distinct round once.

    Parameters
    ----------
    cluster : Cluster
        Where they run.
    release : {"delivered", "sent"}
        Whether latency passes before bytes share links, or after, because the next round follows the last byte.
    """

    def __init__(self, cluster: Cluster, release: Release = "delivered") -> None:
        self._cluster = cluster
        self._release = release
        self._patterns: dict[Pattern, _Known] = {}
        self._crossings = 0

    def _known(self, pattern: Pattern) -> _Known:
        known = self._patterns.get(pattern)
        if known is None:
            routes = find_routes(self._cluster, pattern)
            self._crossings += len(routes.links)
            if len(self._patterns) >= _KEPT_PATTERNS or self._crossings > _KEPT_CROSSINGS:
                self._patterns.clear()
                self._crossings = len(routes.links)
            users = np.bincount(routes.links)[routes.links]
            alone = np.maximum.reduceat(users, routes.offsets[:-1]) == 1
            known = _Known(routes, alone, self._shared(routes, alone))
            self._patterns[pattern] = known
        return known

    def routes(self, pattern: Pattern) -> Routes:
        """Return the routes of a pattern's messages."""
        return self._known(pattern).routes

    def alone(self, pattern: Pattern) -> NDArray[np.bool_]:
        """Return which messages of a pattern share no link with another of them, bool of shape (m,)."""
        return self._known(pattern).alone

    def message_ps(self, sent: Round) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return when each message has left and when it is delivered, int64 picoseconds from the round's start."""
        known, digest = self._known(sent.pattern), _digest(sent)
        if digest not in known.latest:
            known.latest.clear()
            known.latest[digest] = self._solved(known, sent)
        return known.latest[digest]

    def _solved(self, known: _Known, sent: Round) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rate = known.routes.narrowest(self._cluster.fabric.rate_Bps / PS_PER_S)
        leaving = whole_ps(sent.bytes / rate)
        if known.sharing is not None:
            shared = np.flatnonzero(~known.alone)
            leaving[shared] = known.sharing.deliver_ps(sent.bytes[shared])
            if self._release == "delivered":
                leaving[shared] -= known.routes.latency_ps[shared]
        return leaving, leaving + known.routes.latency_ps

    def _shared(self, routes: Routes, alone: NDArray[np.bool_]) -> Together | None:
        """Return those messages that share links; with ``release=sent`` their latency passes after their bytes."""
        if alone.all():
            return None
        shared = routes.take(np.flatnonzero(~alone))
        if self._release == "sent":
            shared = replace(shared, latency_ps=np.zeros_like(shared.latency_ps))
        return Together(shared, self._cluster.fabric.rate_Bps / PS_PER_S)

    def round_ps(self, sent: Round) -> tuple[int, int]:
        """Return when the last message of a round has left and when the last is delivered, from its start."""
        if sent.pattern.messages == 0:
            return 0, 0
        known, digest = self._known(sent.pattern), _digest(sent)
        if digest not in known.times_ps:
            leaving, delivered = self.message_ps(sent)
            known.times_ps[digest] = int(leaving.max()), int(delivered.max())
        return known.times_ps[digest]

    def time_ps(self, sent: Round) -> int:
        """Return when the last message of a round is delivered, in integer picoseconds from its start."""
        return self.round_ps(sent)[1]

    def at_least_ps(self, sent: Round) -> int:
        """Return a time that a round cannot beat: its busiest link's bytes over its rate, after the least latency."""
        if sent.pattern.messages == 0:
            return 0
        known, digest = self._known(sent.pattern), _digest(sent)
        if digest not in known.bounds_ps:
            routes = known.routes
            load = np.bincount(routes.links, np.repeat(sent.bytes, np.diff(routes.offsets)) * routes.weights)
            busiest = float((load / self._cluster.fabric.rate_Bps[: len(load)]).max()) * PS_PER_S
            known.bounds_ps[digest] = int(routes.latency_ps.min() + busiest)
        return known.bounds_ps[digest]
