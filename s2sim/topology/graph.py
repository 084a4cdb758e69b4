"""The graph of a cluster as arrays: one entry a directed link."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats, Ints, LazySequence, Mask
from s2sim.errors import TopologyError
from s2sim.seeds import splitmix64
from s2sim.units import PS_PER_S

# A cluster of this size takes 1.2 GB and five seconds.
_MAX_LINKS = 10_000_000


def index_splitter(*radices: int) -> Callable[[int], list[int]]:
    """Return a function that splits a number into indices; all but the first have these sizes, outermost first.

    >>> index_splitter(3, 4)(23)
    [1, 2, 3]
    """
    outer, *strides = (prod(radices[place:]) for place in range(len(radices) + 1))
    return lambda at: [at // outer, *(at // stride % radix for stride, radix in zip(strides, radices, strict=True))]


@dataclass(frozen=True, slots=True, eq=False)
class LinkPart:
    """Links of one kind and direction, which follow each other in the graph."""

    key: str
    link_class: str  # For summing up: ``"nvlink"``, ``"pcie"``, ``"nic"``, ``"leaf-up"``, ``"torus"``, ``"global"``, ..
    rate_Bps: float | Floats  # Of all links, or of each, until a graph has another for one
    latency_ps: int | Ints
    template: str
    indices: Callable[[int], Iterable[object]]  # Those of a link's name, for ``template``, by its number
    count: int
    # Takes the numbers 0, 1, ... of the links as an int64 array, gives the vertices where each starts and ends.
    ends: Callable[[Ints], tuple[Ints, Ints]]
    start: int = 0  # Number of the first in the graph

    @property
    def part(self) -> slice:
        """Where the links lie in the arrays of the graph."""
        return slice(self.start, self.start + self.count)

    def name(self, index: int) -> str:
        """Return the name of link number ``index`` of these."""
        return self.template.format(*self.indices(index))

    def turned(self) -> "LinkPart":
        """Return the same links the other way round."""
        return replace(self, ends=lambda index: self.ends(index)[::-1])


@dataclass(frozen=True, slots=True, eq=False)
class Fabric:
    """All directed links, in arrays of shape (L,).

    Vertices are numbered: GPUs, then nodes (where a node's GPUs and network interfaces meet), then switches level by
    level, then PCIe switches node by node, then host bridges with a rate of their own, one a node. On a ring or torus
    the stop where a node's interfaces meet its neighbours counts as its switch.
    """

    rate_Bps: Floats
    latency_ps: Ints
    link_names: Sequence[str]  # ``"node3.gpu1.nvlink.out"``, made on demand: all would cost more than the graph
    link_class: NDArray[np.int8]  # Index into ``class_names``: ``"nvlink"``, ``"nic"``, ``"leaf-up"``, ..
    class_names: tuple[str, ...]
    tail: Ints  # Vertex at which each link starts
    head: Ints  # Vertex at which it ends
    gpus: int
    nodes: int
    blocks: Mapping[str, LinkPart]  # The links by direction and kind, for example ``"leaf.up"``

    def __len__(self) -> int:
        return len(self.rate_Bps)


def build_fabric(parts: Sequence[LinkPart], gpus: int, nodes: int, what: str) -> Fabric:
    """Return the graph of all links, numbered in the order of their parts; ``what`` names the cluster in an error."""
    counts = [part.count for part in parts]
    if sum(counts) > _MAX_LINKS:
        raise TopologyError(
            f"{what} has {sum(counts):,} links, more than {_MAX_LINKS:,}: ask for fewer workers or uplinks"
        )
    starts = accumulate(counts, initial=0)
    blocks = {part.key: replace(part, start=start) for part, start in zip(parts, starts, strict=False)}
    class_names = tuple(dict.fromkeys(part.link_class for part in parts if part.count))
    codes = [class_names.index(part.link_class) if part.count else 0 for part in parts]
    ends = [part.ends(np.arange(part.count, dtype=np.int64)) for part in parts if part.count]
    named = [block for block in blocks.values() if block.count]
    firsts = [block.start for block in named]

    def link_name(number: int) -> str:
        block = named[bisect_right(firsts, number) - 1]
        return block.name(number - block.start)

    return Fabric(
        rate_Bps=np.concatenate([np.full(part.count, part.rate_Bps, np.float64) for part in parts]),
        latency_ps=np.concatenate([np.full(part.count, part.latency_ps, np.int64) for part in parts]),
        link_names=LazySequence(sum(counts), link_name),
        link_class=np.repeat(np.array(codes, np.int8), counts),
        class_names=class_names,
        tail=np.concatenate([pair[0] for pair in ends]),
        head=np.concatenate([pair[1] for pair in ends]),
        gpus=gpus,
        nodes=nodes,
        blocks=blocks,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """The links that each of m transfers crosses."""

    offsets: Ints  # Transfer i crosses ``links[offsets[i] : offsets[i + 1]]``
    links: Ints  # In the order in which they are crossed; each once a transfer
    weights: Floats  # The share of the transfer on each link: 1 unless it is sprayed, or crosses the link twice
    latency_ps: Ints  # Sum along the route, the longest path if it is sprayed, and what a library adds
    limit_Bps: Floats | None = None  # The highest rate of each transfer

    def narrowest(self, capacity: Floats) -> Floats:
        """Return what its links give each transfer alone, float64 of shape (m,), in the unit of ``capacity``."""
        if not len(self.latency_ps):
            return np.zeros(0)
        return np.minimum.reduceat(capacity[self.links] / self.weights, self.offsets[:-1])

    def fastest(self, capacity: Floats) -> Floats:
        """Return the rate of each transfer alone in bytes per picosecond, the unit of ``capacity``, with its limit."""
        alone = self.narrowest(capacity)
        return alone if self.limit_Bps is None else np.minimum(alone, self.limit_Bps / PS_PER_S)

    def crossing(self, marked: Mask) -> Mask:
        """Return a mask of the transfers that cross any of the marked links, bool of shape (m,)."""
        if not len(self.latency_ps):
            return np.zeros(0, np.bool_)
        return np.asarray(np.logical_or.reduceat(marked[self.links], self.offsets[:-1]), np.bool_)

    def with_limits_as_links(self, first: int) -> "tuple[Routes, Floats]":
        """Return the routes with every limit as a dedicated link, numbered from ``first``, and the rates of these."""
        if self.limit_Bps is None:
            return self, np.zeros(0)
        limited = np.flatnonzero(np.isfinite(self.limit_Bps))
        ends = self.offsets[limited + 1]
        offsets = self.offsets + np.concatenate([[0], np.cumsum(np.isfinite(self.limit_Bps))])
        links = np.insert(self.links, ends, first + np.arange(len(limited)))
        return Routes(offsets, links, np.insert(self.weights, ends, 1.0), self.latency_ps), self.limit_Bps[limited]

    def with_each_link_once(self) -> "Routes":
        """Return routes in which a link that a transfer crosses on several ways is one, with the sum of its shares."""
        row = np.repeat(np.arange(len(self.latency_ps)), np.diff(self.offsets))
        keys = row * (self.links.max(initial=0) + 1) + self.links
        _, first, place = np.unique(keys, return_index=True, return_inverse=True)
        if len(first) == len(keys):
            return self
        in_order = np.argsort(first)
        weights, kept = np.bincount(place, self.weights)[in_order].astype(np.float64), first[in_order]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=len(self.latency_ps)))])
        return Routes(offsets, self.links[kept], weights, self.latency_ps, self.limit_Bps)

    def take(self, chosen: Ints) -> "Routes":
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


NO_ROUTES = Routes(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))


def concatenate_routes(parts: Sequence[Routes]) -> Routes:
    """Return the routes of several sets of transfers, one set after the other."""
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    links, weights, latency_ps = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("links", "weights", "latency_ps")
    )
    limits_Bps = [np.full(len(each.latency_ps), np.inf) if each.limit_Bps is None else each.limit_Bps for each in parts]
    limit_Bps = None if all(part.limit_Bps is None for part in parts) else np.concatenate(limits_Bps)
    return Routes(np.concatenate([[0], np.cumsum(lengths)]), links, weights, latency_ps, limit_Bps)


def gather_slices(starts: Ints, lengths: Ints) -> Ints:
    """Return the concatenation of ``range(starts[i], starts[i] + lengths[i])``, int64.

    >>> gather_slices(np.array([5, 0]), np.array([2, 3]))
    array([5, 6, 0, 1, 2])
    """
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + lengths, lengths)


@dataclass(frozen=True, slots=True, eq=False)
class RouteStage:
    """The next links of all routes."""

    counts: Ints  # Links of each transfer, in series or parallel; may be 0
    links: Ints  # The links of all transfers, concatenated
    weight: float
    latency_ps: Ints  # The sum for links in series, the longest of parallel links


def join_stages(stages: Sequence[RouteStage], transfers: int) -> Routes:
    """Return the routes that cross ``stages`` in order."""
    counts = sum((stage.counts for stage in stages), np.zeros(transfers, np.int64))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
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


def hash_choice(source: Ints, target: Ints, seed: int, level: int, width: int | Ints) -> Ints:
    """Return a number below ``width`` for each pair, by a hash, int64 of shape (m,).

    Other pairs of seed and level, of which there are 4, draw independently; the width may differ from pair to pair.
    """
    golden = np.uint64(0x9E3779B97F4A7C15)
    state = np.full(len(source), (seed * 4 + level) % 2**64, np.uint64)
    for part in (source, target):
        state = splitmix64(state * golden + part.astype(np.uint64) + golden)
    return (state % np.asarray(width).astype(np.uint64)).astype(np.int64)


def series_stage(fabric: Fabric, links: Ints, counts: Ints) -> RouteStage:
    """Return ``counts[i]`` of ``links`` (numbers of the graph), one after the other, for each transfer."""
    passed_ps = np.concatenate([np.zeros(1, np.int64), np.cumsum(fabric.latency_ps[links])])
    ends = np.cumsum(counts)
    return RouteStage(counts, links, 1.0, passed_ps[ends] - passed_ps[ends - counts])


def parallel_stage(fabric: Fabric, key: str, first: Ints, mask: Mask, width: int = 1) -> RouteStage:
    """Return ``width`` links of block ``key`` side by side for each transfer in ``mask``."""
    links = fabric.blocks[key].start + first[mask] + np.arange(width)[:, None]
    latency_ps = np.zeros(len(mask), np.int64)
    latency_ps[mask] = fabric.latency_ps[links].max(axis=0)
    return RouteStage(mask * np.int64(width), links.T.ravel(), 1 / width, latency_ps)


def parallel_stages(ways: Sequence[Sequence[RouteStage]]) -> list[RouteStage]:
    """Return routes with equal numbers of stages, each with an even part of every transfer, as one."""
    found = []
    for level in zip(*ways, strict=True):
        latency_ps = np.max([stage.latency_ps for stage in level], axis=0)
        # All of a level count its latency once.
        found += [
            replace(stage, weight=stage.weight / len(ways), latency_ps=np.zeros_like(latency_ps) if way else latency_ps)
            for way, stage in enumerate(level)
        ]
    return found
