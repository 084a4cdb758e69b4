"""Latency, bytes and limits that a communication library adds to the messages of a pattern."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from s2sim.arrays import Floats, Ints, Mask
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
    factor : float64 array, shape (m,)
        Bytes on the network for each byte of the message, at least 1.
    limit_Bps : float64 array, shape (m,)
        Most that the network carries of each message; infinite where nothing limits it.
    """

    latency_ps: Ints
    factor: Floats
    limit_Bps: Floats

    def __post_init__(self) -> None:
        if (self.latency_ps < 0).any() or (self.factor < 1).any() or not (self.limit_Bps > 0).all():
            raise S2SimError("a library adds no negative latency, sends no fewer bytes, and carries more than nothing")

    @property
    def key(self) -> bytes:
        """The same for the same overheads."""
        return b"".join(each.tobytes() for each in (self.latency_ps, self.factor, self.limit_Bps))

    def added_to(self, routes: Routes) -> Routes:
        """Return routes of the messages, one each, with the latency and the limits."""
        return replace(routes, latency_ps=routes.latency_ps + self.latency_ps, limit_Bps=self.limit_Bps)


def inside_node(cluster: Cluster, pattern: Pattern) -> Mask:
    """Return which messages of the pattern stay inside a node, bool of shape (m,)."""
    if pattern.through_switch:
        return np.full(pattern.messages, cluster.dims.nodes == 1)
    inside: Mask = cluster.node_of_rank[pattern.src] == cluster.node_of_rank[pattern.dst]
    return inside
