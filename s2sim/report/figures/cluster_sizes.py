"""The graph of a cluster as arrays, its nested parts (nodes, leaves, pods), and their names and sizes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats, Ints, Mask

# Class of the connection of a GPU without a port to its node, which is no link of the cluster.
NO_LINK = -1


@dataclass(frozen=True, slots=True, eq=False)
class ClusterGraph:
    """The graph of a cluster."""

    # tail, head: vertex at which each directed link starts and ends: first the GPUs, then the nodes, then all switches
    tail: Ints
    head: Ints
    link_class: NDArray[np.integer]  # Index into ``class_names``
    class_names: tuple[str, ...]  # ``"nic"``, ``"leaf-up"``, ...; ``-up`` and ``-down`` are two directions of one class
    rate_Bps: Floats  # Bytes per second
    latency_ps: Ints  # Picoseconds
    # node_of_gpu, rank_of_gpu: the node that holds each GPU, and the rank that runs on it
    node_of_gpu: Ints
    rank_of_gpu: Ints
    nodes: int
    switch_names: tuple[str, ...] = ()  # What a switch of each level is called, lowest first; an empty name draws a dot
    # ``"levels"``, or ``"ring"``, ``"grid"`` or ``"circle"`` for switches that are all alike
    arrangement: str = "levels"
    grid: tuple[int, ...] = ()  # Rows and columns of a grid, before them its planes; switches are numbered row by row
    between_groups: tuple[str, ...] = ()  # Classes of links between groups of switches, where there are groups

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return len(self.node_of_gpu)


@dataclass(frozen=True, slots=True, eq=False)
class GraphParts:
    """The vertices of a graph by level, and its connected parts up to each level."""

    graph: ClusterGraph
    # tail, head, link_class: the links, with `NO_LINK` from each GPU that has no port to its node; two directions have
    # one class
    tail: Ints
    head: Ints
    link_class: Ints
    rate_Bps: Floats  # Bytes per second; 0 for what is no link
    classes: tuple[str, ...]
    level: Ints  # Links from the nearest GPU
    # At each level the part of each vertex, named by its first vertex. The highest is the whole, unless the highest
    # switches are only linked to each other.
    part: tuple[Ints, ...]

    @property
    def top(self) -> int:
        """Highest level of parts."""
        return len(self.part) - 1

    def own(self, level: int, name: int) -> Ints:
        """Return the vertices of a part's own level."""
        return np.flatnonzero((self.part[level] == name) & (self.level == level))

    def children(self, level: int, name: int) -> list[int]:
        """Return the parts of the level below in a part."""
        inside = (self.part[level] == name) & (self.level < level)
        names: list[int] = np.unique(self.part[level - 1][inside]).tolist()
        return names

    @property
    def _first_switch(self) -> int:
        return self.graph.gpus + self.graph.nodes

    def _switch_name(self, level: int) -> str:
        above = level - 1 - int(self.level[self.graph.gpus])
        names = self.graph.switch_names
        return names[above] if 0 <= above < len(names) else "switch"

    def vertex_name(self, vertex: int) -> tuple[str, str, int]:
        """Return the kind of a vertex's box, its name, and its number among those of its kind."""
        if vertex < self.graph.gpus:
            return "gpu", "GPU", int(self.graph.rank_of_gpu[vertex])
        if vertex < self._first_switch:
            return "node", "node", vertex - self.graph.gpus
        name = self._switch_name(int(self.level[vertex]))
        before = np.count_nonzero(self.level[self._first_switch : vertex] == self.level[vertex])
        return ("switch" if name else "dot"), name, int(before)

    def part_name(self, level: int, part: int) -> str:
        """Return the name of a part of a level."""
        own = self.own(level, part)
        if level == 0:
            return "GPU"
        if not len(own):
            return "group"
        if own[0] < self._first_switch:
            return "node"
        if len(own) == 1:
            return self._switch_name(level) or "node"
        return "pod" if level > 1 + int(self.level[self.graph.gpus]) else "group"

    def slot_width(self, vertex: int) -> float:
        """Return the width of a switch or node in a row, with the gap to the next."""
        kind, name, number = self.vertex_name(vertex)
        return (DOT if kind == "dot" else text_width(f"{name} {number}")) + part_gap(1)


