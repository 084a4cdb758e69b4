"""Latency, bytes and limits that a communication library adds to the messages of a pattern."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import add, mul
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Floats, Ints, Mask
    from s2sim.collectives.schedules.clock import Clock
    from s2sim.collectives.schedules.per_message import PerMessage
    from s2sim.collectives.schedules.schedule import Pattern
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.routes import Routes


@dataclass(frozen=True, slots=True, eq=False)
class Overheads:
    """The overheads of each message of a pattern; a library makes nothing faster, so that lower bounds stay bounds.

    Attributes
    ----------
    latency_ps : int64 array, shape (m,)
        Picoseconds beside the latency of the message's way.
    clock : Clock or None
        What passes from one round to the next beside what bytes take, in place of all latencies, where those of a round
        do not clock the next.
    factor : float64 array, shape (m,)
        Bytes on the network for each byte of the message, at least 1.
    limit_Bps : float64 array, shape (m,)
        Most that the network carries of each message; infinite where nothing limits it.
    latencies, shares, limits : tuples of PerMessage
        What the latency is the sum of, the factor one over the product of, and the limit made of, by constants; empty
        where a library does not tell.
    """

    latency_ps: Ints
    factor: Floats
    limit_Bps: Floats
    clock: Clock | None = None
    latencies: tuple[PerMessage, ...] = ()
    shares: tuple[PerMessage, ...] = ()
    limits: tuple[PerMessage, ...] = ()

    def __post_init__(self) -> None:
        if (self.latency_ps < 0).any() or (self.factor < 1).any() or not (self.limit_Bps > 0).all():
            raise S2SimError("a library adds no negative latency, sends no fewer bytes, and carries more than nothing")

    @property
    def key(self) -> bytes:
        """The same for the same overheads."""
        clock = b"" if self.clock is None else str(self.clock.ps).encode()
        return b"".join(each.tobytes() for each in (self.latency_ps, self.factor, self.limit_Bps)) + clock

    def take(self, chosen: Ints) -> Overheads:
        """Return those of some messages, int64 of shape (k,), with no clock."""
        made_of = (tuple(each.take(chosen) for each in made) for made in (self.latencies, self.shares, self.limits))
        return Overheads(self.latency_ps[chosen], self.factor[chosen], self.limit_Bps[chosen], None, *made_of)

    def added_to(self, routes: Routes) -> Routes:
        """Return routes of the messages, one each, with the latency and the limits."""
        latency_ps = routes.latency_ps + self.latency_ps
        if self.clock is not None:
            latency_ps = np.full_like(latency_ps, self.clock.ps)
        return replace(routes, latency_ps=latency_ps, limit_Bps=self.limit_Bps)


def overheads_of(
    latencies: Sequence[PerMessage], shares: Sequence[PerMessage], limits: Sequence[PerMessage]
) -> Overheads:
    """Return the sum of latencies, one over the product of shares, and the one limit, with what they are made of."""
    latency_ps = reduce(add, (each.each for each in latencies)).astype(np.int64)
    share = reduce(mul, (each.each for each in shares))
    (limit,) = limits
    return Overheads(latency_ps, 1 / share, limit.each, None, tuple(latencies), tuple(shares), tuple(limits))


def inside_node(cluster: Cluster, pattern: Pattern) -> Mask:
    """Return which messages of the pattern stay inside a node, bool of shape (m,)."""
    if pattern.through_switch:
        return np.full(pattern.messages, len(np.unique(cluster.node_of_rank)) == 1)
    inside: Mask = cluster.node_of_rank[pattern.src] == cluster.node_of_rank[pattern.dst]
    return inside
