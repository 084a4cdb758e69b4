"""A collective schedule as data: which rank sends which part of the buffer to which rank, in which round.

Rounds are clocked: a round starts when all transfers of the rounds that it waits for have been delivered, on all ranks
(see `docs/architecture.md`). Consecutive rounds of equal pattern and bytes are one step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Literal, TypeAlias

import numpy as np

from s2sim.arrays import Floats, Ints, LazySequence, Mask
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.overheads import MessageConstants, Overheads

Release: TypeAlias = Literal["delivered", "sent"]


@dataclass(frozen=True, slots=True, eq=False)
class TransferLegs:
    """The messages between nodes of one transfer, int64 of shape (m,) each.

    Every leg carries a ``share`` of the buffer; a path consists of ``depth`` legs.
    """

    src: Ints
    dst: Ints
    share: float
    depth: int


@dataclass(frozen=True, eq=False)
class Pattern:
    """Senders and receivers of the messages of a round."""

    # src, dst: ranks of each message; a pair may have several, over separate connections
    src: Ints
    dst: Ints
    # Whether a switch sums the buffers of all ``src`` and multicasts the sum to all ``dst``, as one message
    through_switch: bool = False
    # With ``through_switch``: the messages between nodes that each have a switch; None for one tree of switches
    legs: TransferLegs | None = None
    overheads: Overheads | None = None  # Added by a library to each message
    # A pattern of which this one is a subset, and the indices of its messages there: it has the same routes
    part_of: "tuple[Pattern, Ints] | None" = None
    # With ``through_switch``: number of groups of ranks with one message each; entry i of ``src``, ``dst`` and legs
    # belongs to group i mod ``groups``
    groups: int = 1

    def part(self, chosen: Ints) -> "Pattern":
        """Return the pattern of the messages of these indices, int64 of shape (k,)."""
        return Pattern(self.src[chosen], self.dst[chosen], part_of=(self, chosen))

    @property
    def messages(self) -> int:
        """Number of messages of a round."""
        return min(len(self.src), self.groups) if self.through_switch else len(self.src)

    @cached_property
    def key(self) -> bytes:
        """A digest of the content: routes of equal patterns are computed once."""
        if self.part_of is not None:
            key, parts = self.part_of[0].key, [self.part_of[1].tobytes()]
        else:
            key, count = b"switch" * self.through_switch, len(self.src).to_bytes(8, "little")
            parts = [*(side.astype(np.int64).tobytes() for side in (self.src, self.dst)), count]
            if self.groups > 1:
                parts += [b"groups", self.groups.to_bytes(8, "little")]
            if self.legs is not None:
                parts += [side.tobytes() for side in (self.legs.src, self.legs.dst)]
                parts.append(repr((self.legs.share, self.legs.depth)).encode())
        if self.overheads is not None:
            parts.append(self.overheads.key)
        return blake2b(b"".join(parts), digest_size=16, key=key).digest()


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """A round as seen by the network: ``bytes``, float64 of shape (m,), are the bytes of each message on the network.

    They include the protocol overhead of a library. Chunks of an evenly cut buffer all count its nominal share, so that
    rounds repeat; pieces round that to whole elements.
    """

    pattern: Pattern
    bytes: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A round, executed once or several times in sequence."""

    round: Round
    times: int = 1  # Number of executions; each starts when the one before has been delivered
    # after: steps that have to be delivered before; None for the preceding step.
    # after_sent: steps of which the last byte has to be sent before
    after: tuple[int, ...] | None = None
    after_sent: tuple[int, ...] = ()

    def waits(self, index: int) -> tuple[int, ...]:
        """Return the steps that have to be delivered before this one, which has number ``index``."""
        if self.after is not None:
            return self.after
        return (index - 1,) if index else ()


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Positions [start, stop) of the buffer in the messages of a round; a message may have several pieces."""

    message: Ints  # Index of the message in the round
    start: Ints
    stop: Ints
    adds: Mask  # Whether the destination adds the received values to its own, instead of replacing these

    @classmethod
    def one_each(cls, start: Ints, stop: Ints, adds: Mask | bool) -> "Pieces":
        """Return one piece per message; arrays of one shape, in the order of messages."""
        return cls(np.arange(start.size), start.reshape(-1), stop.reshape(-1), np.broadcast_to(adds, start.size))


def traffic_between(ranks: int, src: Ints, dst: Ints, elements: Ints) -> Ints:
    """Return the elements that each rank sends and receives in messages of these sizes, int64 of shape (2, ranks)."""
    total = np.zeros((2, ranks), np.int64)
    np.add.at(total[0], src, elements.reshape(-1))
    np.add.at(total[1], dst, elements.reshape(-1))
    return total


class LazySteps(LazySequence[Step]):
    """Steps that are created on access, because all of them together would not fit in memory."""


@dataclass(frozen=True, eq=False)
class CombinedRound:
    """All messages of a chain of rounds as one round, of which every round has a subset."""

    round: Round
    first: Ints  # Index of the first round of each message
    times: int  # Number of consecutive rounds of each message
    line: Ints  # Line or tree of each message: ranks forward what they received in the same one

    @cached_property
    def key(self) -> bytes:
        """A digest of the content except bytes."""
        parts = self.first.tobytes(), self.line.tobytes(), self.times.to_bytes(8, "little")
        return blake2b(b"".join(parts), digest_size=16, key=self.round.pattern.key).digest()


@dataclass(frozen=True, eq=False)
class Stage:
    """Steps of a schedule or of a part of one, and their contents."""

    steps: Sequence[Step]  # Every step after those that it waits for
    pieces: Callable[[int, int], Pieces]  # ``pieces(step, time)`` returns the pieces of that round
    # Returns sent and received positions, int64 of shape (2, ranks), for a number of ranks; None: sum of the pieces
    volume: Callable[[int], Ints] | None = None
    chain: bool = True  # Whether every step waits for the preceding one only
    # Of a pipeline, whose steps are a chain: all its messages, which bound its time without access to its steps
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


def with_protocol(algorithm: str, protocol: str) -> str:
    """Return the text of an algorithm and its protocol, which may be empty."""
    return f"{algorithm} ({protocol})" if protocol else algorithm


@dataclass(frozen=True, eq=False)
class Schedule:
    """All rounds of one collective."""

    demand: Demand
    algorithm: str
    stage: Stage
    helpers: int = 0  # Servers on additional GPUs, numbered after the ranks
    launch_ps: int = 0  # Duration of the launch by a library, before the first step
    launch: tuple[MessageConstants, ...] = ()  # Terms of that duration, if the library defines them
    protocol: str = ""  # Of the library, if it has several
    wants_protocol: str = ""  # The one that the algorithm is made for; empty for any
    host: tuple[MessageConstants, ...] = ()  # Terms of the time that the host needs from one launch to the next
    host_bound: bool = False  # Whether GPUs wait for the host, which needs longer than they do
    concurrent: int = 0  # Ranks of other groups that run the same concurrently, numbered after ranks and helpers

    @property
    def text(self) -> str:
        """The algorithm and its protocol."""
        return with_protocol(self.algorithm, self.protocol)

    @property
    def host_ps(self) -> int:
        """Time of the host per launch in picoseconds."""
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
        """Whether some step starts when bytes have been sent instead of delivered."""
        return "sent" if not self.stage.chain and any(step.after_sent for step in self.steps) else "delivered"

    @cached_property
    def assisted(self) -> bool:
        """Whether a switch or a server reduces, so that ranks send fewer bytes than among themselves."""
        steps = self.steps[:1] if self.stage.chain else self.steps
        return self.helpers > 0 or any(step.round.pattern.through_switch for step in steps)

    def traffic(self) -> tuple[Ints, Ints]:
        """Return (sent, received) bytes of each rank and helper, int64."""
        sent, received = self.stage.traffic(self.places)[:, : self.places - self.concurrent] * self.demand.itemsize
        return sent, received
