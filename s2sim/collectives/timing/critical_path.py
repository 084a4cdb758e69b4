"""End times of ranks that wait for their own messages only, for messages of known durations."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

import numpy as np
import simpy

from s2sim.arrays import Floats, Ints
from s2sim.collectives.schedules.schedule import Pattern, Schedule, Step
from s2sim.collectives.timing.collective_run import LatePs
from s2sim.network.base import at_end_of_timestep, call_after
from s2sim.network.max_min import NEVER
from s2sim.network.network import round_up_ps
from s2sim.topology.cluster import Cluster
from s2sim.topology.graph import Routes
from s2sim.units import PS_PER_S


@dataclass(eq=False)
class UncontendedRun:
    """A collective in flight, with the end times that `MessageLevelRun` has for it without other traffic on its links.

    Parameters are as of `s2sim.collectives.timing.by_message.MessageLevelRun`, with the critical path of the schedule.
    """

    env: simpy.Environment
    schedule: Schedule
    passage: "CriticalPath"
    on_complete: Callable[[], None]
    _: KW_ONLY
    on_rank_done: Callable[[int], None] | None = None
    late_ps: LatePs | None = None

    def __post_init__(self) -> None:
        # Delays that were sampled before all ranks had posted, by step and repetition.
        self._drawn: dict[tuple[int, int], Ints] = {}
        self._left = self.schedule.places
        self._start_ps = np.full(self._left, NEVER)
        self._told = np.zeros(self._left, np.bool_)
        self._looking = False

    def start(self) -> None:
        """Let all ranks post the collective now."""
        self.post(range(len(self._start_ps)))

    def post(self, ranks: Iterable[int]) -> None:
        """Let some ranks post the collective now, each once; they take part after their launch."""
        self._start_ps[list(ranks)] = int(self.env.now) + self.schedule.launch_ps
        if not self._looking:
            self._looking = True
            at_end_of_timestep(self.env, self._look)

    def _look(self) -> None:
        """Schedule the ends of ranks that depend only on ranks that have posted."""
        self._looking = False
        start_ps, missing = self._start_ps, int(self._start_ps.argmax())
        if self.late_ps is None and start_ps[missing] == NEVER and self.passage.needs(missing, len(start_ps)):
            return
        ends_ps = self.passage.ends_ps(start_ps, None if self.late_ps is None else self._draw)
        known = (ends_ps < NEVER) & ~self._told
        self._told |= known
        now = int(self.env.now)
        for end_ps in np.unique(ends_ps[known]).tolist():
            done = np.flatnonzero(known & (ends_ps == end_ps)).tolist()
            call_after(self.env, end_ps - now, partial(self._leave, done))

    def _draw(self, step: int, time: int, messages: int) -> Ints:
        """Return the additional delays of the messages of a round, cached until all ranks have posted."""
        assert self.late_ps is not None
        late_ps = self._drawn.pop((step, time), None)
        if late_ps is None:
            late_ps = self.late_ps(step, time, messages)
        if self._start_ps.max() == NEVER:
            self._drawn[step, time] = late_ps
        return late_ps

    def _leave(self, ranks: list[int]) -> None:
        self._left -= len(ranks)
        for rank in ranks:
            if self.on_rank_done is not None:
                self.on_rank_done(rank)
        if self._left == 0:
            self.on_complete()


# Crossings of all patterns, some 100 bytes each in `critical_path`.
_MAX_CROSSINGS = 1 << 21
_MAX_SPANS = 128  # places, for which times between all starts and ends are kept
_RATE_SLACK = 1 + 1e-12  # rounding of sums


@dataclass(eq=False)
class CriticalPath:
    """A chain of rounds whose messages have the same durations whenever its ranks begin.

    Each rank has at most the messages of one round in flight. ``flight_ps(index)`` returns the durations of the
    messages of a step, int64 picoseconds of shape (m,); ``routes`` are those of patterns by their keys, where known.
    """

    steps: Sequence[Step]
    flight_ps: Callable[[int], Ints]
    routes: dict[bytes, Routes] = field(default_factory=dict)
    _needs: dict[tuple[int, int], bool] = field(default_factory=dict, init=False)
    _asked: int = field(default=0, init=False)
    _spans_ps: Ints | None = field(default=None, init=False)

    def ends_ps(self, start_ps: Ints, late_ps: LatePs | None = None) -> Ints:
        """Return when each rank's part is done, int64 picoseconds of shape (places,).

        ``start_ps``, of the same shape, are the times after the launch of each rank; `NEVER` if not known yet, as are
        the ends of ranks that wait for such.

        An end is the largest sum of a start and the time from there, which are known from the second call on for few
        places.
        """
        self._asked += 1
        if late_ps is not None or self._asked == 1 or len(start_ps) > _MAX_SPANS or start_ps.max() == NEVER:
            return self._pass(start_ps, late_ps)
        if self._spans_ps is None:
            apart = np.full((len(start_ps), len(start_ps)), -(NEVER // 2))
            np.fill_diagonal(apart, 0)
            self._spans_ps = self._pass(apart, None)
        ends_ps: Ints = (self._spans_ps + start_ps).max(axis=1)
        return ends_ps

    def _pass(self, start_ps: Ints, late_ps: LatePs | None) -> Ints:
        """Return the ends for starts of shape (places,), or of each column of several."""
        ready_ps = start_ps.copy()
        for index, step in enumerate(self.steps):
            sent = step.round
            if not sent.pattern.messages:
                continue
            flight_ps = self.flight_ps(index)
            ends = [(side, len(np.unique(side)) == len(side)) for side in (sent.pattern.src, sent.pattern.dst)]
            for time in range(step.times):
                if ready_ps.min() == NEVER:
                    return ready_ps
                src, dst, groups = sent.pattern.src, sent.pattern.dst, sent.pattern.groups
                lasts_ps = flight_ps if late_ps is None else flight_ps + late_ps(index, time, sent.pattern.messages)
                begins_ps = np.maximum(ready_ps[src], start_ps[dst])
                lasts_ps = lasts_ps.reshape(-1, *(1,) * (start_ps.ndim - 1))
                if sent.pattern.through_switch:
                    # The message of a group begins with its last rank.
                    message = np.arange(len(src)) % groups
                    latest_ps = np.full((groups, *start_ps.shape[1:]), -(NEVER // 2))
                    np.maximum.at(latest_ps, message, begins_ps)
                    begins_ps, lasts_ps = latest_ps[message], lasts_ps[message]
                round_ends_ps = np.minimum(begins_ps + lasts_ps, NEVER)
                for places, distinct in ends:
                    if distinct:
                        ready_ps[places] = np.maximum(ready_ps[places], round_ends_ps)
                    else:
                        np.maximum.at(ready_ps, places, round_ends_ps)
        return ready_ps

    def needs(self, place: int, places: int) -> bool:
        """Return whether no rank's end is known before that of ``place`` is."""
        if (place, places) not in self._needs:
            start_ps = np.zeros(places, np.int64)
            start_ps[place] = NEVER
            self._needs[place, places] = bool((self.ends_ps(start_ps) == NEVER).all())
        return self._needs[place, places]


