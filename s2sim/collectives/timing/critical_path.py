"""When ranks that wait for their own messages alone are done, where what each message takes is known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.collectives.schedules.schedule import Pattern, Schedule, Step
from s2sim.network.base import at_end_of_timestep
from s2sim.network.max_min import NEVER
from s2sim.network.network import round_up_ps
from s2sim.topology.cluster import Cluster
from s2sim.topology.graph import Routes
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    import simpy

LatePs = Callable[[int, int, int], Ints]


class UncontendedRun:
    """One collective in flight that `s2sim.collectives.timing.by_message.MessageLevelRun` would run to the same ends.

    Parameters
    ----------
    env : simpy.Environment
        Its time is integer picoseconds.
    schedule : Schedule
        What to send.
    passage : CriticalPath
        Of the schedule, with nothing else in flight on its links.
    on_complete : callable
        Called when everything has been delivered.
    on_rank_done : callable, optional
        Told of a rank when its whole part is done.
    late_ps : callable, optional
        As of `RunningByMessage`; each round is asked for once.
    """

    def __init__(
        self,
        env: simpy.Environment,
        schedule: Schedule,
        passage: CriticalPath,
        on_complete: Callable[[], None],
        *,
        on_rank_done: Callable[[int], None] | None = None,
        late_ps: LatePs | None = None,
    ) -> None:
        self._env = env
        self._launch_ps = schedule.launch_ps
        self._passage = passage
        self._on_complete = on_complete
        self._on_rank_done = on_rank_done
        self._late_ps = late_ps
        # What has been drawn while some ranks had not posted.
        self._drawn: dict[tuple[int, int], Ints] = {}
        self._start_ps = np.full(schedule.places, NEVER)
        self._told = np.zeros(schedule.places, np.bool_)
        self._left = schedule.places
        self._looking = False

    def start(self) -> None:
        """Let all ranks post it now."""
        self.post(range(len(self._start_ps)))

    def post(self, ranks: Iterable[int]) -> None:
        """Let some ranks post it now, each once; each launches it, and then takes part."""
        self._start_ps[list(ranks)] = int(self._env.now) + self._launch_ps
        if not self._looking:
            self._looking = True
            at_end_of_timestep(self._env, self._look)

    def _look(self) -> None:
        """Find which ranks will be done when, by those that have posted until now."""
        self._looking = False
        ends_ps = self._passage.ends_ps(self._start_ps, None if self._late_ps is None else self._draw)
        known = (ends_ps < NEVER) & ~self._told
        self._told |= known
        now = int(self._env.now)
        for moment_ps in np.unique(ends_ps[known]).tolist():
            done = np.flatnonzero(known & (ends_ps == moment_ps)).tolist()
            timeout = self._env.timeout(moment_ps - now, done)
            assert timeout.callbacks is not None
            timeout.callbacks.append(lambda event: self._leave(event.value))

    def _draw(self, step: int, time: int, messages: int) -> Ints:
        """Return how late the messages of a round are, kept until all ranks have posted."""
        assert self._late_ps is not None
        late_ps = self._drawn.pop((step, time), None)
        if late_ps is None:
            late_ps = self._late_ps(step, time, messages)
        if self._start_ps.max() == NEVER:
            self._drawn[step, time] = late_ps
        return late_ps

    def _leave(self, ranks: list[int]) -> None:
        """Tell that some ranks are done, and that all are."""
        self._left -= len(ranks)
        for rank in ranks:
            if self._on_rank_done is not None:
                self._on_rank_done(rank)
        if self._left == 0:
            self._on_complete()


# Crossings of all patterns, some 100 bytes each while they are looked at.
_MAX_CROSSINGS = 1 << 21
_RATE_SLACK = 1 + 1e-12  # rounding of sums


class CriticalPath:
    """A chain of rounds whose messages take as long whenever its ranks begin.

    A rank's messages of two rounds follow each other, so that at any time each rank has at most the messages of one
    round in flight, and the end of each follows from when it leaves.

    Parameters
    ----------
    steps : sequence of Step
        What runs, one after the other.
    flight_ps : callable
        Returns how long each message of a step takes, int64 picoseconds of shape (m,), by the step's index.
    routes : dict of bytes to Routes, optional
        Of each pattern, by its key, where they are known.

    Attributes
    ----------
    routes : dict of bytes to Routes
        As given.
    """

    def __init__(
        self, steps: Sequence[Step], flight_ps: Callable[[int], Ints], routes: dict[bytes, Routes] | None = None
    ) -> None:
        self._steps = steps
        self._flight_ps = flight_ps
        self.routes = routes or {}

    def ends_ps(self, start_ps: Ints, late_ps: LatePs | None = None) -> Ints:
        """Return when each rank's part is done, int64 picoseconds of shape (places,).

        Parameters
        ----------
        start_ps : int64 array, shape (places,)
            When each begins, its launch over; `NEVER` where that is not known yet, and so are the ends of those that
            wait for it.
        late_ps : callable, optional
            As of `s2sim.collectives.timing.by_message.MessageLevelRun`.
        """
        ready_ps = start_ps.copy()
        for index, step in enumerate(self._steps):
            sent = step.round
            if not sent.pattern.messages:
                continue
            flight_ps = self._flight_ps(index)
            for time in range(step.times):
                if ready_ps.min() == NEVER:
                    return ready_ps
                late = 0 if late_ps is None else late_ps(index, time, sent.pattern.messages)
                self._pass(sent.pattern, ready_ps, start_ps, flight_ps + late)
        return ready_ps

    def _pass(self, pattern: Pattern, ready_ps: Ints, start_ps: Ints, flight_ps: Ints) -> None:
        """Send a round, and let its ranks know."""
        src, dst = pattern.src, pattern.dst
        begins_ps = np.maximum(ready_ps[src], start_ps[dst])
        if pattern.through_switch:
            # The last of a group lets its message begin, which is for all of it.
            message = np.arange(len(src)) % pattern.groups
            latest_ps = np.zeros(pattern.groups, np.int64)
            np.maximum.at(latest_ps, message, begins_ps)
            begins_ps, flight_ps = latest_ps[message], flight_ps[message]
        ends_ps = np.minimum(begins_ps + flight_ps, NEVER)
        np.maximum.at(ready_ps, src, ends_ps)
        np.maximum.at(ready_ps, dst, ends_ps)


def critical_path(schedule: Schedule, cluster: Cluster, routes_of: Callable[[Pattern], Routes]) -> CriticalPath | None:
    """Return a schedule's passage where its messages can never meet on a link; None where they might.

    Where links carry what all ranks may send over them at once, every message goes at its own limit. The times are
    those of a simulation, but for ties within 1e-9 of a duration, which that takes for one event.

    Parameters
    ----------
    schedule : Schedule
        What runs, with nothing else in flight on its links.
    cluster : Cluster
        Where.
    routes_of : callable
        Returns the routes of a pattern's messages, with what a library adds to them.
    """
    if not schedule.stage.chain:
        return None
    capacity = cluster.fabric.rate_Bps / PS_PER_S
    routes: dict[bytes, Routes] = {}
    keys, rates, crossings = [], [], 0
    for step in schedule.steps:
        pattern = step.round.pattern
        if not pattern.messages or pattern.key in routes:
            continue
        found = routes[pattern.key] = routes_of(pattern)
        crossings += len(found.links)
        if crossings > _MAX_CROSSINGS:
            return None
        lengths = np.diff(found.offsets)
        senders = np.repeat(pattern.src[: pattern.messages], lengths)
        wanted = np.repeat(_uncontended_rates(found, capacity), lengths) * found.weights
        key, place = np.unique(found.links * schedule.places + senders, return_inverse=True)
        keys.append(key)
        rates.append(np.bincount(place, wanted))
    ways = {key: (each.latency_ps, _uncontended_rates(each, capacity)) for key, each in routes.items()}

    def flight_ps(index: int) -> Ints:
        sent = schedule.steps[index].round
        latency_ps, limits = ways[sent.pattern.key]
        return latency_ps + round_up_ps(sent.bytes / limits)

    if not keys:
        return CriticalPath(schedule.steps, flight_ps, routes)
    # The most that each rank sends over each link in any round, and what all of them might at once.
    key, place = np.unique(np.concatenate(keys), return_inverse=True)
    most = np.zeros(len(key))
    np.maximum.at(most, place, np.concatenate(rates))
    carried = np.bincount(key // schedule.places, most, len(capacity))
    return CriticalPath(schedule.steps, flight_ps, routes) if (carried <= capacity * _RATE_SLACK).all() else None


def _uncontended_rates(routes: Routes, capacity: Floats) -> Floats:
    """Return what each message gets with nothing else in flight, float64 bytes per picosecond of shape (m,)."""
    narrowest = routes.narrowest(capacity)
    return narrowest if routes.limit_Bps is None else np.minimum(narrowest, routes.limit_Bps / PS_PER_S)
