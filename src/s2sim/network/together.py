"""Flows with nothing else in flight, without the simulation kernel; those that do everything alike are one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.network.compiling import EFFORT, PLAIN, compiled, expected_visits
from s2sim.network.flights import VISITS
from s2sim.network.tables import as_lists, make_table, queue_up

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
    arrive_ps, delivered_ps = start_ps + routes.latency_ps, np.zeros(len(sizes_bytes), np.int64)
    chosen, members, queues = queue_up(routes, arrive_ps, sizes_bytes)
    table = make_table(routes.take(chosen), np.asarray(queues.size)[queues.place], capacity, members)
    functions = compiled() if EFFORT.compiles(expected_visits(len(chosen))) else PLAIN
    columns: tuple[Any, Any, Any] = np.argsort(arrive_ps[chosen], kind="stable"), arrive_ps[chosen], delivered_ps
    if functions is PLAIN:
        table, queues = as_lists(table), as_lists(queues)
        columns = columns[0].tolist(), columns[1].tolist(), columns[2].tolist()
    left = len(sizes_bytes)
    while left:
        delivered = functions.deliver(table, queues, *columns, _REPORTED)
        on_delivered(delivered)
        left -= delivered
    EFFORT.visits += int(table.tally[VISITS])
    return np.asarray(columns[2], np.int64)
