"""A schedule in execution on a network, concurrently with other traffic."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.schedules.schedule import Pattern, Round, Schedule, Step
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.collectives.timing.routes import KnownRoutes, OnRoutes, find_routes
from s2sim.network.base import Network, at_end_of_timestep, call_after, call_now_or_after
from s2sim.network.fluid import FluidNetwork
from s2sim.topology.cluster import Cluster

# A tag has the step in its upper bits and the message in the lower ones.
STEP_SHIFT = 32
MESSAGE_MASK = (1 << STEP_SHIFT) - 1

LatePs = Callable[[int, int, int], Ints]


@dataclass(eq=False)
class ScheduleRun:
    """A collective in flight; if a step follows the last byte of another, latency passes after the bytes, not before.

    ``on_complete`` is called when everything has been delivered, ``on_round`` with every round that has been, and
    ``on_routes`` with the network's numbers of routes, and with their source and destination ranks.
    ``late_ps(step, time, messages)`` returns the delay between the last byte of each message of a round and its
    delivery, int64 picoseconds. ``known_routes`` may be shared by runs on one cluster and network.
    """

    network: Network
    schedule: Schedule
    cluster: Cluster
    on_complete: Callable[[], None]
    _: KW_ONLY
    on_round: "Callable[[CompletedRound], None] | None" = None
    late_ps: LatePs | None = None
    on_routes: OnRoutes | None = None
    known_routes: KnownRoutes = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._owner = self.network.add_owner(self._arrived)
        self._missing, self._dependents = dependencies(self.schedule)

    def _routes_of(self, pattern: Pattern) -> tuple[Ints, Ints]:
        """Return the network's numbers of a pattern's routes, and the latency after the bytes, int64 of shape (m,)."""
        by_sending = self.schedule.release == "sent"
        key = by_sending, pattern.key
        if key not in self.known_routes:
            routes = find_routes(self.cluster, pattern)
            after_ps = routes.latency_ps if by_sending else np.zeros_like(routes.latency_ps)
            numbers = self.network.add_routes(replace(routes, latency_ps=routes.latency_ps - after_ps))
            self.known_routes[key] = numbers, after_ps
            if self.on_routes is not None:
                self.on_routes(numbers, pattern.src[: len(numbers)], pattern.dst[: len(numbers)])
        return self.known_routes[key]

    def _arrived(self, tags: Ints) -> None:
        """Process messages whose last byte has been transmitted."""


@dataclass(eq=False)
class CollectiveRun(ScheduleRun):
    """A collective in flight: sends a round as soon as the rounds for which it waits have been delivered, or sent.

    ``passing`` are durations of rounds on a fluid network. With them, rounds of a chain pass without messages while
    nothing else is in flight; other transfers see the same network as if the messages were sent.
    """

    passing: RoundTimes | None = None

    def __post_init__(self) -> None:
        ScheduleRun.__post_init__(self)
        self._flying: dict[int, _ActiveRound] = {}
        self._open = len(self.schedule.steps)

    def start(self) -> None:
        """Launch the collective now, and then send all rounds that wait for nothing."""
        call_now_or_after(self.network.env, self.schedule.launch_ps, self._begin)

    def _begin(self) -> None:
        if self._open == 0:
            self.on_complete()
        elif self.schedule.stage.chain:
            self._go_on(0, 0)
        else:
            for index in np.flatnonzero(self._missing == 0).tolist():
                self._send(index, 0)

    def _go_on(self, index: int, time: int) -> None:
        """Send repetition ``time`` of a step; while the network is idle a chain runs on from there without messages."""
        network, times = self.network, self.passing if self.schedule.stage.chain else None
        if times is None or not isinstance(network, FluidNetwork) or not network.idle:
            self._send(index, time)
            return
        now = int(network.env.now)
        rounds_ps = np.array([times.time_ps(step.round) for step in self.schedule.steps[index:]])
        left = np.array([step.times for step in self.schedule.steps[index:]])
        left[0] -= time
        ends_ps = now + np.cumsum(rounds_ps * left)
        landed = False

        def land() -> None:
            nonlocal landed
            landed = True
            # Send the round that is in flight now, as of its start; one that ends now is, unless it takes no time.
            landed_ps = int(network.env.now)
            step = min(int(np.searchsorted(ends_ps, landed_ps)), len(ends_ps) - 1)
            start_ps = int(ends_ps[step - 1]) if step else now
            done = max(0, -(-(landed_ps - start_ps) // max(int(rounds_ps[step]), 1)) - 1)
            start_ps += done * int(rounds_ps[step])
            self._open = len(self.schedule.steps) - index - step
            self._send(index + step, done + (0 if step else time), partial(network.send_at, start_ps))

        def pass_by() -> None:
            if not landed:
                network.occupant = None
                self._open = 0
                self.on_complete()

        network.occupant = self._owner, land
        call_after(network.env, int(ends_ps[-1]) - now, lambda: at_end_of_timestep(network.env, pass_by))

    def _send(self, index: int, time: int, send: Callable[..., None] | None = None) -> None:
        """Send a round, now or as of an earlier time."""
        step = self.schedule.steps[index]
        messages = step.round.pattern.messages
        now = int(self.network.env.now)
        end_ps, after_ps = np.zeros((2, messages), np.int64)
        flying = self._flying[index] = _ActiveRound(step, time, now, end_ps, after_ps, messages, messages)
        if messages == 0:
            self._release(index, by_sending=True)
            self._finish(index)
            return
        numbers, flying.after_ps = self._routes_of(step.round.pattern)
        if self.late_ps is not None:
            flying.after_ps = flying.after_ps + self.late_ps(index, time, messages)
        (send or self.network.send)(numbers, step.round.bytes, self._owner, (index << STEP_SHIFT) + np.arange(messages))

    def _arrived(self, tags: Ints) -> None:
        steps = tags >> STEP_SHIFT
        for index in np.unique(steps).tolist():
            messages = tags[steps == index] & MESSAGE_MASK
            flying = self._flying[index]
            after_ps = flying.after_ps[messages]
            flying.leaving -= len(messages)
            flying.end_ps[messages] = self.network.env.now + after_ps
            # None of these makes anything start before the last of them has been delivered.
            call_now_or_after(self.network.env, int(after_ps.max()), partial(self._deliver, index, len(messages)))
            if flying.leaving == 0 and flying.time == flying.step.times - 1:
                self._release(index, by_sending=True)

    def _deliver(self, index: int, messages: int) -> None:
        flying = self._flying[index]
        flying.arriving -= messages
        if flying.arriving == 0:
            self._finish(index)

    def _finish(self, index: int) -> None:
        flying = self._flying.pop(index)
        if self.on_round is not None:
            sent_ps = np.full_like(flying.end_ps, flying.start_ps)
            ran = CompletedRound(index, flying.time, flying.step.round, flying.start_ps, flying.end_ps, sent_ps)
            self.on_round(ran)
        if flying.time + 1 < flying.step.times:
            self._go_on(index, flying.time + 1)
            return
        self._open -= 1
        if self._open == 0:
            self.on_complete()
        elif self.schedule.stage.chain:
            self._go_on(index + 1, 0)
        else:
            self._release(index, by_sending=False)

    def _release(self, index: int, *, by_sending: bool) -> None:
        for dependent, on_sending in self._dependents.get(index, ()):
            if on_sending == by_sending:
                self._missing[dependent] -= 1
                if self._missing[dependent] == 0:
                    self._send(dependent, 0)


@dataclass(frozen=True, slots=True, eq=False)
class CompletedRound:
    """A round that has been delivered, with its times."""

    step: int
    time: int  # Repetition of the step
    round: Round
    start_ps: int  # When its first message was sent
    end_ps: Ints  # When each message was delivered
    sent_ps: Ints  # When each message was sent


@dataclass(slots=True)
class _ActiveRound:
    step: Step
    time: int
    start_ps: int
    end_ps: Ints
    after_ps: Ints  # Between the last byte of a message and its delivery
    leaving: int
    arriving: int


def dependencies(schedule: Schedule) -> tuple[Ints, dict[int, list[tuple[int, bool]]]]:
    """Return how many dependencies each step has, and (dependent step, whether on sending) by step; none in a chain."""
    missing = np.zeros(len(schedule.steps), np.int64)
    dependents: dict[int, list[tuple[int, bool]]] = {}
    for index, step in enumerate(() if schedule.stage.chain else schedule.steps):
        for on_sending, before in ((False, step.waits(index)), (True, step.after_sent)):
            missing[index] += len(before)
            for other in before:
                dependents.setdefault(other, []).append((index, on_sending))
    return missing, dependents
