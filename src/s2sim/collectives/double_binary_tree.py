"""Double binary tree all-reduce, pipelined: two trees, each for half of the buffer, over nodes with a chain inside.

Every rank that has children in one tree is a leaf of the other, so that both directions of every port are used
(Sanders, Speck and Träff, Parallel Computing 35(12), 2009). Inside a node the ranks form a chain that ends in the rank
which takes part in the tree over nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.collectives.schedule import Demand, Round, Schedule
from s2sim.errors import ContendedError, OptionError
from s2sim.units import PS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.topology.cluster import Cluster

_MOST_CHUNKS = 128


def _binary_tree(count: int) -> NDArray[np.int64]:
    """Return the parent of each of ``count`` members in an in-order binary tree, -1 for the root.

    Members are numbered from 1 here: a member's lowest set bit is its height, so odd members are leaves.
    """
    member = np.arange(1, count + 1)
    low = member & -member
    above = (member ^ low) | (low << 1)
    below = member ^ low
    return np.where(above <= count, above, below).astype(np.int64) - 1


def _second_tree(first: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the tree whose leaves have children in the first: mirrored for an even count, shifted for an odd one."""
    count = len(first)
    renamed = count - 1 - np.arange(count) if count % 2 == 0 else (np.arange(count) + 1) % count
    second = np.empty(count, np.int64)
    second[renamed] = np.where(first >= 0, renamed[first], -1)
    return second


def _over_nodes(tree: NDArray[np.int64], node_of_rank: NDArray[np.int64], *, last: bool) -> NDArray[np.int64]:
    """Return the parent of each rank: the tree over nodes, and a chain inside each, led by its first or last rank."""
    ranks = len(node_of_rank)
    nodes, node = np.unique(node_of_rank, return_inverse=True)
    order = np.lexsort((-np.arange(ranks) if last else np.arange(ranks), node))
    leads = np.concatenate([[True], np.diff(node[order]) != 0])
    leader = np.empty(len(nodes), np.int64)
    leader[node[order[leads]]] = order[leads]
    parent = np.empty(ranks, np.int64)
    parent[order[1:]] = order[:-1]
    parent[leader] = np.where(tree >= 0, leader[tree], -1)
    return parent


def _depth(parent: NDArray[np.int64]) -> NDArray[np.int64]:
    depth = np.zeros(len(parent), np.int64)
    ancestor = parent.copy()
    while (ancestor >= 0).any():
        depth += ancestor >= 0
        ancestor = np.where(ancestor >= 0, parent[ancestor], -1)
    return depth


@dataclass(frozen=True, slots=True)
class _Half:
    """One tree and its part of the buffer."""

    child: NDArray[np.int64]
    parent: NDArray[np.int64]
    depth: NDArray[np.int64]  # of each child
    height: int
    bounds: NDArray[np.int64]  # of the chunks, in elements
    first_pair: int

    def transfers(self, k: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64], bool]]:
        """Return (pair, chunk, adds) of round k: what goes up, and what comes down.

        A rank at depth d sends chunk c up in round c + height - d, as soon as its children can have delivered it, and
        receives the sum in round c + height + d - 1.
        """
        edges = len(self.child)
        chunks = len(self.bounds) - 1
        found = []
        for chunk, offset, adds in (
            (k - self.height + self.depth, 0, True),
            (k - self.height - self.depth + 1, edges, False),
        ):
            active = np.flatnonzero((chunk >= 0) & (chunk < chunks))
            found.append((self.first_pair + offset + active, chunk[active], adds))
        return found


