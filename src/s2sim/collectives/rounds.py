"""How long one round takes with nothing else in flight.

A transfer that shares no link with another of its round takes its latency plus its bytes over its narrowest link; the
others go through the fluid network. Where both apply they give the same integer picoseconds, which the tests check,
but for completions so close that the network counts them as one. A round that was seen before is not solved again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.network.transfers import deliver_ps, idle_ps
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from s2sim.collectives.schedule import Round, Schedule
    from s2sim.topology.fabric import Fabric
    from s2sim.topology.routes import Routes


class RoundTimes:
    """Times rounds whose pairs take these routes, each distinct round once.

    Parameters
    ----------
    fabric : Fabric
        Links.
    routes : Routes
        Of a schedule's pairs.
    """

    def __init__(self, fabric: Fabric, routes: Routes) -> None:
        self._fabric = fabric
        self._routes = routes
        self._known: dict[tuple[bytes, bytes], int] = {}
        self._bounds: dict[tuple[bytes, bytes], int] = {}
        self._alone: dict[bytes, NDArray[np.bool_]] = {}

    def alone(self, pair: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the pairs share no link with another of them, bool of the shape of ``pair``."""
        key = pair.tobytes()
        if key not in self._alone:
            routes = self._routes.take(pair)
            users = np.bincount(routes.links)[routes.links]
            self._alone[key] = np.maximum.reduceat(users, routes.offsets[:-1]) == 1
        return self._alone[key]

    def time_ps(self, transfers: Round) -> int:
        """Return when the last transfer of a round is delivered, in integer picoseconds from its start."""
        if len(transfers.pair) == 0:
            return 0
        key = transfers.pair.tobytes(), transfers.bytes.tobytes()
        if key not in self._known:
            alone = self.alone(transfers.pair)
            ends = idle_ps(self._fabric, self._routes.take(transfers.pair[alone]), transfers.bytes[alone])
            latest = int(ends.max(initial=0))
            if not alone.all():
                latest = max(latest, self.simulate_ps(transfers.pair[~alone], transfers.bytes[~alone]))
            self._known[key] = latest
        return self._known[key]

    def at_least_ps(self, transfers: Round) -> int:
        """Return a time that a round cannot beat: its busiest link's bytes over its rate, after the least latency."""
        if len(transfers.pair) == 0:
            return 0
        key = transfers.pair.tobytes(), transfers.bytes.tobytes()
        if key not in self._bounds:
            routes = self._routes.take(transfers.pair)
            load = np.bincount(routes.links, np.repeat(transfers.bytes, np.diff(routes.offsets)) * routes.weights)
            busiest = float((load / self._fabric.rate_Bps[: len(load)]).max()) * PS_PER_S
            self._bounds[key] = int(routes.latency_ps.min() + busiest)
        return self._bounds[key]

    def simulate_ps(self, pair: NDArray[np.int64], sizes_bytes: NDArray[np.float64]) -> int:
        """Return when the last of these transfers is delivered, by the fluid network, shared links or not."""
        starts_ps = np.zeros(len(pair), np.int64)
        return int(deliver_ps(self._fabric, self._routes.take(pair), starts_ps, sizes_bytes).max())


def schedule_ps(schedule: Schedule, time_ps: Callable[[Round], int]) -> int:
    """Return the sum of ``time_ps`` over all rounds of a schedule, in integer picoseconds."""
    if schedule.rounds and schedule.uniform:
        return schedule.rounds * time_ps(schedule.round_at(0))
    return sum(time_ps(schedule.round_at(k)) for k in range(schedule.rounds))
