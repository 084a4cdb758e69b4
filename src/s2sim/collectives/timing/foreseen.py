"""A schedule in execution whose messages meet nothing: its ends are foreseen, and no message is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.network.flights import NEVER
from s2sim.network.instant import at_end_of_instant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import simpy

    from s2sim.arrays import Ints
    from s2sim.collectives.schedules.schedule import Schedule
    from s2sim.collectives.timing.last_passage import LastPassage, LatePs


class Foreseen:
    """One collective in flight that `s2sim.collectives.timing.by_message.RunningByMessage` would run to the same ends.

    Parameters
    ----------
    env : simpy.Environment
        Its time is integer picoseconds.
    schedule : Schedule
        What to send.
    passage : LastPassage
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
        passage: LastPassage,
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
            at_end_of_instant(self._env, self._look)

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
