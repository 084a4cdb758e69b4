"""The numbers by which a network knows the routes of a schedule's patterns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.collectives.timing.ways import find_routes

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.arrays import Ints
    from s2sim.collectives.schedules.schedule import Pattern, Schedule
    from s2sim.network.models import Network
    from s2sim.topology.cluster import Cluster

    OnRoutes = Callable[[Ints, Ints, Ints], None]


class RouteNumbers:
    """Routes of patterns as a network knows them, each pattern's found once.

    Parameters
    ----------
    network : Network
        Is told of them.
    schedule : Schedule
        Whose patterns they are. Where a step follows the last byte of another, latency passes after the bytes instead
        of before.
    cluster : Cluster
        Gives the routes.
    on_routes : callable, optional
        Told of the network's numbers of routes, and of the ranks from which and to which they lead.
    """

    def __init__(self, network: Network, schedule: Schedule, cluster: Cluster, on_routes: OnRoutes | None) -> None:
        self._network = network
        self._by_sending = schedule.release == "sent"
        self._cluster = cluster
        self._on_routes = on_routes
        self._known: dict[bytes, tuple[Ints, Ints]] = {}

    def of(self, pattern: Pattern) -> tuple[Ints, Ints]:
        """Return the numbers of a pattern's routes, and the latency after their bytes, both int64 of shape (m,)."""
        if pattern.key not in self._known:
            routes = find_routes(self._cluster, pattern)
            nothing = np.zeros_like(routes.latency_ps)
            if self._by_sending:
                numbers, after_ps = self._network.add_routes(replace(routes, latency_ps=nothing)), routes.latency_ps
            else:
                numbers, after_ps = self._network.add_routes(routes), nothing
            self._known[pattern.key] = numbers, after_ps
            if self._on_routes is not None:
                self._on_routes(numbers, pattern.src[: len(numbers)], pattern.dst[: len(numbers)])
        return self._known[pattern.key]
