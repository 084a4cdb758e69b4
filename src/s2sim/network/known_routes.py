"""All routes that a network has ever been given, by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.topology.routes import Routes, gather_slices
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """The way of a flow.

    Attributes
    ----------
    links : list of int
        That it crosses.
    weights : list of float
        Share of the flow on each.
    limit : float
        Bytes per picosecond that it gets with nothing else in flight.
    """

    links: list[int]
    weights: list[float]
    limit: float


class KnownRoutes:
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
        self._paths: dict[int, Path] = {}

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

    def path(self, number: int) -> Path:
        """Return the way of one route."""
        path = self._paths.get(number)
        if path is None:
            crossings = slice(self._starts[number], self._starts[number] + self._lengths[number])
            links, weights = self._links[crossings], self._weights[crossings]
            limit = min((self._capacity[links] / weights).min(), self._limits_Bps[number] / PS_PER_S)
            path = self._paths[number] = Path(links.tolist(), weights.tolist(), float(limit))
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
