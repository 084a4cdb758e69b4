"""Whether a schedule can be timed in reasonable time: refused before anything long is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.errors import OptionError

if TYPE_CHECKING:
    from s2sim.collectives.schedules.schedule import Schedule

# A minute or two, where no two rounds are alike: routes and shares of a million messages take most of a second.
_MOST_MESSAGES = 2**27
# What a round costs beside its messages, as so many of them: all links are looked over.
_A_ROUND, _LINKS_A_MESSAGE = 100, 1000
_LOOKED_AT = 64


def check_work(schedule: Schedule, links: int) -> None:
    """Refuse a schedule of so many unlike messages and rounds on so many links that timing takes more than minutes.

    Raises
    ------
    OptionError
        With about how many there are, as a few dozen of the rounds tell.
    """
    steps = schedule.steps
    a_round = _A_ROUND + links // _LINKS_A_MESSAGE
    if len(steps) * (2 * schedule.places + a_round) <= _MOST_MESSAGES:
        return
    looked_at = min(_LOOKED_AT, len(steps))
    some = [steps[index * len(steps) // looked_at].round.pattern.messages for index in range(looked_at)]
    messages = sum(some) * len(steps) // looked_at
    if messages + len(steps) * a_round > _MOST_MESSAGES:
        raise OptionError(
            f"{schedule.algorithm} on {schedule.demand.ranks} ranks sends some {messages:.2g} messages in "
            f"{len(steps)} unlike rounds, more than minutes to time: take fewer workers or another algorithm"
        )
