"""Routes and rings over NVLinks that join GPUs directly.

A route is the direct link, else one over the fewest GPUs: of these the one whose slowest hop has most links, then the
one by the lowest GPU at each step. Links between the same two GPUs count as one with their rates together. Rings
through all GPUs use the links evenly: edge-disjoint Hamiltonian cycles, of complete graphs by Walecki's construction
(B. Alspach, "The wonderful Walecki construction", 2008).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import TypeAlias

import numpy as np

from s2sim.arrays import Ints
from s2sim.errors import TopologyError
from s2sim.topology.shape import NodeSpec


@dataclass(frozen=True, slots=True, eq=False)
class MeshRoutes:
    """The links of one node's mesh, and the routes over them."""

    # source, target, lines: two GPUs in use, each order once, and how many lines the link between them has
    source: Ints
    target: Ints
    lines: Ints
    # The link that a route from one GPU to another crosses first, second, ...; -1 after its end or without a route
    hops: Ints


@lru_cache(maxsize=64)
def mesh_routes(spec: NodeSpec, in_use: int) -> MeshRoutes:
    """Return the mesh of the first GPUs of a node; with PCIe, only GPUs with a direct link have a route."""
    lines = np.zeros((in_use, in_use), np.int64)
    for one, other, number in spec.mesh or ():
        if other < in_use:
            lines[one, other] = lines[other, one] = number
    source, target = np.nonzero(lines)
    link = np.full((in_use, in_use), -1, np.int64)
    link[source, target] = np.arange(len(source))
    step = np.where(lines > 0, np.arange(in_use), -1) if spec.pcie is not None else _next_hops(lines)
    hops = []
    at = np.broadcast_to(np.arange(in_use)[:, None], step.shape)
    end = np.broadcast_to(np.arange(in_use), step.shape)
    while True:
        after = np.where(at == end, -1, step[at, end])
        if (after < 0).all():
            break
        hops.append(np.where(after < 0, -1, link[at, after]))
        at = np.where(after < 0, end, after)
    return MeshRoutes(source, target, lines[source, target], np.array(hops, np.int64).reshape(-1, in_use, in_use))


def _next_hops(lines: Ints) -> Ints:
    """Return the first GPU on the route from one GPU to another, shape (GPUs, GPUs)."""
    gpus = len(lines)
    unknown = gpus + 1
    distance = np.where(lines > 0, 1, unknown)
    np.fill_diagonal(distance, 0)
    narrowest = lines.copy()
    step = np.where(lines > 0, np.arange(gpus), -1)
    for length in range(2, gpus):
        widest, after = np.zeros_like(lines), np.zeros_like(lines)
        for between in range(gpus):
            width = np.minimum(lines[:, [between]], np.where(distance[between] == length - 1, narrowest[between], 0))
            after[width > widest] = between
            widest = np.maximum(widest, width)
        found = (widest > 0) & (distance == unknown)
        if not found.any():
            break
        step[found], narrowest[found], distance[found] = after[found], widest[found], length
    if (distance == unknown).any():
        one, other = np.argwhere(distance == unknown)[0].tolist()
        raise TopologyError(
            f"nvlink.pairs leave no way from GPU {one} to GPU {other} of a node with {gpus} GPUs in use: add pairs or "
            "a [pcie] table, or fill whole nodes"
        )
    return step


@dataclass(frozen=True, slots=True, eq=False)
class NodeMeshes:
    """The meshes of all nodes: node i has the links ``first[i] ... first[i + 1] - 1``.

    ``variants`` are meshes that differ, by kind of node and GPUs in use, of which ``variant``, int64 of shape (nodes,),
    says which each node has; -1 for none.
    """

    first: Ints
    variants: tuple[MeshRoutes, ...]
    variant: Ints

    def links(self, node: Ints, source: Ints, target: Ints) -> list[Ints]:
        """Return the links that routes cross first, second, ..., int64 of shape (routes,) each; -1 if absent.

        ``source`` and ``target`` are numbers of GPUs in the node.
        """
        longest = max((len(ways.hops) for ways in self.variants), default=0)
        crossed = [np.full(len(node), -1, np.int64) for _ in range(longest)]
        for number, ways in enumerate(self.variants):
            here = np.flatnonzero(self.variant[node] == number)
            for found, hop in zip(crossed, ways.hops, strict=False):
                local = hop[source[here], target[here]]
                found[here] = np.where(local < 0, -1, self.first[node[here]] + local)
        return crossed


def find_meshes(specs: Sequence[NodeSpec], spec_of_node: Ints, in_use: Ints) -> NodeMeshes:
    """Return the meshes of all nodes, by the kind of each one and how many of its GPUs are in use, int64 (nodes,)."""
    variants: list[MeshRoutes] = []
    variant = np.full(len(in_use), -1, np.int64)
    links = np.zeros(len(in_use), np.int64)
    for number, spec in enumerate(specs):
        of_kind = spec_of_node == number
        for gpus in np.unique(in_use[of_kind]).tolist() if spec.mesh is not None else ():
            alike = of_kind & (in_use == gpus)
            variant[alike] = len(variants)
            variants.append(mesh_routes(spec, gpus))
            links[alike] = len(variants[-1].source)
    return NodeMeshes(np.concatenate([np.zeros(1, np.int64), np.cumsum(links)]), tuple(variants), variant)


LinkCounts: TypeAlias = tuple[tuple[int, ...], ...]
"""Number of links between each two of n places: n symmetric rows of n."""

RankOrder: TypeAlias = tuple[int, ...]

# Links without a switch join 8 GPUs, or 16; of more no rings are searched.
_MAX_PLACES = 16
# More rings than eight GPUs have in any graph; of graphs with more none are searched.
_MAX_CYCLES, _MAX_LINES = 2520, 5040
# Rings tried in a packing before a smaller one, and paths begun in a search.
_MAX_STEPS, _MAX_BEGUN = 2000, 100_000


