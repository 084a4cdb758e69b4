"""Flows with nothing else in flight, without the simulation kernel; those that do everything alike are one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.network.compiling import EFFORT, PLAIN, compiled
from s2sim.network.flights import LOOKS
from s2sim.network.tables import as_arrays, as_lists, make_table, queue_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from s2sim.topology.routes import Routes

# Flows delivered between two reports, and between two looks at whether compiling pays by now.
_REPORTED = 200


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
    left, order = len(sizes_bytes), np.argsort(arrive_ps[chosen], kind="stable")
    columns: tuple[Any, Any, Any, Any, Any] = table, queues, order, arrive_ps[chosen], delivered_ps
    alike = bool(len(sizes_bytes)) and bool((sizes_bytes == sizes_bytes[0]).all())
    functions = compiled() if EFFORT.compiles(len(chosen), alike=alike) else PLAIN
    if functions is PLAIN:
        columns = as_lists(table), as_lists(queues), *(column.tolist() for column in columns[2:])
    looks = 0
    while left:
        if functions is PLAIN and EFFORT.compiles():
            functions = compiled()
            columns = as_arrays(columns[0]), as_arrays(columns[1]), *(np.array(column) for column in columns[2:])
        delivered = functions.deliver(*columns, _REPORTED)
        on_delivered(delivered)
        left -= delivered
        before, looks = looks, int(columns[0].tally[LOOKS])
        EFFORT.looks += looks - before
    return np.asarray(columns[-1], np.int64)
