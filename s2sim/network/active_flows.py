"""What is in flight on a network, one event after the other: a table of flows that come and go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from s2sim.network.flow_table import (
    PLAIN_FUNCTIONS,
    SOLVER_EFFORT,
    as_arrays,
    as_lists,
    compiled_functions,
    enlarge_table,
    make_flow_table,
)
from s2sim.network.max_min import LOOKS, NEVER, deactivate_flow, mark_link
from s2sim.topology.graph import Routes, gather_slices
from s2sim.units import PS_PER_S

Indices = NDArray[np.int64]


# Flows, and crossings of each, that there is room for at first.
_FLOWS, _CROSSINGS = 64, 8


class TransferBatch(NamedTuple):
    """Transfers that are sent together."""

    routes: NDArray[np.int64]  # Numbers of their routes
    sizes_bytes: NDArray[np.float64]  # Bytes of each
    owner: int  # Who is told of their delivery
    tags: NDArray[np.int64]  # What the owner is told


class ActiveFlow(NamedTuple):
    """One transfer in flight: the number of its route, who is told of its delivery, and what."""

    route: int
    owner: int
    tag: int


class ActiveFlows:
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
        self._table = as_lists(
            enlarge_table(make_flow_table(nothing, np.zeros(0), capacity), _FLOWS, _FLOWS * _CROSSINGS)
        )
        self._functions = PLAIN_FUNCTIONS
        self.flows: dict[int, ActiveFlow] = {}
        self._numbers = self._crossings = 0  # ever used
        # Numbers that are free again, by how many crossings they have.
        self._free: dict[int, list[int]] = {}

    def enter(self, known: RouteIndex, arriving: list[TransferBatch], now: int) -> None:
        """Let what arrives share links from now on, and give all flows their fair rates."""
        new = []
        for sent in arriving:
            columns = sent.routes.tolist(), sent.sizes_bytes.tolist(), sent.tags.tolist()
            for route, size_bytes, tag in zip(*columns, strict=True):
                new.append(self._add(known.path(route), size_bytes, ActiveFlow(route, sent.owner, tag)))
        table = self._table
        if self._functions is not PLAIN_FUNCTIONS:
            self._functions.add_flows(table, np.array(new, np.int64), now)
            return
        before = table.tally[LOOKS]
        self._functions.add_flows(table, new, now)
        SOLVER_EFFORT.visits += table.tally[LOOKS] - before
        if SOLVER_EFFORT.compiles():
            self._table, self._functions = as_arrays(table), compiled_functions()

    def _add(self, path: FlowRoute, size_bytes: float, flow: ActiveFlow) -> int:
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
            table = enlarge_table(self._table, 2 * self._numbers, 2 * self._crossings)
            self._table = as_lists(table) if self._functions is PLAIN_FUNCTIONS else table
        table = self._table
        table.first[number], table.last[number] = begin, self._crossings
        table.flow[begin : self._crossings] = [number] * crossings
        return number

    def complete(self, now: int) -> list[ActiveFlow]:
        """Return the flows that end by now, which are in flight no longer."""
        count = self._functions.remove_finished(self._table, now)
        return [self._release(int(number)) for number in self._table.stack[:count]]

    def remove(self, number: int) -> ActiveFlow:
        """Take a flow away before its end."""
        deactivate_flow(self._table, number)
        return self._release(number)

    def _release(self, number: int) -> ActiveFlow:
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
            mark_link(table, link)

    def loads(self) -> NDArray[np.float64]:
        """Return what every link carries now, float64 bytes per picosecond of shape (links,)."""
        table = self._table
        carried = np.zeros(len(table.capacity))
        for number in self.flows:
            crossings = slice(table.first[number], table.last[number])
            np.add.at(carried, table.link[crossings], np.multiply(table.weight[crossings], table.rate[number]))
        return carried


@dataclass(frozen=True, slots=True, eq=False)
class FlowRoute:
    """The way of a flow."""

    links: list[int]  # That it crosses
    weights: list[float]  # Share of the flow on each
    limit: float  # Bytes per picosecond that it gets with nothing else in flight


class RouteIndex:
    """Routes as one table that grows.

    Parameters
    ----------
    capacity : float64 array, shape (links,)
        Bytes per picosecond of every link.

    Attributes
    ----------
    latency_ps : int64 array, shape (routes,)
        Of every route.
    """

    def __init__(self, capacity: NDArray[np.float64]) -> None:
        self._capacity = capacity
        self._starts, self._lengths, self._links, self.latency_ps = np.zeros((4, 0), np.int64)
        self._weights, self._limits_Bps = np.zeros((2, 0))
        self._paths: dict[int, FlowRoute] = {}

    def add(self, routes: Routes) -> Indices:
        """Return the numbers of more routes, int64 of shape (routes,)."""
        first = len(self._starts)
        self._starts = np.concatenate([self._starts, routes.offsets[:-1] + len(self._links)])
        self._lengths = np.concatenate([self._lengths, np.diff(routes.offsets)])
        self.latency_ps = np.concatenate([self.latency_ps, routes.latency_ps])
        self._links = np.concatenate([self._links, routes.links])
        self._weights = np.concatenate([self._weights, routes.weights])
        limits_Bps = np.full(len(routes.latency_ps), np.inf) if routes.limit_Bps is None else routes.limit_Bps
        self._limits_Bps = np.concatenate([self._limits_Bps, limits_Bps])
        return np.arange(first, len(self._starts))

    def take(self, numbers: Indices) -> Routes:
        """Return the routes of some numbers."""
        crossings = gather_slices(self._starts[numbers], self._lengths[numbers])
        offsets = np.concatenate([[0], np.cumsum(self._lengths[numbers])])
        limits_Bps = self._limits_Bps[numbers]
        return Routes(
            offsets=offsets,
            links=self._links[crossings],
            weights=self._weights[crossings],
            latency_ps=self.latency_ps[numbers],
            limit_Bps=limits_Bps if np.isfinite(limits_Bps).any() else None,
        )

    def path(self, number: int) -> FlowRoute:
        """Return the way of one route."""
        path = self._paths.get(number)
        if path is None:
            crossings = slice(self._starts[number], self._starts[number] + self._lengths[number])
            links, weights = self._links[crossings], self._weights[crossings]
            limit = min((self._capacity[links] / weights).min(), self._limits_Bps[number] / PS_PER_S)
            path = self._paths[number] = FlowRoute(links.tolist(), weights.tolist(), float(limit))
        return path

    def crossing(self, numbers: Indices, links: Indices) -> NDArray[np.bool_]:
        """Return which routes cross any of some links, bool of the shape of ``numbers``."""
        if not len(numbers):
            return np.zeros(0, np.bool_)
        marked = np.zeros(len(self._capacity), np.bool_)
        marked[links] = True
        routes = self.take(numbers)
        crossing: NDArray[np.bool_] = np.logical_or.reduceat(marked[routes.links], routes.offsets[:-1])
        return crossing
