"""The ways that messages take, as a closed form knows them: latencies and rates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hop:
    """A way between two ranks that no other message uses: its latency, and the rate of its narrowest link."""

    latency_s: float
    rate_Bps: float


@dataclass(frozen=True, slots=True)
class Hops:
    """All different ways that the messages of a schedule take, inside nodes and between the nodes that hold ranks."""

    inside: tuple[Hop, ...]
    across: tuple[Hop, ...]
    nodes: int

    def round_s(self, size_bytes: float) -> float:
        """Return how long a round takes in which messages of this size take all these ways."""
        return max((hop.latency_s + size_bytes / hop.rate_Bps for hop in (*self.inside, *self.across)), default=0.0)

    def sending_s(self, size_bytes: float) -> float:
        """Return how long it takes until all bytes of such a round have left."""
        return max((size_bytes / hop.rate_Bps for hop in (*self.inside, *self.across)), default=0.0)

    def within_nodes(self) -> Hops:
        """Return the ways inside nodes alone."""
        return Hops(self.inside, (), self.nodes)

    def between_nodes(self) -> Hops:
        """Return the ways between nodes alone."""
        return Hops((), self.across, self.nodes)
