"""A collective schedule as data: who sends which part of the buffer to whom, in which round, after what.

Rounds are clocked: a round starts when all transfers of the rounds that it waits for have been delivered, on all ranks;
`docs/architecture.md` says why. Repetition is data: rounds of one pattern and the same bytes are one step, however many
there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Literal, TypeAlias, overload

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.overheads import MessageConstants, Overheads

Release: TypeAlias = Literal["delivered", "sent"]


@dataclass(frozen=True, slots=True, eq=False)
class TransferLegs:
    """What ranks of unlike nodes send each other as parts of one transfer, int64 of shape (m,) each.

    Every leg carries a ``share`` of the buffer, and ``depth`` of them follow each other.
    """

    src: Ints
    dst: Ints
    share: float
    depth: int


@dataclass(frozen=True, eq=False)
class Pattern:
    """Who sends to whom."""

    # src, dst: ranks of each message; a pair may have several, over connections of their own
    src: Ints
    dst: Ints
    # Whether a switch sums what all ``src`` send and multicasts it to all ``dst``: one message for all of them
    through_switch: bool = False
    # With ``through_switch``, what goes between nodes, whose own switches sum and multicast; None where switches do all
    # of it
    legs: TransferLegs | None = None
    # What a library adds to each message; patterns that differ in it are different patterns
    overheads: Overheads | None = None
    # A pattern of which this one has some messages, and which: it has their routes
    part_of: tuple[Pattern, Ints] | None = None
    # With ``through_switch``, how many groups of ranks have a message each: rank i of ``src`` and ``dst`` is of group i
    # mod ``groups``, and of legs too
    groups: int = 1

    def part(self, chosen: Ints) -> Pattern:
        """Return the pattern of some of its messages, int64 of shape (k,)."""
        return Pattern(self.src[chosen], self.dst[chosen], part_of=(self, chosen))

    @property
    def messages(self) -> int:
        """Number of messages of a round."""
        return min(len(self.src), self.groups) if self.through_switch else len(self.src)

    @cached_property
    def key(self) -> bytes:
        """What tells it from others by its content, or that of which it is a part: its routes are found once."""
        if self.part_of is not None:
            whole, chosen = self.part_of
            digest = blake2b(chosen.tobytes(), digest_size=16, key=whole.key)
        else:
            digest = blake2b(self.src.astype(np.int64).tobytes(), digest_size=16, key=b"switch" * self.through_switch)
            digest.update(self.dst.astype(np.int64).tobytes())
            digest.update(len(self.src).to_bytes(8, "little"))
            if self.groups > 1:
                digest.update(b"groups" + self.groups.to_bytes(8, "little"))
            if self.legs is not None:
                digest.update(b"".join(side.tobytes() for side in (self.legs.src, self.legs.dst)))
                digest.update(repr((self.legs.share, self.legs.depth)).encode())
        if self.overheads is not None:
            digest.update(self.overheads.key)
        return digest.digest()


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """A round as the network sees it: ``bytes``, float64 of shape (m,), is what each message takes on the network.

    Chunks of an evenly cut buffer all count its nominal share, of which the pieces are the rounding to whole elements,
    so that rounds repeat. What a library makes of them is in it.
    """

    pattern: Pattern
    bytes: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A round, once or several times in a row."""

    round: Round
    times: int = 1  # How often, each time after the time before has been delivered
    # after, after_sent: steps that must have been delivered before, None for the step before this one, and steps of
    # which the last byte must have left: their latency is not waited for
    after: tuple[int, ...] | None = None
    after_sent: tuple[int, ...] = ()

    def waits(self, index: int) -> tuple[int, ...]:
        """Return the steps that must have been delivered before this one, the schedule's number ``index``."""
        if self.after is not None:
            return self.after
        return (index - 1,) if index else ()


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """The positions [start, stop) that the messages of a round carry; a message may carry several pieces."""

    # message, start, stop: which message of the round each piece belongs to, and where it lies
    message: Ints
    start: Ints
    stop: Ints
    adds: Mask  # Whether the destination adds what comes to what it has, or replaces it


def traffic_between(ranks: int, src: Ints, dst: Ints, elements: Ints) -> Ints:
    """Return what each rank sends and receives where messages carry so many elements, int64 of shape (2, ranks)."""
    total = np.zeros((2, ranks), np.int64)
    np.add.at(total[0], src, elements.reshape(-1))
    np.add.at(total[1], dst, elements.reshape(-1))
    return total


def traffic_of(stages: Sequence[Stage], ranks: int) -> Ints:
    """Return what each rank sends and receives in several stages, int64 of shape (2, ranks)."""
    return sum((stage.traffic(ranks) for stage in stages), np.zeros((2, ranks), np.int64))


