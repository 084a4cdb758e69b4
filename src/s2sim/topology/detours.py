"""Other ways for routes whose links have failed: the shortest that are left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import TopologyError
from s2sim.topology.routes import Routes, gather_slices
from s2sim.topology.stages import draw

if TYPE_CHECKING:
    from s2sim.arrays import Floats, Ints, Mask
    from s2sim.topology.fabric import Fabric
    from s2sim.topology.routing import Router


# Hashes draw independently on so many levels.
_LEVELS = 4


def detour(router: Router, routes: Routes, dead: Mask, *, pairs: tuple[Ints, Ints], why: str) -> Routes:
    """Return the routes with another way for each that crosses a link in ``dead``, bool of shape (links,).

    The new way is one of those with fewest links among those between switches that are left, drawn by a hash at every
    switch that has a choice; what was sprayed is split evenly at every such switch. What is inside a node, and its
    network interfaces, have no stand-in. Latency changes by as much as the new way's is longer or shorter. ``pairs``
    are the ranks from and to which each route leads, for messages.
    """
    if not len(routes.latency_ps):
        return routes
    hit = np.flatnonzero(np.logical_or.reduceat(dead[routes.links], routes.offsets[:-1]))
    if not len(hit):
        return routes
    between = router.layout.switch_links(router.fabric)
    lengths, latency_ps = np.diff(routes.offsets), routes.latency_ps.copy()
    ways = []
    for index in hit.tolist():
        part = slice(routes.offsets[index], routes.offsets[index + 1])
        way = _other_way(router, routes.links[part], routes.weights[part], dead, between)
        if way is None:
            raise TopologyError(
                f"rank {pairs[0][index]} cannot reach rank {pairs[1][index]} after {why}: no other way is left; let "
                "less fail, or give the cluster more links"
            )
        ways.append(way)
        lengths[index] = len(way.links)
        latency_ps[index] = max(latency_ps[index] + way.longer_ps, 0)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    links, weights = np.empty(offsets[-1], np.int64), np.empty(offsets[-1])
    kept = np.setdiff1d(np.arange(len(lengths)), hit)
    new, old = (gather_slices(starts[kept], lengths[kept]) for starts in (offsets, routes.offsets))
    links[new], weights[new] = routes.links[old], routes.weights[old]
    for index, way in zip(hit.tolist(), ways, strict=True):
        part = slice(offsets[index], offsets[index + 1])
        links[part], weights[part] = way.links, way.weights
    return Routes(offsets, links, weights, latency_ps, routes.limit_Bps)


@dataclass(frozen=True, slots=True, eq=False)
class _Way:
    """Links, the share of the transfer on each, and how much longer their latency is than that of other links."""

    links: Ints
    weights: Floats
    longer_ps: int


def _other_way(router: Router, links: Ints, weights: Floats, dead: Mask, between: Mask) -> _Way | None:
    """Return another way between the switches that a route joins, or None where there is none."""
    fabric = router.fabric
    ends = ~between[links]
    if router.layout.dims.node_set.ports_per_gpu > 1 and not _in_a_row(fabric, links, ends):
        raise TopologyError(
            "a link has failed where a GPU spreads messages over several interfaces, of which no other ways are looked "
            "for: let it carry less instead (slow-link), or write as many nic.count as GPUs, with the rates together"
        )
    if not _in_a_row(fabric, links, ends):
        raise TopologyError(
            "a link has failed on the tree over which switches reduce, and that tree has no other way: let another "
            "link fail, or ask for an algorithm that leaves switches out"
        )
    if dead[links[ends]].any():
        return None
    first, last = np.flatnonzero(~ends)[[0, -1]]
    source, target = int(fabric.tail[links[first]]), int(fabric.head[links[last]])
    ahead, hops = _towards(fabric, target, between & ~dead)
    if not np.isfinite(hops[source]):
        return None
    sprayed = bool((weights < 1).any())
    # Who sends and who receives decides what is drawn, so that pairs of the same switches spread.
    drawn_by = None if sprayed else (int(links[0]), int(links[-1]))
    walked, shares, latency_ps = _walk(router, ahead, source, int(hops[source]), drawn_by)
    # One after another from switch to switch, side by side in between: the shares tell how many links lie in a row.
    before_ps = round(float((fabric.latency_ps[links[~ends]] * weights[~ends]).sum()))
    return _Way(
        np.concatenate([links[:first], walked, links[last + 1 :]]),
        np.concatenate([weights[:first], shares, weights[last + 1 :]]),
        latency_ps - before_ps,
    )


def _in_a_row(fabric: Fabric, links: Ints, ends: Mask) -> bool:
    """Return whether the links at both ends of a route, in its nodes, follow each other: not so on a tree."""
    follows = fabric.head[links[:-1]] == fabric.tail[links[1:]]
    return bool((follows | ~ends[:-1] | ~ends[1:]).all())


def _towards(fabric: Fabric, target: int, usable: Mask) -> tuple[Ints, Floats]:
    """Return the usable links that lead nearer to a vertex, and how many links each vertex is away from it."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import dijkstra

    numbers = np.flatnonzero(usable)
    tail, head = fabric.tail[numbers], fabric.head[numbers]
    size = int(max(fabric.tail.max(), fabric.head.max())) + 1
    graph = csr_matrix((np.ones(len(numbers)), (head, tail)), (size, size))
    hops: Floats = dijkstra(graph, indices=target, unweighted=True)
    return numbers[np.isfinite(hops[tail]) & (hops[head] == hops[tail] - 1)], hops


def _walk(
    router: Router, ahead: Ints, source: int, hops: int, drawn_by: tuple[int, int] | None
) -> tuple[Ints, Floats, int]:
    """Return the links of a way from a vertex on, the share on each, and the latency of the slowest way.

    Every vertex splits evenly over the links that lead nearer, or draws one of them by two numbers.
    """
    fabric = router.fabric
    links: list[int] = []
    weights: list[float] = []
    latency_ps = 0
    shares = {source: 1.0}
    for distance in range(hops, 0, -1):
        following: dict[int, float] = {}
        slowest_ps = 0
        for vertex, share in shares.items():
            out = ahead[fabric.tail[ahead] == vertex]
            if drawn_by is not None:
                first, last = (np.array([number]) for number in drawn_by)
                out = out[draw(first, last, router.seed, distance % _LEVELS, len(out))]
            for link in out.tolist():
                links.append(link)
                weights.append(share / len(out))
                head = int(fabric.head[link])
                following[head] = following.get(head, 0.0) + share / len(out)
            slowest_ps = max(slowest_ps, int(fabric.latency_ps[out].max()))
        latency_ps += slowest_ps
        shares = following
    return np.array(links, np.int64), np.array(weights), latency_ps
