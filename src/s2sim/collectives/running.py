"""A schedule in execution on a network, beside whatever else is in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from s2sim.collectives.schedule import Schedule
    from s2sim.network.fluid import FluidNetwork
    from s2sim.topology.routes import Routes


class Running:
    """One collective in flight: sends a round, and the next when all of it has been delivered.

    Parameters
    ----------
    network : FluidNetwork
        Carries the transfers.
    schedule : Schedule
        What to send.
    routes : Routes
        Of the schedule's pairs.
    on_complete : callable
        Called when the last round has been delivered.
    """

    def __init__(
        self, network: FluidNetwork, schedule: Schedule, routes: Routes, on_complete: Callable[[], None]
    ) -> None:
        self._network = network
        self._schedule = schedule
        self._on_complete = on_complete
        self._route = network.add_routes(routes)
        self._owner = network.add_owner(self._delivered)
        self._round = 0
        self._outstanding = 0

    def start(self) -> None:
        """Send the first round now."""
        self._send()

    def _send(self) -> None:
        while self._round < self._schedule.rounds:
            transfers = self._schedule.round_at(self._round)
            self._round += 1
            self._outstanding = len(transfers.pair)
            if self._outstanding:
                places = np.arange(self._outstanding)
                self._network.send(self._route[transfers.pair], transfers.bytes, self._owner, places)
                return
        self._on_complete()

    def _delivered(self, places: NDArray[np.int64]) -> None:
        self._outstanding -= len(places)
        if self._outstanding == 0:
            self._send()
