"""A cluster's graph as plain arrays, in nested parts: GPUs in nodes, nodes below leaves, leaves in pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.arrays import Floats, Ints, Mask


# Class of what joins a GPU without a port of its own to its node: no link of the cluster.
NO_LINK = -1


@dataclass(frozen=True, slots=True, eq=False)
class ClusterGraph:
    """The graph that a picture shows.

    Attributes
    ----------
    tail, head : int64 array, shape (L,)
        Vertex at which each directed link starts and ends: first the GPUs, then the nodes, then all switches.
    link_class : integer array, shape (L,)
        Index into ``class_names``.
    class_names : tuple of str
        ``"nic"``, ``"leaf-up"``, ...; ``-up`` and ``-down`` are two directions of one class.
    rate_Bps : float64 array, shape (L,)
        Bytes per second.
    latency_ps : int64 array, shape (L,)
        Picoseconds.
    node_of_gpu, rank_of_gpu : int64 array, shape (gpus,)
        The node that holds each GPU, and the rank that runs on it.
    switch_names : tuple of str
        What a switch of each level is called, lowest first; an empty name draws a dot.
    arrangement : str
        ``"levels"``, or ``"ring"``, ``"grid"`` or ``"circle"`` for switches that are all alike.
    grid : tuple of int
        Rows and columns of a grid, before them its planes; switches are numbered row by row.
    between_groups : tuple of str
        Classes of links between groups of switches, where there are groups.
    """

    tail: Ints
    head: Ints
    link_class: NDArray[np.integer]
    class_names: tuple[str, ...]
    rate_Bps: Floats
    latency_ps: Ints
    node_of_gpu: Ints
    rank_of_gpu: Ints
    nodes: int
    switch_names: tuple[str, ...] = ()
    arrangement: str = "levels"
    grid: tuple[int, ...] = ()
    between_groups: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return len(self.node_of_gpu)


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A graph's vertices by level, and the parts that hang together below each level.

    Attributes
    ----------
    tail, head, link_class : int64 array, shape (M,)
        The links, with `NO_LINK` from each GPU that has no port to its node; two directions have one class.
    rate_Bps : float64 array, shape (M,)
        Bytes per second; 0 for what is no link.
    level : int64 array, shape (V,)
        Links from the nearest GPU.
    part : tuple of int64 array, shape (V,)
        At each level the part that a vertex belongs to, named by its first vertex. The highest is the whole, unless
        the highest switches are joined to each other alone.
    """

    tail: Ints
    head: Ints
    link_class: Ints
    rate_Bps: Floats
    classes: tuple[str, ...]
    level: Ints
    part: tuple[Ints, ...]

    @property
    def top(self) -> int:
        """Highest level of parts."""
        return len(self.part) - 1

    def own(self, level: int, name: int) -> Ints:
        """Return the vertices of a part's own level."""
        return np.flatnonzero((self.part[level] == name) & (self.level == level))

    def children(self, level: int, name: int) -> list[int]:
        """Return the parts of the level below that a part holds."""
        inside = (self.part[level] == name) & (self.level < level)
        names: list[int] = np.unique(self.part[level - 1][inside]).tolist()
        return names


def base_class(name: str) -> str:
    """Return the name of a class of links without its direction.

    >>> base_class("leaf-up"), base_class("nic")
    ('leaf', 'nic')
    """
    return name.removesuffix("-up").removesuffix("-down")


def _levels(graph: ClusterGraph, tail: Ints, head: Ints, vertices: int) -> Ints:
    """Return the number of links from each vertex to the nearest GPU."""
    level = np.full(vertices, -1, np.int64)
    level[: graph.gpus] = 0
    reached = 0
    while True:
        near = np.concatenate([head[level[tail] == reached], tail[level[head] == reached]])
        near = near[level[near] < 0]
        if not len(near):
            break
        reached += 1
        level[near] = reached
    if graph.arrangement != "levels":
        # Switches without nodes are like those with nodes, and no farther up.
        level[graph.gpus + graph.nodes :] = level[graph.gpus] + 1
    return level


def _joined(tail: Ints, head: Ints, links: Mask, vertices: int) -> Ints:
    """Return, for each vertex, the first vertex that ``links`` join it to."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ones = np.ones(int(links.sum()), np.bool_)
    graph = coo_array((ones, (tail[links], head[links])), shape=(vertices, vertices))
    _, component = connected_components(graph, directed=False)
    _, first, which = np.unique(component, return_index=True, return_inverse=True)
    return first.astype(np.int64)[which]


def find_parts(graph: ClusterGraph) -> Parts:
    """Return the levels and nested parts of a graph."""
    classes = tuple(dict.fromkeys(map(base_class, graph.class_names)))
    new_code = np.array([classes.index(base_class(name)) for name in graph.class_names], np.int64)
    gpu = np.arange(graph.gpus, dtype=np.int64)
    alone = np.setdiff1d(gpu, np.union1d(graph.tail, graph.head))
    tail = np.concatenate([graph.tail, alone])
    head = np.concatenate([graph.head, graph.gpus + graph.node_of_gpu[alone]])
    link_class = np.concatenate([new_code[graph.link_class], np.full(len(alone), NO_LINK)])
    vertices = 1 + int(max(tail.max(), head.max(), graph.gpus + graph.nodes - 1))
    level = _levels(graph, tail, head, vertices)
    highest = np.maximum(level[tail], level[head])
    upwards = level[tail] != level[head]
    part = [_joined(tail, head, upwards & (highest <= number), vertices) for number in range(level.max() + 1)]
    groups = [classes.index(base_class(name)) for name in graph.between_groups if base_class(name) in classes]
    if groups:
        part.append(_joined(tail, head, ~np.isin(link_class, groups), vertices))
    rate_Bps = np.concatenate([graph.rate_Bps, np.zeros(len(alone))])
    return Parts(tail, head, link_class, rate_Bps, classes, level, tuple(part))