def critical_path(schedule: Schedule, cluster: Cluster, routes_of: Callable[[Pattern], Routes]) -> CriticalPath | None:
    """Return the critical path of a schedule whose messages can never contend on a link; None if they might.

    If links have capacity for all messages that ranks may send over them concurrently, every message is sent at its own
    limit. The times are those of a simulation, except for ties within 1e-9 of a duration, which are one event there.
    ``routes_of`` returns the routes of a pattern's messages, with the overheads of a library.
    """
    if not schedule.stage.chain:
        return None
    capacity = cluster.fabric.rate_Bps / PS_PER_S
    routes: dict[bytes, Routes] = {}
    limits: dict[bytes, Floats] = {}
    keys, rates, crossings = [], [], 0
    for step in schedule.steps:
        pattern = step.round.pattern
        if not pattern.messages or pattern.key in routes:
            continue
        found = routes[pattern.key] = routes_of(pattern)
        crossings += len(found.links)
        if crossings > _MAX_CROSSINGS:
            return None
        # The rate of each message without other traffic, in bytes per picosecond.
        limits[pattern.key] = found.fastest(capacity)
        lengths = np.diff(found.offsets)
        senders = np.repeat(pattern.src[: pattern.messages], lengths)
        key, place = np.unique(found.links * schedule.places + senders, return_inverse=True)
        keys.append(key)
        rates.append(np.bincount(place, np.repeat(limits[pattern.key], lengths) * found.weights))

    def flight_ps(index: int) -> Ints:
        sent = schedule.steps[index].round
        return routes[sent.pattern.key].latency_ps + round_up_ps(sent.bytes / limits[sent.pattern.key])

    if not keys:
        return CriticalPath(schedule.steps, flight_ps, routes)
    # The largest rate of each rank over each link in any round, and the sum over ranks.
    key, place = np.unique(np.concatenate(keys), return_inverse=True)
    most = np.zeros(len(key))
    np.maximum.at(most, place, np.concatenate(rates))
    carried = np.bincount(key // schedule.places, most, len(capacity))
    return CriticalPath(schedule.steps, flight_ps, routes) if (carried <= capacity * _RATE_SLACK).all() else None
