"""How ranks that begin at unlike instants pass through a schedule whose messages keep what they have in step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.timing.last_passage import LastPassage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s2sim.arrays import Ints
    from s2sim.collectives.schedules.schedule import Step
    from s2sim.collectives.timing.rounds import RoundTimes
    from s2sim.collectives.timing.timer import Timed


def passage_in_step(timed: Timed, ranks: int) -> LastPassage | None:
    """Return how a schedule of all ranks passes; None where its rounds are not what its ranks wait for.

    Every message takes what it takes with all ranks in step, so that those on one link keep to their shares of it.
    With a common start the last rank ends when the schedule does; it ends no sooner than if all had begun with the
    first, and no later than if all had begun with the last, because ends are largest sums of waits. Where own times of
    messages do not add up to that end, as where a pipeline fills, each takes what its whole round does. Without that,
    and where no two messages meet on a link, ends are those of `s2sim.collectives.timing.last_passage.last_passage`.
    """
    schedule = timed.schedule
    if not schedule.stage.chain or schedule.places != ranks:
        return None
    steps = list(schedule.steps)
    for flights_ps in _flights_ps(steps, timed.times):
        passage = LastPassage(steps, flights_ps.__getitem__)
        if passage.ends_ps(np.full(ranks, schedule.launch_ps)).max() == timed.duration_ps:
            return passage
    return None


def _flights_ps(steps: Sequence[Step], times: RoundTimes) -> Iterator[list[Ints]]:
    """Yield what the messages of each step take: each its own time, or all that of the last of their round."""
    none = np.zeros(0, np.int64)
    yield [times.message_ps(step.round)[1] if step.round.pattern.messages else none for step in steps]
    yield [np.full(step.round.pattern.messages, times.time_ps(step.round)) for step in steps]
