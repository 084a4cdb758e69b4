"""What is in flight on a network, one event after the other: a table of flows that come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from s2sim.network.compiling import EFFORT, PLAIN, compiled
from s2sim.network.flights import LOOKS, NEVER, leave, mark
from s2sim.network.tables import as_arrays, as_lists, larger, make_table
from s2sim.topology.routes import Routes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.network.known_routes import KnownRoutes, Path

# Flows, and crossings of each, that there is room for at first.
_FLOWS, _CROSSINGS = 64, 8


class Sent(NamedTuple):
    """Transfers that are sent together.

    Attributes
    ----------
    routes : int64 array, shape (n,)
        Numbers of their routes.
    sizes_bytes : float64 array, shape (n,)
        Bytes of each.
    owner : int
        Who is told of their delivery.
    tags : int64 array, shape (n,)
        What the owner is told.
    """

    routes: NDArray[np.int64]
    sizes_bytes: NDArray[np.float64]
    owner: int
    tags: NDArray[np.int64]


class Flow(NamedTuple):
    """One transfer in flight: the number of its route, who is told of its delivery, and what."""

    route: int
    owner: int
    tag: int


class InFlight:
    """Flows in flight, each by a number that is its own as long as it is.

    Parameters
    ----------
    capacity : float64 array, shape (links,)
        Bytes per picosecond of every link.

    Attributes
    ----------
    flows : dict of int to Flow
        What is in flight, by number, in the order in which it came.
    """

    def __init__(self, capacity: NDArray[np.float64]) -> None:
        nothing = Routes(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))
        self._table = as_lists(larger(make_table(nothing, np.zeros(0), capacity), _FLOWS, _FLOWS * _CROSSINGS))
        self._functions = PLAIN
        self.flows: dict[int, Flow] = {}
        self._numbers = self._crossings = 0  # ever used
        # Numbers that are free again, by how many crossings they have.
        self._free: dict[int, list[int]] = {}

    def enter(self, known: KnownRoutes, arriving: list[Sent], now: int) -> None:
        """Let what arrives share links from now on, and give all flows their fair rates."""
        new = []
        for sent in arriving:
            columns = sent.routes.tolist(), sent.sizes_bytes.tolist(), sent.tags.tolist()
            for route, size_bytes, tag in zip(*columns, strict=True):
                new.append(self._add(known.path(route), size_bytes, Flow(route, sent.owner, tag)))
        table = self._table
        if self._functions is not PLAIN:
            self._functions.take_in(table, np.array(new, np.int64), now)
            return
        before = table.tally[LOOKS]
        self._functions.take_in(table, new, now)
        EFFORT.looks += table.tally[LOOKS] - before
        if EFFORT.compiles():
            self._table, self._functions = as_arrays(table), compiled()

    def _add(self, path: Path, size_bytes: float, flow: Flow) -> int:
        """Return the number of a flow that is about to enter."""
        free = self._free.get(len(path.links))
        number = free.pop() if free else self._new_number(len(path.links))
        self.flows[number] = flow
        table = self._table
        crossings = slice(table.first[number], table.last[number])
        table.link[crossings] = path.links
        table.weight[crossings] = path.weights
        table.limit[number] = path.limit
        table.left[number] = size_bytes
        return number

    def _new_number(self, crossings: int) -> int:
        number, begin = self._numbers, self._crossings
        self._numbers, self._crossings = number + 1, begin + crossings
        if self._numbers > len(self._table.first) or self._crossings > len(self._table.link):
            table = larger(self._table, 2 * self._numbers, 2 * self._crossings)
            self._table = as_lists(table) if self._functions is PLAIN else table
        table = self._table
        table.first[number], table.last[number] = begin, self._crossings
        table.flow[begin : self._crossings] = [number] * crossings
        return number

    def complete(self, now: int) -> list[Flow]:
        """Return the flows that end by now, which are in flight no longer."""
        count = self._functions.take_out(self._table, now)
        return [self._release(int(number)) for number in self._table.stack[:count]]

    def remove(self, number: int) -> Flow:
        """Take a flow away before its end."""
        leave(self._table, number)
        return self._release(number)

    def _release(self, number: int) -> Flow:
        crossings = int(self._table.last[number] - self._table.first[number])
        self._free.setdefault(crossings, []).append(number)
        return self.flows.pop(number)

    @property
    def next_ps(self) -> int | None:
        """When the next flows complete, those that tie drawn together; None where nothing is in flight."""
        then = int(self._functions.next_ps(self._table))
        return None if then == NEVER else then

    def finish_ps(self, number: int) -> int:
        """Return when a flow ends if nothing changes."""
        finish = self._table.finish
        return int(finish[len(finish) // 2 + number])

    def left_bytes(self, number: int, now: int) -> float:
        """Return what a flow has left."""
        table = self._table
        return float(max(table.left[number] - table.rate[number] * (now - table.since[number]), 0.0))

    def set_capacity(self, capacity: NDArray[np.float64]) -> None:
        """Let links carry other rates, in bytes per picosecond, from the next `enter` on."""
        table = self._table
        for link in np.flatnonzero(np.array(table.capacity) != capacity).tolist():
            table.capacity[link] = float(capacity[link])
            mark(table, link)

    def loads(self) -> NDArray[np.float64]:
        """Return what every link carries now, float64 bytes per picosecond of shape (links,)."""
        table = self._table
        carried = np.zeros(len(table.capacity))
        for number in self.flows:
            crossings = slice(table.first[number], table.last[number])
            np.add.at(carried, table.link[crossings], np.multiply(table.weight[crossings], table.rate[number]))
        return carried
