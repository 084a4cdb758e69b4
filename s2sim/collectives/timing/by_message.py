"""A schedule in execution in which every rank waits for its own messages only."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.schedules.schedule import Pattern, Step
from s2sim.collectives.timing.collective_run import MESSAGE_MASK, STEP_SHIFT, CompletedRound, ScheduleRun
from s2sim.network.base import call_after, call_now_or_after


@dataclass(eq=False)
class MessageLevelRun(ScheduleRun):
    """A collective in flight in which a rank waits for its own messages only.

    The part of a rank in a round is done when the messages that it sends and receives have been delivered; without
    messages, when it could have begun. A rank begins its part of a step when its parts of the steps before are done,
    or, if the step follows the last byte of another, when its own messages of that have been sent. Messages begin once
    both ends have posted the collective. GOAL texts have the same semantics (`s2sim.collectives.schedules.check`).
    ``on_rank_done`` is called with every rank when its part is done.
    """

    on_rank_done: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        ScheduleRun.__post_init__(self)
        schedule = self.schedule
        self._parts: dict[bytes, MessagesByRank] = {}
        self._begun: dict[int, PartialStep] = {}
        # By step and rank: number of steps for which the rank still waits; from the first of them that is done.
        self._waiting: dict[int, list[int]] = {}
        self._steps_left = [len(schedule.steps)] * schedule.places
        self._ranks_left = schedule.places
        self._here = [False] * schedule.places
        # (step, message) by a rank at one of its ends that has not posted yet.
        self._held: dict[int, list[tuple[int, int]]] = {}
        # (step, rank) whose next round may begin, and (step, message) to send, in the current timestep.
        self._able: list[tuple[int, int]] = []
        self._leaving: list[tuple[int, int]] = []

    def start(self) -> None:
        """Let all ranks post the collective now."""
        self.post(range(self.schedule.places))

    def post(self, ranks: Iterable[int]) -> None:
        """Let some ranks post the collective now, each once; they take part after their launch."""
        call_now_or_after(self.network.env, self.schedule.launch_ps, partial(self._join, list(ranks)))

    def _join(self, ranks: list[int]) -> None:
        first = range(1) if self.schedule.stage.chain else np.flatnonzero(self._missing == 0).tolist()
        for rank in ranks:
            self._here[rank] = True
        for rank in ranks:
            for index, message in self._held.pop(rank, ()):
                self._offer(index, message)
            if self._steps_left[rank] == 0:
                self._leave(rank)
            else:
                self._able += [(index, rank) for index in first]
        self._go_on()

    def _go_on(self) -> None:
        while self._able:
            self._begin(*self._able.pop())
        leaving, self._leaving = self._leaving, []
        if leaving:
            numbers = [self._begun[index].numbers[message] for index, message in leaving]
            sizes = [self._begun[index].bytes[message] for index, message in leaving]
            tags = [(index << STEP_SHIFT) + message for index, message in leaving]
            self.network.send(np.array(numbers), np.array(sizes), self._owner, np.array(tags))

    def _step(self, index: int) -> "PartialStep":
        if index not in self._begun:
            step = self.schedule.steps[index]
            pattern = step.round.pattern
            if pattern.key not in self._parts:
                self._parts[pattern.key] = messages_by_rank(pattern)
            routes = self._routes_of(pattern) if pattern.messages else (np.zeros(0, np.int64),) * 2
            self._begun[index] = PartialStep(step, self._parts[pattern.key], self.schedule.places, *routes)
        return self._begun[index]

    def _begin(self, index: int, rank: int) -> None:
        begun = self._step(index)
        if rank not in begun.parts.has:
            self._release(index, rank, by_sending=True)
            self._finish(index, rank)
            return
        begun.able.add(rank)
        sends = begun.parts.sends.get(rank, ())
        for message in sends:
            begun.senders_left[message] -= 1
            if begun.senders_left[message] == 0:
                begun.senders_left[message] = len(begun.parts.senders[message])
                self._offer(index, message)
        if not sends and begun.time[rank] == begun.step.times - 1:
            self._release(index, rank, by_sending=True)
        if begun.open[rank] == 0:
            self._end_round(index, rank)

    def _offer(self, index: int, message: int) -> None:
        """Send a message for which all senders are ready, once all its ends have posted."""
        absent = next((rank for rank in self._begun[index].parts.ends[message] if not self._here[rank]), None)
        if absent is None:
            self._begun[index].sent_ps[message] = int(self.network.env.now)
            self._leaving.append((index, message))
        else:
            self._held.setdefault(absent, []).append((index, message))

    def _arrived(self, tags: Ints) -> None:
        later: dict[int, list[tuple[int, int]]] = {}
        for tag in tags.tolist():
            index, message = tag >> STEP_SHIFT, tag & MESSAGE_MASK
            begun = self._begun[index]
            time = begun.delivered[message]
            delay_ps = int(begun.after_ps[message])
            if self.late_ps is not None:
                if time not in begun.late_ps:
                    begun.late_ps[time] = self.late_ps(index, time, len(begun.bytes))
                delay_ps += int(begun.late_ps[time][message])
            later.setdefault(delay_ps, []).append((index, message))
            if time == begun.step.times - 1:
                for rank in begun.parts.senders[message]:
                    begun.leaving[rank] -= 1
                    if begun.leaving[rank] == 0:
                        self._release(index, rank, by_sending=True)
        self._deliver(later.pop(0, []))
        for delay_ps in sorted(later):
            call_after(self.network.env, delay_ps, partial(self._deliver_late, later[delay_ps]))
        self._go_on()

    def _deliver_late(self, messages: list[tuple[int, int]]) -> None:
        self._deliver(messages)
        self._go_on()

    def _deliver(self, messages: list[tuple[int, int]]) -> None:
        for index, message in messages:
            begun = self._begun[index]
            time = begun.delivered[message]
            begun.delivered[message] = time + 1
            if self.on_round is not None:
                ran = begun.ran.setdefault(time, [])
                ran.append((message, begun.sent_ps[message], int(self.network.env.now)))
                if len(ran) == len(begun.bytes):
                    del begun.ran[time]
                    _, sent_ps, end_ps = np.array(sorted(ran), np.int64).T
                    self.on_round(CompletedRound(index, time, begun.step.round, int(sent_ps.min()), end_ps, sent_ps))
            for rank in begun.parts.ends[message]:
                # The rank may be some rounds behind.
                if begun.time[rank] == time:
                    begun.open[rank] -= 1
                    if begun.open[rank] == 0 and rank in begun.able:
                        self._end_round(index, rank)

    def _end_round(self, index: int, rank: int) -> None:
        begun = self._begun[index]
        begun.able.discard(rank)
        begun.time[rank] += 1
        time = begun.time[rank]
        if time == begun.step.times:
            self._finish(index, rank)
        else:
            begun.open[rank] = sum(begun.delivered[message] <= time for message in begun.parts.has[rank])
            self._able.append((index, rank))

    def _finish(self, index: int, rank: int) -> None:
        begun = self._begun[index]
        begun.ranks_left -= 1
        if begun.ranks_left == 0:
            del self._begun[index]
        self._steps_left[rank] -= 1
        if self.schedule.stage.chain:
            if self._steps_left[rank]:
                self._able.append((index + 1, rank))
        else:
            self._release(index, rank, by_sending=False)
        if self._steps_left[rank] == 0:
            self._leave(rank)

    def _release(self, index: int, rank: int, *, by_sending: bool) -> None:
        for dependent, on_sending in self._dependents.get(index, ()):
            if on_sending == by_sending:
                if dependent not in self._waiting:
                    self._waiting[dependent] = [int(self._missing[dependent])] * self.schedule.places
                self._waiting[dependent][rank] -= 1
                if self._waiting[dependent][rank] == 0:
                    self._able.append((dependent, rank))

    def _leave(self, rank: int) -> None:
        self._ranks_left -= 1
        if self.on_rank_done is not None:
            self.on_rank_done(rank)
        if self._ranks_left == 0:
            self.on_complete()


class PartialStep:
    """A step that some rank has begun, and that some rank has not done."""

    def __init__(self, step: Step, parts: "MessagesByRank", ranks: int, numbers: Ints, after_ps: Ints) -> None:
        self.step, self.parts, self.ranks_left = step, parts, ranks
        self.numbers, self.after_ps, self.bytes = numbers.tolist(), after_ps, step.round.bytes.tolist()
        # By rank: its round, its messages in that which have not been delivered, those of the last round not yet sent
        self.time = dict.fromkeys(parts.has, 0)
        self.open = {rank: len(messages) for rank, messages in parts.has.items()}
        self.leaving = {rank: len(messages) for rank, messages in parts.sends.items()}
        # By message: how often it has been delivered, when it was sent last, senders that have not begun its next round
        self.delivered, self.sent_ps = [0] * len(self.bytes), [0] * len(self.bytes)
        self.senders_left = [len(senders) for senders in parts.senders]
        self.able: set[int] = set()  # Ranks that have begun their part of a round
        self.late_ps: dict[int, Ints] = {}  # Of the messages of each round
        self.ran: dict[int, list[tuple[int, int, int]]] = {}  # By round: messages so far, when sent and delivered


@dataclass(frozen=True, slots=True)
class MessagesByRank:
    """Messages by rank, and ranks by message."""

    sends: dict[int, list[int]]  # Messages sent by each rank that sends any
    has: dict[int, list[int]]  # Messages sent or received by each rank that has any
    senders: list[list[int]]  # Of each message; several if a switch sums their data
    ends: list[list[int]]  # Senders and receivers of each message


def messages_by_rank(pattern: Pattern) -> MessagesByRank:
    """Return the messages of a pattern by rank.

    >>> import numpy as np
    >>> from s2sim.collectives.schedules.schedule import Pattern
    >>> messages_by_rank(Pattern(np.array([0, 1]), np.array([1, 2]))).has
    {0: [0], 1: [0, 1], 2: [1]}
    """
    src, dst = pattern.src.tolist(), pattern.dst.tolist()
    if pattern.through_switch:
        senders, receivers = ([side[each :: pattern.groups] for each in range(pattern.messages)] for side in (src, dst))
    else:
        senders, receivers = [[rank] for rank in src], [[rank] for rank in dst]
    ends = [list(dict.fromkeys([*ones, *others])) for ones, others in zip(senders, receivers, strict=True)]
    return MessagesByRank(_index_by_rank(senders), _index_by_rank(ends), senders, ends)


def _index_by_rank(ranks: list[list[int]]) -> dict[int, list[int]]:
    messages: dict[int, list[int]] = {}
    for message, members in enumerate(ranks):
        for rank in members:
            messages.setdefault(rank, []).append(message)
    return messages
