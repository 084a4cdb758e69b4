"""How far the ranks are in a step that some of them have begun."""

from __future__ import annotations

from dataclasses import dataclass, field

from s2sim.arrays import Ints
from s2sim.collectives.schedules.schedule import Pattern, Step


@dataclass(slots=True)
class MessageDelays:
    """How late the messages of a round are, and how many have not been asked for."""

    late_ps: list[int]
    left: int


@dataclass(slots=True)
class PartialStep:
    """A step that some rank has begun, and that some rank has not done.

    By rank: in which round it is, how many of its messages in that have not been delivered, and how many of those that
    it sends in the last round have not left. By message: how often it has been delivered, when it was sent last, and
    how many of its senders have not begun its next round. Those are able that have begun their part of a round.
    """

    step: Step
    parts: MessagesByRank
    ranks_left: int
    numbers: list[int]
    after_ps: Ints
    bytes: list[float]
    time: dict[int, int] = field(init=False)
    open: dict[int, int] = field(init=False)
    leaving: dict[int, int] = field(init=False)
    delivered: list[int] = field(init=False)
    sent_ps: list[int] = field(init=False)
    senders_left: list[int] = field(init=False)
    able: set[int] = field(default_factory=set)
    late_ps: dict[int, MessageDelays] = field(default_factory=dict)
    ran: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.time = dict.fromkeys(self.parts.has, 0)
        self.open = {rank: len(messages) for rank, messages in self.parts.has.items()}
        self.leaving = {rank: len(messages) for rank, messages in self.parts.sends.items()}
        self.delivered = [0] * len(self.bytes)
        self.sent_ps = [0] * len(self.bytes)
        self.senders_left = [len(senders) for senders in self.parts.senders]


@dataclass(frozen=True, slots=True)
class MessagesByRank:
    """Messages by rank, and ranks by message."""

    sends: dict[int, list[int]]  # The messages that a rank sends; ranks that send none are left out
    has: dict[int, list[int]]  # Those that it sends or receives; ranks without any are left out
    # senders, ends: the ranks that send each message, several where a switch sums what they send, and those that send
    # or receive it
    senders: list[list[int]]
    ends: list[list[int]]


def messages_by_rank(pattern: Pattern) -> MessagesByRank:
    """Return who sends and who receives which messages of a pattern.

    >>> import numpy as np
    >>> from s2sim.collectives.schedules.schedule import Pattern
    >>> messages_by_rank(Pattern(np.array([0, 1]), np.array([1, 2]))).has
    {0: [0], 1: [0, 1], 2: [1]}
    """
    src, dst = pattern.src.tolist(), pattern.dst.tolist()
    if pattern.through_switch:
        senders, receivers = (
            [side[group :: pattern.groups] for group in range(pattern.messages)] for side in (src, dst)
        )
    else:
        senders, receivers = [[rank] for rank in src], [[rank] for rank in dst]
    ends = [list(dict.fromkeys([*ones, *others])) for ones, others in zip(senders, receivers, strict=True)]
    return MessagesByRank(_index_by_rank(senders), _index_by_rank(ends), senders, ends)


def _index_by_rank(ranks: list[list[int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for message, members in enumerate(ranks):
        for rank in members:
            found.setdefault(rank, []).append(message)
    return found