class LazySteps(Sequence[Step]):
    """Steps that are made when asked for, where all of them together would not fit in memory."""

    def __init__(self, count: int, make: Callable[[int], Step]) -> None:
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> list[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | list[Step]:
        if isinstance(index, slice):
            return [self._make(i) for i in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(f"step {index} of {self._count}")
        return self._make(index % self._count)


@dataclass(frozen=True, eq=False)
class CombinedRound:
    """All messages of a chain of rounds as one round, of which every round has a part."""

    round: Round  # Of all messages
    first: Ints  # In which round each message is sent first, from 0 on
    times: int  # In how many rounds, one after the other, each is sent
    line: Ints  # To which line or tree of several side by side each belongs: a rank sends what it got in the same

    @cached_property
    def key(self) -> bytes:
        """What tells it from others by its content but for bytes."""
        digest = blake2b(self.first.tobytes(), digest_size=16, key=self.round.pattern.key)
        digest.update(self.line.tobytes() + self.times.to_bytes(8, "little"))
        return digest.digest()


@dataclass(frozen=True, eq=False)
class Stage:
    """Steps that belong together, and what they carry: a schedule, or a part of one."""

    steps: Sequence[Step]  # In an order in which every step comes after those that it waits for
    pieces: Callable[[int, int], Pieces]  # ``pieces(step, time)`` returns what the messages of that round carry
    # Returns sent and received positions, int64 of shape (2, ranks), for a number of ranks; None where adding up the
    # pieces is quick enough
    volume: Callable[[int], Ints] | None = None
    chain: bool = True  # Whether every step waits for the one before it and nothing else
    # Of a pipeline, whose steps are a chain, all that it sends, which bounds its time without a look at its steps
    whole: CombinedRound | None = None

    @cached_property
    def rounds(self) -> int:
        """Number of rounds."""
        return sum(step.times for step in self.steps)

    def traffic(self, ranks: int) -> Ints:
        """Return positions sent and received by each rank, int64 of shape (2, ranks)."""
        if self.volume is not None:
            return self.volume(ranks)
        total = np.zeros((2, ranks), np.int64)
        for index, step in enumerate(self.steps):
            pattern = step.round.pattern
            for time in range(step.times):
                pieces = self.pieces(index, time)
                sizes = pieces.stop - pieces.start
                if pattern.through_switch:
                    total += traffic_between(ranks, pattern.src, pattern.dst, np.full(len(pattern.src), sizes.sum()))
                else:
                    message = pieces.message
                    total += traffic_between(ranks, pattern.src[message], pattern.dst[message], sizes)
        return total


@dataclass(frozen=True, eq=False)
class Schedule:
    """All rounds of one collective.

    ``helpers`` are GPUs beside the ranks that take part, numbered after them: servers. ``concurrent`` are ranks of
    other
    groups, numbered after those, which do the same at once and of which nothing else is told. ``launch_ps`` is what a
    library takes to launch it, in picoseconds before the first step, ``launch`` what that is the sum of, where the
    library tells, and ``protocol`` how it sends, where it has several ways. ``host`` is what a host takes from one
    launch to the next, and ``host_bound`` tells that this takes longer than the GPUs do, which wait for it before the
    first step.
    """

    demand: Demand
    algorithm: str
    stage: Stage
    helpers: int = 0
    launch_ps: int = 0
    launch: tuple[MessageConstants, ...] = ()
    protocol: str = ""
    host: tuple[MessageConstants, ...] = ()
    host_bound: bool = False
    concurrent: int = 0

    @property
    def text(self) -> str:
        """The algorithm, and how it is sent."""
        return f"{self.algorithm} ({self.protocol})" if self.protocol else self.algorithm

    @property
    def host_ps(self) -> int:
        """Picoseconds that the host takes."""
        return sum(int(each.each[0]) for each in self.host)

    @property
    def places(self) -> int:
        """Ranks, helpers and ranks of other groups."""
        return self.demand.ranks + self.helpers + self.concurrent

    @property
    def steps(self) -> Sequence[Step]:
        """All steps, see `Stage`."""
        return self.stage.steps

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return self.stage.rounds

    @cached_property
    def release(self) -> Release:
        """Whether some step starts when bytes have left rather than arrived."""
        return "sent" if not self.stage.chain and any(step.after_sent for step in self.steps) else "delivered"

    @property
    def assisted(self) -> bool:
        """Whether a switch or a server reduces, so that ranks together send less than they would among themselves."""
        return self.helpers > 0 or any(step.round.pattern.through_switch for step in self.steps[:1])

    def traffic(self) -> tuple[Ints, Ints]:
        """Return (sent, received) bytes of each rank and helper, int64; of other groups' ranks none are told."""
        own = self.places - self.concurrent
        sent, received = self.stage.traffic(self.places)[:, :own] * self.demand.itemsize
        return sent, received
