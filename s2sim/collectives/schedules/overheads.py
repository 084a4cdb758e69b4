"""Latency, bytes and limits that a communication library adds to the messages of a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, mul
from typing import TypeAlias

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.errors import S2SimError
from s2sim.topology.graph import Routes

Powers: TypeAlias = tuple[tuple[str, int], ...]
"""Constants by their names in a library's file, with the power of each: +1 for a latency, -1 for a share of a rate."""


@dataclass(frozen=True, slots=True, eq=False)
class MessageConstants:
    """A latency, share or limit of each message, which is one of a few values."""

    kind: str  # What it is, in words: ``"hop"``, ``"fill"``, ``"limit"`` ..
    powers: tuple[Powers, ...]  # What each value is proportional to; none where no constant counts
    values: Floats  # Whole picoseconds, bytes per second, or shares
    row: Ints  # Which value each message has
    times: int = 1  # How often each message has it

    @property
    def each(self) -> Floats:
        """The quantity of each message, of shape (m,)."""
        taken: Floats = self.values[self.row]
        return taken if self.times == 1 else taken * self.times

    def take(self, chosen: Ints) -> MessageConstants:
        """Return that of some messages, int64 of shape (k,)."""
        return replace(self, row=self.row[chosen])


@dataclass(frozen=True, slots=True, eq=False)
class RoundLatency:
    """What rounds take beside their bytes: the latencies of some messages added up, spread over some rounds."""

    ps: int  # Picoseconds of one round
    # src, dst: ranks of these messages
    src: Ints
    dst: Ints
    rounds: int  # Over how many rounds their latencies are spread
    latencies: tuple[MessageConstants, ...]  # What a library adds to them


@dataclass(frozen=True, slots=True, eq=False)
class Overheads:
    """The overheads of each message of a pattern; a library makes nothing faster, so that lower bounds stay bounds."""

    latency_ps: Ints  # Picoseconds beside the latency of the message's way
    factor: Floats  # Bytes on the network for each byte of the message, at least 1
    limit_Bps: Floats  # Most that the network carries of each message; infinite where nothing limits it
    # What passes from one round to the next beside what bytes take, in place of all latencies, where those of a round
    # do not clock the next
    round_latency: RoundLatency | None = None
    # latencies, shares, limits: what the latency is the sum of, the factor one over the product of, and the limit made
    # of, by constants; empty where a library does not tell
    latencies: tuple[MessageConstants, ...] = ()
    shares: tuple[MessageConstants, ...] = ()
    limits: tuple[MessageConstants, ...] = ()

    def __post_init__(self) -> None:
        if (self.latency_ps < 0).any() or (self.factor < 1).any() or not (self.limit_Bps > 0).all():
            raise S2SimError("a library adds no negative latency, sends no fewer bytes, and carries more than nothing")

    @property
    def key(self) -> bytes:
        """The same for the same overheads."""
        clock = b"" if self.round_latency is None else str(self.round_latency.ps).encode()
        return b"".join(each.tobytes() for each in (self.latency_ps, self.factor, self.limit_Bps)) + clock

    def take(self, chosen: Ints) -> Overheads:
        """Return those of some messages, int64 of shape (k,), with no clock."""
        made_of = (tuple(each.take(chosen) for each in made) for made in (self.latencies, self.shares, self.limits))
        return Overheads(self.latency_ps[chosen], self.factor[chosen], self.limit_Bps[chosen], None, *made_of)

    def added_to(self, routes: Routes) -> Routes:
        """Return routes of the messages, one each, with the latency and the limits."""
        latency_ps = routes.latency_ps + self.latency_ps
        if self.round_latency is not None:
            latency_ps = np.full_like(latency_ps, self.round_latency.ps)
        return replace(routes, latency_ps=latency_ps, limit_Bps=self.limit_Bps)


def overheads_of(
    latencies: Sequence[MessageConstants], shares: Sequence[MessageConstants], limits: Sequence[MessageConstants]
) -> Overheads:
    """Return the sum of latencies, one over the product of shares, and the one limit, with what they are made of."""
    latency_ps = reduce(add, (each.each for each in latencies)).astype(np.int64)
    share = reduce(mul, (each.each for each in shares))
    (limit,) = limits
    return Overheads(latency_ps, 1 / share, limit.each, None, tuple(latencies), tuple(shares), tuple(limits))
