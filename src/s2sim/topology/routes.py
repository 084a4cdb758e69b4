"""Routes of many pairs of ranks at once, in compressed sparse rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """The links that each of m transfers crosses.

    Attributes
    ----------
    offsets : int64 array, shape (m + 1,)
        Transfer i crosses ``links[offsets[i] : offsets[i + 1]]``.
    links : int64 array, shape (nnz,)
        Link numbers, in the order in which they are crossed.
    weights : float64 array, shape (nnz,)
        Share of the transfer that crosses the link: 1 except where it is sprayed.
    latency_ps : int64 array, shape (m,)
        Sum of the latencies along one way.
    """

    offsets: NDArray[np.int64]
    links: NDArray[np.int64]
    weights: NDArray[np.float64]
    latency_ps: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """What every transfer crosses next, if anything.

    Attributes
    ----------
    counts : int64 array, shape (m,)
        How many links of this stage each transfer uses, in series or side by side.
    links : int64 array, shape (sum of counts,)
        Which, transfer after transfer.
    hops : int64 array, shape (m,)
        How many of them lie in series.
    weight : float
        Share of the transfer on each.
    latency_ps : int
        Latency of each.
    """

    counts: NDArray[np.int64]
    links: NDArray[np.int64]
    hops: NDArray[np.int64]
    weight: float
    latency_ps: int


def count_hops(stages: Sequence[Stage], transfers: int) -> NDArray[np.int64]:
    """Return how many links lie in series on each way, shape (transfers,)."""
    return sum((stage.hops for stage in stages), np.zeros(transfers, np.int64))


def join_stages(stages: Sequence[Stage], transfers: int) -> Routes:
    """Return the routes that cross ``stages`` in order."""
    offsets = np.zeros(transfers + 1, np.int64)
    np.cumsum(sum((stage.counts for stage in stages), np.zeros(transfers, np.int64)), out=offsets[1:])
    links = np.empty(offsets[-1], np.int64)
    weights = np.empty(offsets[-1], np.float64)
    latency_ps = np.zeros(transfers, np.int64)
    next_free = offsets[:-1].copy()
    for stage in stages:
        before = np.cumsum(stage.counts) - stage.counts
        places = np.repeat(next_free - before, stage.counts) + np.arange(len(stage.links))
        links[places] = stage.links
        weights[places] = stage.weight
        latency_ps += stage.hops * stage.latency_ps
        next_free += stage.counts
    return Routes(offsets, links, weights, latency_ps)
