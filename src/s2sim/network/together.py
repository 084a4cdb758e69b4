"""Flows with nothing else in flight, without the simulation kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.network.flights import VISITS
from s2sim.network.tables import EFFORT, PLAIN, as_lists, compiled, expected_visits, make_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.topology.routes import Routes


def deliver_together_ps(
    routes: Routes, start_ps: NDArray[np.int64], sizes_bytes: NDArray[np.float64], capacity: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return when each flow is delivered, int64 picoseconds of shape (flows,).

    Parameters
    ----------
    routes : Routes
        One a flow.
    start_ps : int64 array, shape (flows,)
        When each starts; its latency passes first.
    sizes_bytes : float64 array, shape (flows,)
        Bytes of each.
    capacity : float64 array, shape (links,)
        Bytes per picosecond of every link.
    """
    flows = len(sizes_bytes)
    delivered_ps = np.zeros(flows, np.int64)
    if not flows:
        return delivered_ps
    table = make_table(routes, sizes_bytes, capacity)
    arrive_ps = start_ps + routes.latency_ps
    order = np.argsort(arrive_ps, kind="stable")
    if EFFORT.compiles(expected_visits(flows)):
        compiled().deliver_all(table, order, arrive_ps, delivered_ps)
        return delivered_ps
    table, delivered = as_lists(table), delivered_ps.tolist()
    PLAIN.deliver_all(table, order.tolist(), arrive_ps.tolist(), delivered)
    EFFORT.visits += table.tally[VISITS]
    return np.array(delivered, np.int64)