@lru_cache(maxsize=256)
def ring_orders(lines: LinkCounts) -> tuple[tuple[RankOrder, int], ...]:
    """Return rings of all places in both directions, and the share of the data of each, in whole parts.

    Empty if the links close no ring, or there are too many to search.

    >>> ring_orders(((0, 1, 1), (1, 0, 1), (1, 1, 0)))
    (((2, 0, 1), 1), ((2, 1, 0), 1))
    """
    places = len(lines)
    if not 2 <= places <= _MAX_PLACES or min(map(sum, lines)) == 0:
        return ()
    if places == 2:
        return (((0, 1), 1),)
    found = _walecki_rings(places) if _is_complete_graph(lines) else _edge_disjoint_rings(lines)
    shares = {order: found.count(order) for order in found}
    return tuple((way, share) for order, share in shares.items() for way in (order, (order[0], *reversed(order[1:]))))


@lru_cache(maxsize=256)
def path_orders(lines: LinkCounts, starts: RankOrder, end_of: RankOrder) -> tuple[RankOrder | None, ...]:
    """Return a path of all places from each of ``starts``; None if there is none.

    ``end_of`` is the interface of each place. As few paths as possible end at one interface, then share one link.
    """
    places = len(lines)
    if _is_complete_graph(lines):
        # All differences between neighbours are distinct, so that rotated paths of an even number share no link.
        zigzag = [(step + 1) // 2 * (1 if step % 2 else -1) % places for step in range(places)]
        return tuple(tuple((start + at) % places for at in zigzag) for start in starts)
    if places > _MAX_PLACES:
        return (None,) * len(starts)
    options = {start: list(_hamiltonian_paths(lines, start, _MAX_LINES)) for start in dict.fromkeys(starts)}
    chosen: list[RankOrder | None] = [options[start][0] if options[start] else None for start in starts]
    width = np.maximum(np.array(lines), 1)

    def badness(channel: int, option: RankOrder) -> tuple[float, ...]:
        load = np.zeros(width.shape)
        ends = np.zeros(max(end_of) + 1)
        for order in (option, *(each for at, each in enumerate(chosen) if at != channel and each is not None)):
            load[order[:-1], order[1:]] += 1
            ends[end_of[order[-1]]] += 1
        return float(ends.max()), float((load / width).max()), float((load**2 / width).sum())

    # Each channel in turn takes the best path given the others, twice.
    for channel in (*range(len(starts)), *range(len(starts))):
        if chosen[channel] is not None and len(starts) > 1:
            chosen[channel] = min(options[starts[channel]], key=lambda option: badness(channel, option))
    return tuple(chosen)


def _is_complete_graph(lines: LinkCounts) -> bool:
    return len({lines[one][other] for one in range(len(lines)) for other in range(one)}) == 1


def _walecki_rings(places: int) -> list[RankOrder]:
    """Return rings that use each link of a complete graph equally: once of an odd number of places, else twice."""
    around = places - 1
    zigzag = [(step + 1) // 2 * (1 if step % 2 else -1) for step in range(around)]
    turns = around if places % 2 == 0 else around // 2
    return [(around, *((turn + at) % around for at in zigzag)) for turn in range(turns)]


def _edge_disjoint_rings(lines: LinkCounts) -> list[RankOrder]:
    """Return the most rings found, at most half the fewest links of a place, that share no link or each with one."""
    paths = _hamiltonian_paths(lines, 0, 2 * _MAX_CYCLES + 1)
    cycles = [order for order in paths if lines[order[-1]][0] and order[1] < order[-1]]
    if len(cycles) > _MAX_CYCLES:
        return []
    for halves in range(min(map(sum, lines)), 0, -1):
        doubled = halves % 2
        if found := _choose_rings(cycles, np.array(lines) * (1 + doubled), halves if doubled else halves // 2):
            return found
    return []


def _choose_rings(cycles: Sequence[RankOrder], room: Ints, wanted: int) -> list[RankOrder]:
    """Return ``wanted`` rings, with repetitions, within the room of all links; empty if none are found."""
    # Rings over the links with most room are tried first.
    if not cycles:
        return []
    from_, to = (np.array([[order[i - shift] for i in range(len(order))] for order in cycles]) for shift in (1, 0))
    steps = count()

    def search(room: Ints, left: int) -> list[RankOrder] | None:
        if left == 0:
            return []
        width = room[from_, to]
        fitting = np.flatnonzero((width > 0).all(axis=1))
        for at in fitting[np.lexsort((-width[fitting].sum(axis=1), -width[fitting].min(axis=1)))]:
            if next(steps) > _MAX_STEPS:
                return None
            after = room.copy()
            after[from_[at], to[at]] -= 1
            after[to[at], from_[at]] -= 1
            if (after.sum(axis=1) >= 2 * (left - 1)).all() and (rest := search(after, left - 1)) is not None:
                return [cycles[at], *rest]
        return None

    return search(room, wanted) or []


def _hamiltonian_paths(lines: LinkCounts, start: int, most: int) -> Iterator[RankOrder]:
    """Yield the paths of all places from ``start``, the lowest numbers first."""
    places = len(lines)
    near = [[other for other in range(places) if lines[place][other]] for place in range(places)]
    yielded = begun = 0
    stack: list[RankOrder] = [(start,)]
    while stack and yielded < most and begun < _MAX_BEGUN:
        order = stack.pop()
        begun += 1
        if len(order) == places:
            yielded += 1
            yield order
        stack += [(*order, other) for other in reversed(near[order[-1]]) if other not in order]
