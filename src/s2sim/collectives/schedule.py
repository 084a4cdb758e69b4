"""A collective schedule as data: who sends which part of the buffer to whom, in which round.

Rounds are clocked: a round starts when all transfers of the round before it have been delivered, on all ranks. Where no
two transfers share a link, a ring takes the same time if each rank waits only for its own transfers, because its
slowest hop clocks all others. Where they share links, waiting only for one's own lets contending transfers drift into
each other's latency in a way that three more elements can turn over; clocked rounds have one answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from s2sim.errors import S2SimError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

Kind: TypeAlias = Literal["all_reduce", "all_gather"]
KINDS: tuple[Kind, ...] = ("all_reduce", "all_gather")


@dataclass(frozen=True, slots=True)
class Demand:
    """What a collective has to do, before any algorithm.

    Attributes
    ----------
    kind : {"all_reduce", "all_gather"}
        What every rank ends with: the sum of all contributions, or all of them side by side.
    elements : tuple of int
        Elements that each rank contributes; all equal for an all-reduce.
    itemsize : int
        Bytes of one element.
    """

    kind: Kind
    elements: tuple[int, ...]
    itemsize: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise S2SimError(f"unknown collective {self.kind!r}; known: {', '.join(KINDS)}")
        if not self.elements or min(self.elements) < 0:
            raise S2SimError("a collective needs at least one rank and no negative sizes")
        if self.kind == "all_reduce" and len(set(self.elements)) > 1:
            raise S2SimError("an all-reduce needs the same number of elements on every rank")

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.elements)

    @property
    def buffer_elements(self) -> int:
        """Elements of the buffer that every rank ends with."""
        return self.elements[0] if self.kind == "all_reduce" else sum(self.elements)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of that buffer."""
        return self.buffer_elements * self.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """The transfers of one round.

    Attributes
    ----------
    pair : int64 array, shape (m,)
        Which of the schedule's (source, destination) pairs each transfer uses, each at most once.
    start, stop : int64 arrays, shape (m,)
        Elements [start, stop) of the buffer that it carries.
    adds : bool array, shape (m,)
        Whether the destination adds what comes to what it has, or replaces it.
    bytes : float64 array, shape (m,)
        What each takes on the network. Chunks of an evenly cut buffer all count its nominal share, of which [start,
        stop) is the rounding to whole elements, so that rounds repeat.
    """

    pair: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    adds: NDArray[np.bool_]
    bytes: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Schedule:
    """All rounds of one collective.

    Attributes
    ----------
    demand : Demand
        What it computes.
    algorithm : str
        Option string of the algorithm that made it.
    src, dst : int64 arrays, shape (pairs,)
        Ranks of each pair that ever exchanges something.
    rounds : int
        Number of rounds.
    round_at : callable
        Returns round k; made when asked for, because a ring of P ranks has 2(P - 1) of them.
    uniform : bool
        Whether all rounds have the same pairs and bytes: repetition as data.
    """

    demand: Demand
    algorithm: str
    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    rounds: int
    round_at: Callable[[int], Round]
    uniform: bool = False

    @cached_property
    def pair_bytes(self) -> NDArray[np.int64]:
        """Bytes that each pair carries in all rounds, int64 of shape (pairs,)."""
        elements = np.zeros(len(self.src), np.int64)
        for k in range(self.rounds):
            transfers = self.round_at(k)
            elements[transfers.pair] += transfers.stop - transfers.start
        return elements * self.demand.itemsize

    def traffic(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (sent, received) bytes of each rank, int64 of shape (ranks,)."""
        carried = self.pair_bytes
        sent, received = np.zeros((2, self.demand.ranks), np.int64)
        np.add.at(sent, self.src, carried)
        np.add.at(received, self.dst, carried)
        return sent, received