def base_class(name: str) -> str:
    """Return the name of a class of links without its direction.

    >>> base_class("leaf-up"), base_class("nic")
    ('leaf', 'nic')
    """
    return name.removesuffix("-up").removesuffix("-down")


def find_parts(graph: ClusterGraph) -> GraphParts:
    """Return the levels and nested parts of a graph."""
    # No run needs these, and they take time to import.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components, dijkstra

    classes = tuple(dict.fromkeys(map(base_class, graph.class_names)))
    new_code = np.array([classes.index(base_class(name)) for name in graph.class_names], np.int64)
    gpu = np.arange(graph.gpus, dtype=np.int64)
    alone = np.setdiff1d(gpu, np.union1d(graph.tail, graph.head))
    tail = np.concatenate([graph.tail, alone])
    head = np.concatenate([graph.head, graph.gpus + graph.node_of_gpu[alone]])
    link_class = np.concatenate([new_code[graph.link_class], np.full(len(alone), NO_LINK)])
    vertices = 1 + int(max(tail.max(), head.max(), graph.gpus + graph.nodes - 1))

    def chosen(links: Mask) -> coo_array:
        ones = np.ones(np.count_nonzero(links), np.bool_)
        return coo_array((ones, (tail[links], head[links])), shape=(vertices, vertices))

    def joined(links: Mask) -> Ints:
        """Return the first vertex of the connected component of each vertex."""
        _, component = connected_components(chosen(links), directed=False)
        _, first, which = np.unique(component, return_index=True, return_inverse=True)
        return first.astype(np.int64)[which]

    hops = dijkstra(chosen(tail >= 0), directed=False, indices=gpu, unweighted=True, min_only=True)
    level = np.where(np.isinf(hops), -1, hops).astype(np.int64)
    if graph.arrangement != "levels":
        # Switches without nodes are on the level of those with nodes.
        level[graph.gpus + graph.nodes :] = level[graph.gpus] + 1
    highest = np.maximum(level[tail], level[head])
    upwards = level[tail] != level[head]
    part = [joined(upwards & (highest <= number)) for number in range(level.max() + 1)]
    groups = [classes.index(base_class(name)) for name in graph.between_groups if base_class(name) in classes]
    if groups:
        part.append(joined(~np.isin(link_class, groups)))
    rate_Bps = np.concatenate([graph.rate_Bps, np.zeros(len(alone))])
    return GraphParts(graph, tail, head, link_class, rate_Bps, classes, level, tuple(part))


def shortened(names: Sequence[int], places: int) -> list[list[int]]:
    """Return each of ``names`` in a list of its own, and in one list those that are hidden, before the last if any.

    A single name is never hidden: its box would need the same room.

    >>> shortened(range(9), 3), shortened(range(4), 3)
    ([[0], [1], [2, 3, 4, 5, 6, 7], [8]], [[0], [1], [2, 3]])
    """
    if len(names) <= places:
        return [[name] for name in names]
    last = [] if len(names) == places + 1 else [[names[-1]]]
    return [*([name] for name in names[: places - 1]), list(names[places - 1 : len(names) - len(last)]), *last]


# Inches. Letters are counted as 6.5 points high, so that no text is wider than its box.
LETTER, PADDING, MIN_CELL = 0.058, 0.12, 0.2
DOT = 0.12
# Gaps between neighbours of each level, and from each level to the next; the last for all above.
_GAPS = (0.03, 0.12, 0.35, 0.6)
_RISES = (0.42, 0.75, 1.1)
# Additional inches per inch of width, for long horizontal distances.
_SLOPES = (0.0, 0.03, 0.05)
MIN_SWITCHES = 4


def text_width(text: str) -> float:
    """Return the inches of a box around a text of one or more lines."""
    return max(map(len, text.split("\n"))) * LETTER + PADDING


def part_gap(level: int) -> float:
    """Return the inches between two parts of a level."""
    return _GAPS[min(level, len(_GAPS) - 1)]


def level_height(level: int, width: float) -> float:
    """Return the inches from a level to the next, the parts of which are ``width`` inches wide."""
    step = min(level, len(_RISES) - 1)
    return _RISES[step] + _SLOPES[step] * width