@dataclass(frozen=True, slots=True)
class DoubleBinaryTree:
    """Two pipelined binary trees over nodes, chains inside: latency logarithmic in nodes.

    Attributes
    ----------
    chunks : int or None
        Pieces that each half of the buffer is cut into; None takes the number that the closed form makes fastest.
    """

    name: ClassVar[str] = "double-binary-tree"
    source: ClassVar[str] = "Sanders, Speck and Träff, Parallel Computing 35(12), 2009"
    kinds: ClassVar[tuple[str, ...]] = ("all_reduce",)
    chunks: int | None = None

    def __post_init__(self) -> None:
        if self.chunks is not None and self.chunks < 1:
            raise OptionError(f"double-binary-tree: chunks={self.chunks} must be at least 1")

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule; the cluster tells which ranks share a node, and the rates that choose the chunks."""
        tree = _binary_tree(len(np.unique(cluster.node_of_rank)))
        parents = [
            _over_nodes(tree, cluster.node_of_rank, last=False),
            _over_nodes(_second_tree(tree), cluster.node_of_rank, last=True),
        ]
        children = [np.flatnonzero(parent >= 0) for parent in parents]
        ends = [(child, parent[child]) for child, parent in zip(children, parents, strict=True)]
        src = np.concatenate([side for child, above in ends for side in (child, above)])
        dst = np.concatenate([side for child, above in ends for side in (above, child)])
        depths = [_depth(parent) for parent in parents]
        height = max(int(depth.max()) for depth in depths)
        chunks = self.chunks or self._fastest_chunks(demand, cluster, height, src, dst)
        middle = demand.buffer_elements // 2
        spans = [(0, middle), (middle, demand.buffer_elements)]
        halves = []
        for i, (begin, end) in enumerate(spans):
            child, above = ends[i]
            halves.append(
                _Half(
                    child=child,
                    parent=above,
                    depth=depths[i][child],
                    height=height,
                    bounds=begin + np.arange(chunks + 1, dtype=np.int64) * (end - begin) // chunks,
                    first_pair=i * 2 * len(child),
                )
            )
        carried = demand.buffer_bytes / 2 / chunks

        @cache
        def round_at(k: int) -> Round:
            parts = [(half, *transfer) for half in halves for transfer in half.transfers(k)]
            pair = np.concatenate([pair for _, pair, _, _ in parts])
            return Round(
                pair=pair,
                start=np.concatenate([half.bounds[chunk] for half, _, chunk, _ in parts]),
                stop=np.concatenate([half.bounds[chunk + 1] for half, _, chunk, _ in parts]),
                adds=np.concatenate([np.full(len(pair), adds) for _, pair, _, adds in parts]),
                bytes=np.full(len(pair), carried),
            )

        return Schedule(
            demand=demand,
            algorithm=f"{self.name}:chunks={chunks}",
            src=src,
            dst=dst,
            rounds=chunks + 2 * height - 1 if demand.ranks > 1 else 0,
            round_at=round_at,
        )

    def _fastest_chunks(
        self, demand: Demand, cluster: Cluster, height: int, src: NDArray[np.int64], dst: NDArray[np.int64]
    ) -> int:
        """Return the K that minimises (K - 1)(L + c·b2) + 2h·(L + c·b1), with c = D/2K.

        In K - 1 rounds chunks go up and down at once, in about 2h only up or only down. The busiest link needs b2 or b1
        seconds a byte then: the number of pairs that cross it over its rate.
        """
        if demand.ranks == 1:
            return 1
        routes = cluster.routes(src, dst)
        latency_s = float(routes.latency_ps.max()) / PS_PER_S
        if latency_s == 0:
            return _MOST_CHUNKS
        goes_up = np.repeat(np.tile([True, False], 2), len(src) // 4)
        crossing_up = np.repeat(goes_up, np.diff(routes.offsets))

        def busiest_s(crossings: NDArray[np.bool_]) -> float:
            load = np.bincount(routes.links[crossings], routes.weights[crossings], len(cluster.fabric.rate_Bps))
            return float((load / cluster.fabric.rate_Bps).max())

        both = busiest_s(np.ones(len(routes.links), bool))
        one_way = max(busiest_s(crossing_up), busiest_s(~crossing_up))
        best = sqrt(demand.buffer_bytes / 2 * max(0.0, 2 * height * one_way - both) / latency_s)
        return max(1, min(_MOST_CHUNKS, round(best)))

    def closed_form_s(self, demand: Demand, *, nodes: int, latency_s: float, rate_Bps: float) -> float:
        """Return the time where every pair of ranks, one a node, has links of its own: each round is one chunk's time.

        (K + 2h - 1)(L + D/(2K·B)), h the height of the trees. On any fabric where a rank has one port, messages share
        it and this form does not hold.
        """
        if nodes < demand.ranks:
            raise ContendedError(f"{self.name} has a closed form for one rank a node: simulate it instead")
        if demand.ranks == 1:
            return 0.0
        tree = _binary_tree(demand.ranks)
        height = max(int(_depth(tree).max()), int(_depth(_second_tree(tree)).max()))
        chunks = self.chunks or 1
        return (chunks + 2 * height - 1) * (latency_s + demand.buffer_bytes / 2 / chunks / rate_Bps)
