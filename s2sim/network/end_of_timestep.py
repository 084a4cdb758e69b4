"""Something to do after all ordinary events of an instant, so that what changes at once is seen at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from simpy.events import Event, EventPriority

if TYPE_CHECKING:
    from simpy.core import Environment


# SimPy processes smaller numbers first: 0 is urgent and 1 normal.
_LAST = cast("EventPriority", 2)


class _EndOfTimestep(Event):
    """An event that has already happened and is processed last, as `simpy.Timeout` is at its time."""

    def __init__(self, env: Environment, action: Callable[[], None]) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        self.callbacks = [lambda _: action()]
        env.schedule(self, priority=_LAST)


def at_end_of_timestep(env: Environment, action: Callable[[], None]) -> None:
    """Call ``action`` at the present simulated time, after every event that is already due then."""
    _EndOfTimestep(env, action)
