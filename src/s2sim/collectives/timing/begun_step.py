"""How far the ranks are in a step that some of them have begun."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s2sim.arrays import Ints
    from s2sim.collectives.schedules.schedule import Step
    from s2sim.collectives.timing.own_parts import OwnParts


@dataclass(slots=True)
class Drawn:
    """How late the messages of a round are, and how many have not been asked for."""

    late_ps: list[int]
    left: int


@dataclass(slots=True)
class BegunStep:
    """A step that some rank has begun, and that some rank has not done.

    By rank: in which round it is, how many of its messages in that have not been delivered, and how many of those that
    it sends in the last round have not left. By message: how often it has been delivered, when it was sent last, and
    how many of its senders have not begun its next round. Those are able that have begun their part of a round.
    """

    step: Step
    parts: OwnParts
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
    late_ps: dict[int, Drawn] = field(default_factory=dict)
    ran: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.time = dict.fromkeys(self.parts.has, 0)
        self.open = {rank: len(messages) for rank, messages in self.parts.has.items()}
        self.leaving = {rank: len(messages) for rank, messages in self.parts.sends.items()}
        self.delivered = [0] * len(self.bytes)
        self.sent_ps = [0] * len(self.bytes)
        self.senders_left = [len(senders) for senders in self.parts.senders]
