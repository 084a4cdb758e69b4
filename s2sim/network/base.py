"""The interface of networks, and actions at a simulated time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from simpy.events import Event, EventPriority

from s2sim.topology.graph import Routes

if TYPE_CHECKING:
    from simpy.core import Environment

OnDelivered: TypeAlias = Callable[[NDArray[np.int64]], None]

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


def call_after(env: Environment, delay_ps: int, action: Callable[[], None]) -> None:
    """Call ``action`` in ``delay_ps`` picoseconds of simulated time."""
    timeout = env.timeout(delay_ps)
    assert timeout.callbacks is not None
    timeout.callbacks.append(lambda _: action())


def call_now_or_after(env: Environment, delay_ps: int, action: Callable[[], None]) -> None:
    """Call ``action`` in ``delay_ps`` picoseconds of simulated time, before this returns if that is zero."""
    if delay_ps:
        call_after(env, delay_ps, action)
    else:
        action()


class Network(ABC):
    """A network that transmits transfers in simulated time; the time of ``env`` is integer picoseconds."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.owners: list[OnDelivered] = []

    def add_owner(self, on_delivered: OnDelivered) -> int:
        """Return the number under which transfers report their delivery to ``on_delivered(tags)``."""
        self.owners.append(on_delivered)
        return len(self.owners) - 1

    @abstractmethod
    def add_routes(self, routes: Routes) -> NDArray[np.int64]:
        """Make routes known and return their numbers, int64 of shape (routes,)."""

    @abstractmethod
    def send(
        self, routes: NDArray[np.int64], sizes_bytes: NDArray[np.float64], owner: int, tags: NDArray[np.int64]
    ) -> None:
        """Start transfers now; each is reported to ``owner`` under its tag when its last byte has arrived.

        ``routes`` are numbers from `add_routes`, ``sizes_bytes`` the bytes of each transfer (zero takes the latency, or
        an empty packet, alone), ``tags`` the values passed to the owner; all of shape (n,).
        """
