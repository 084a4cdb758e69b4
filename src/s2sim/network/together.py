"""Flows with nothing else in flight, without the simulation kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.network.compiling import EFFORT, PLAIN, compiled, expected_visits
from s2sim.network.flights import VISITS
from s2sim.network.tables import as_lists, make_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from s2sim.topology.routes import Routes

# Flows delivered between two reports.
_REPORTED = 500


def deliver_together_ps(
    routes: Routes,
    start_ps: NDArray[np.int64],
    sizes_bytes: NDArray[np.float64],
    capacity: NDArray[np.float64],
    on_delivered: Callable[[int], None] = lambda _: None,
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
    on_delivered : callable
        Told how many have been delivered, some at a time.
    """
    flows = len(sizes_bytes)
    table = make_table(routes, sizes_bytes, capacity)
    arrive_ps = start_ps + routes.latency_ps
    functions = compiled() if EFFORT.compiles(expected_visits(flows)) else PLAIN
    order, delivered_ps = np.argsort(arrive_ps, kind="stable"), np.zeros(flows, np.int64)
    columns: tuple[Any, Any, Any] = order, arrive_ps, delivered_ps
    if functions is PLAIN:
        table, columns = as_lists(table), (order.tolist(), arrive_ps.tolist(), delivered_ps.tolist())
    left = flows
    while left:
        delivered = functions.deliver(table, *columns, _REPORTED)
        on_delivered(delivered)
        left -= delivered
    if functions is PLAIN:
        EFFORT.visits += table.tally[VISITS]
    return np.asarray(columns[2], np.int64)
