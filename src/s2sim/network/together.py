"""Transfers that start at one moment with nothing else in flight, without an event each.

Transfers that share no link, not even by way of others, do not see each other: each such component has a clock of its
own, and all clocks go on together, every one to its next arrival or completion. The work is that of the component with
most moments, not of all moments. Within a component this is what `FluidNetwork` does, to the picosecond; only
completions of different components that lie within 1e-9 of their duration are not drawn together as one event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.network.fluid import TIE, whole_ps
from s2sim.network.max_min import fair_rates
from s2sim.topology.routes import gather_slices

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.topology.routes import Routes

_NEVER = np.int64(2**62)


class Together:
    """Transfers along some routes, for any sizes.

    Parameters
    ----------
    routes : Routes
        One a transfer.
    capacity : float64 array, shape (links,)
        Bytes per picosecond of every link.
    """

    def __init__(self, routes: Routes, capacity: NDArray[np.float64]) -> None:
        self._given = routes
        self._capacity = capacity
        self._clock(np.zeros(len(routes.latency_ps), np.int64))
        self._apart = False

    def _clock(self, component: NDArray[np.int64]) -> None:
        """Let all transfers of a component share a clock."""
        self._order = np.argsort(component, kind="stable")
        self._routes = self._given.take(self._order)
        self._component = component[self._order]
        self._starts = np.flatnonzero(np.concatenate([[True], np.diff(self._component) != 0]))

    def deliver_ps(self, sizes_bytes: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return when each transfer is delivered, int64 picoseconds of shape (n,) from the common start.

        Parameters
        ----------
        sizes_bytes : float64 array, shape (n,)
            Bytes of each.
        """
        count = len(sizes_bytes)
        if not self._apart and np.ptp(sizes_bytes) > 0:
            # Alike transfers have few moments, and one clock is quicker than finding components.
            self._clock(_components(self._given, len(self._capacity)))
            self._apart = True
        remaining = sizes_bytes[self._order].astype(np.float64)
        coming_ps = self._routes.latency_ps.copy()  # never, once it has arrived
        entered_ps, since_ps = np.zeros((2, count), np.int64)
        finish_ps = np.full(count, _NEVER)  # never, while it is not in flight
        delivered_ps = np.full(count, -1, np.int64)
        rate = np.zeros(count)
        while True:
            now = self._next_ps(coming_ps, entered_ps, finish_ps)[self._component]
            going = now < _NEVER
            if not going.any():
                break
            ended = going & (finish_ps <= now)
            delivered_ps[ended] = now[ended]
            finish_ps[ended] = _NEVER
            arrived = going & (coming_ps <= now)
            coming_ps[arrived] = _NEVER
            entered_ps[arrived] = since_ps[arrived] = finish_ps[arrived] = now[arrived]
            # Only components in which something has come or gone have new rates.
            touched = np.logical_or.reduceat(ended | arrived, self._starts)[self._component]
            flying = np.flatnonzero(touched & (finish_ps < _NEVER))
            if not len(flying):
                continue
            rates = self._rates(flying)
            changed = rates != rate[flying]
            moved, at = flying[changed], now[flying[changed]]
            remaining[moved] = np.maximum(remaining[moved] - rate[moved] * (at - since_ps[moved]), 0.0)
            rate[moved] = rates[changed]
            since_ps[moved] = at
            finish_ps[moved] = at + whole_ps(remaining[moved] / rate[moved])
        result = np.empty(count, np.int64)
        result[self._order] = delivered_ps
        return result

    def _next_ps(
        self, coming_ps: NDArray[np.int64], entered_ps: NDArray[np.int64], finish_ps: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the next moment of each component: an arrival, or the last completion that ties with the first."""
        first = np.minimum.reduceat(finish_ps, self._starts)
        earliest = first[self._component]
        slack = np.where(earliest < _NEVER, (earliest - entered_ps) * TIE, 0.0).astype(np.int64)
        tied = np.where(finish_ps <= earliest + slack, finish_ps, earliest)
        completion = np.maximum.reduceat(tied, self._starts)
        arrival = np.minimum.reduceat(coming_ps, self._starts)
        moments: NDArray[np.int64] = np.minimum(completion, arrival)
        return moments

    def _rates(self, flying: NDArray[np.int64]) -> NDArray[np.float64]:
        starts = self._routes.offsets[flying]
        lengths = self._routes.offsets[flying + 1] - starts
        crossings = gather_slices(starts, lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return fair_rates(offsets, self._routes.links[crossings], self._routes.weights[crossings], self._capacity)


def _components(routes: Routes, links: int) -> NDArray[np.int64]:
    """Return a number for each transfer, alike where they share links, also by way of others."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    transfers = len(routes.latency_ps)
    offsets = np.concatenate([routes.offsets, np.full(links, routes.offsets[-1])])
    size = transfers + links
    graph = csr_matrix((np.ones(len(routes.links), np.int8), transfers + routes.links, offsets), (size, size))
    labels: NDArray[np.int64] = connected_components(graph, directed=False)[1][:transfers].astype(np.int64)
    return labels
