"""A collective schedule as data: who sends which part of the buffer to whom, in which round.

A rank takes part in the rounds in order: it starts its sends of round k when all its transfers of round k - 1, sent and
received, have been delivered. Ranks need not be in the same round at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    """

    pair: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    adds: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
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
        Whether all rounds have the same pairs and sizes: repetition as data.
    """

    demand: Demand
    algorithm: str
    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    rounds: int
    round_at: Callable[[int], Round]
    uniform: bool = False

    def sizes_bytes(self, transfers: Round) -> NDArray[np.int64]:
        """Return the bytes of each transfer of a round, int64."""
        return (transfers.stop - transfers.start) * self.demand.itemsize

    def pair_bytes(self) -> NDArray[np.int64]:
        """Return the bytes that each pair carries in all rounds, int64 of shape (pairs,)."""
        total = np.zeros(len(self.src), np.int64)
        if self.uniform and self.rounds:
            transfers = self.round_at(0)
            total[transfers.pair] = self.sizes_bytes(transfers) * self.rounds
            return total
        for k in range(self.rounds):
            transfers = self.round_at(k)
            total[transfers.pair] += self.sizes_bytes(transfers)
        return total

    def traffic(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (sent, received) bytes of each rank, int64 of shape (ranks,)."""
        carried = self.pair_bytes()
        sent, received = np.zeros((2, self.demand.ranks), np.int64)
        np.add.at(sent, self.src, carried)
        np.add.at(received, self.dst, carried)
        return sent, received
