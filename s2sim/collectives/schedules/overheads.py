"""Latencies, bytes and rate limits that a communication library adds to the messages of a pattern."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, mul
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats, Ints
from s2sim.errors import S2SimError
from s2sim.topology.graph import Routes

Powers: TypeAlias = tuple[tuple[str, int], ...]
"""Constants by their names in a library's file, with the power of each: +1 for a latency, -1 for a share of a rate."""


@dataclass(frozen=True, slots=True, eq=False)
class MessageConstants:
    """A latency, share or limit of each message, as an index into a few values."""

    kind: str  # ``"hop"``, ``"fill"``, ``"limit"`` ..
    powers: tuple[Powers, ...]  # Constants to which each value is proportional; may be empty
    values: Floats  # Whole picoseconds, bytes per second, or shares
    row: NDArray[np.integer]  # Index of the value of each message; of few bytes, as messages are many
    times: int = 1  # Factor of all values

    @property
    def each(self) -> Floats:
        """The quantity of each message, of shape (m,)."""
        taken: Floats = self.values[self.row]
        return taken if self.times == 1 else taken * self.times

    def take(self, chosen: Ints) -> "MessageConstants":
        """Return the constants of the messages of these indices, int64 of shape (k,)."""
        return replace(self, row=self.row[chosen])


@dataclass(frozen=True, slots=True, eq=False)
class RoundLatency:
    """The latency of a round: the sum of the latencies of some messages, divided by a number of rounds."""

    ps: int  # Picoseconds per round
    # src, dst: ranks of these messages
    src: Ints
    dst: Ints
    rounds: int
    latencies: tuple[MessageConstants, ...]  # Added to these messages by a library


@dataclass(frozen=True, slots=True, eq=False)
class Overheads:
    """The overheads of each message of a pattern; never negative, so that lower bounds stay valid."""

    latency_ps: Ints  # Picoseconds in addition to the latency of the route
    factor: Floats  # Bytes on the network per byte of the message, at least 1
    limit_Bps: Floats  # Largest rate of each message; infinite without a limit
    # Latency per round that replaces all latencies of messages, in rings and pipelines
    round_latency: RoundLatency | None = None
    # latencies, shares, limits: terms of the latency (a sum), of the factor (one over their product) and of the limit,
    # by constants; empty if the library does not define them
    latencies: tuple[MessageConstants, ...] = ()
    shares: tuple[MessageConstants, ...] = ()
    limits: tuple[MessageConstants, ...] = ()

    def __post_init__(self) -> None:
        if (self.latency_ps < 0).any() or (self.factor < 1).any() or not (self.limit_Bps > 0).all():
            raise S2SimError("a library adds no negative latency, sends no fewer bytes, and carries more than nothing")

    @property
    def key(self) -> bytes:
        """The content as bytes."""
        clock = b"" if self.round_latency is None else str(self.round_latency.ps).encode()
        return b"".join(each.tobytes() for each in (self.latency_ps, self.factor, self.limit_Bps)) + clock

    def take(self, chosen: Ints) -> "Overheads":
        """Return the overheads of the messages of these indices, int64 of shape (k,), without the latency per round."""
        made_of = (tuple(each.take(chosen) for each in made) for made in (self.latencies, self.shares, self.limits))
        return Overheads(self.latency_ps[chosen], self.factor[chosen], self.limit_Bps[chosen], None, *made_of)

    def added_to(self, routes: Routes) -> Routes:
        """Return the routes of the messages with latencies and limits of the overheads."""
        latency_ps = routes.latency_ps + self.latency_ps
        if self.round_latency is not None:
            latency_ps = np.full_like(latency_ps, self.round_latency.ps)
        return replace(routes, latency_ps=latency_ps, limit_Bps=self.limit_Bps)


def overheads_of(
    latencies: Sequence[MessageConstants], shares: Sequence[MessageConstants], limits: Sequence[MessageConstants]
) -> Overheads:
    """Return overheads from their terms: the sum of latencies, one over the product of shares, and the one limit."""
    latency_ps = reduce(add, (each.each for each in latencies)).astype(np.int64)
    share = reduce(mul, (each.each for each in shares))
    (limit,) = limits
    return Overheads(latency_ps, 1 / share, limit.each, None, tuple(latencies), tuple(shares), tuple(limits))
