"""Routes of many pairs of ranks at once, in compressed sparse rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Floats, Ints, Mask


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """The links that each of m transfers crosses.

    Attributes
    ----------
    offsets : int64 array, shape (m + 1,)
        Transfer i crosses ``links[offsets[i] : offsets[i + 1]]``.
    links, weights : int64 and float64 array, shape (nnz,)
        Link numbers, in the order in which they are crossed, and the share of the transfer that crosses the link: 1
        except where it is sprayed.
    latency_ps : int64 array, shape (m,)
        Sum of the latencies along one way, the longest where it is sprayed, and what a library adds.
    limit_Bps : float64 array, shape (m,), or None
        Most that each transfer gets, however much its links have left; None without any limit.
    """

    offsets: Ints
    links: Ints
    weights: Floats
    latency_ps: Ints
    limit_Bps: Floats | None = None

    def narrowest(self, capacity: Floats) -> Floats:
        """Return what its links give each transfer alone, float64 of shape (m,), in the unit of ``capacity``."""
        if not len(self.latency_ps):
            return np.zeros(0)
        rates: Floats = np.minimum.reduceat(capacity[self.links] / self.weights, self.offsets[:-1])
        return rates

    def with_limits_as_links(self, first: int) -> tuple[Routes, Floats]:
        """Return the routes with every limit as a link that nothing else crosses, and the rates of these links.

        They are numbered from ``first`` on, their rates float64 bytes per second; who shares out links knows no limits.
        """
        if self.limit_Bps is None:
            return self, np.zeros(0)
        limited = np.flatnonzero(np.isfinite(self.limit_Bps))
        ends = self.offsets[limited + 1]
        return Routes(
            offsets=self.offsets + np.concatenate([[0], np.cumsum(np.isfinite(self.limit_Bps))]),
            links=np.insert(self.links, ends, first + np.arange(len(limited))),
            weights=np.insert(self.weights, ends, 1.0),
            latency_ps=self.latency_ps,
        ), self.limit_Bps[limited]

    def crossing_only(self, chosen: Mask) -> Routes:
        """Return the routes with some of their crossings alone, bool of the shape of ``links``; one or more of each."""
        lengths = np.add.reduceat(chosen.astype(np.int64), self.offsets[:-1])
        return replace(
            self,
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            links=self.links[chosen],
            weights=self.weights[chosen],
        )

    def take(self, chosen: Ints) -> Routes:
        """Return the routes of some transfers, int64 of shape (k,), in that order."""
        lengths = self.offsets[chosen + 1] - self.offsets[chosen]
        crossings = gather_slices(self.offsets[chosen], lengths)
        return Routes(
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            links=self.links[crossings],
            weights=self.weights[crossings],
            latency_ps=self.latency_ps[chosen],
            limit_Bps=None if self.limit_Bps is None else self.limit_Bps[chosen],
        )


def stack(parts: Sequence[Routes]) -> Routes:
    """Return the routes of several sets of transfers, none of which has limits, one set after the other."""
    lengths = np.concatenate([np.diff(each.offsets) for each in parts])
    return Routes(
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        links=np.concatenate([each.links for each in parts]),
        weights=np.concatenate([each.weights for each in parts]),
        latency_ps=np.concatenate([each.latency_ps for each in parts]),
    )


def gather_slices(starts: Ints, lengths: Ints) -> Ints:
    """Return the concatenation of ``range(starts[i], starts[i] + lengths[i])``, int64.

    >>> gather_slices(np.array([5, 0]), np.array([2, 3]))
    array([5, 6, 0, 1, 2])
    """
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A piece of all ways: what every transfer crosses next, if anything.

    Attributes
    ----------
    counts, links : int64 array, shape (m,), (sum of counts,)
        How many links of this stage each transfer uses, in series or side by side, and which, transfer after transfer.
    latency_ps : int64 array, shape (m,)
        Latency of the stage: of links in series the sum, of links side by side the longest.
    """

    counts: Ints
    links: Ints
    weight: float
    latency_ps: Ints


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
        latency_ps += stage.latency_ps
        next_free += stage.counts
    return Routes(offsets, links, weights, latency_ps)
