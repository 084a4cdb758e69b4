"""Trees of ranks: binary and binomial trees, the pipelined double binary tree, and the pipelined chain.

The latter has two trees over nodes, each for half of the buffer; every rank with children in one tree is a leaf of the
other, so that both directions of every port are used (Sanders, Speck and Träff, Parallel Computing 35(12), 2009).
"""

from dataclasses import dataclass, replace
from math import ceil, floor, sqrt
from typing import ClassVar

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives import Kind
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import (
    ChunkMove,
    Hops,
    MemberPairs,
    require_uniform_routes,
    reverse_moves,
    single_chunk,
    stage_of_moves,
)
from s2sim.collectives.schedules.groups import Groups, OverGroups, schedule_of
from s2sim.collectives.schedules.pipeline import Order, Pipeline, channel_count, channel_groups, mesh_ring_count
from s2sim.collectives.schedules.schedule import Schedule, Stage
from s2sim.errors import ContendedError, OptionError
from s2sim.options import option_text
from s2sim.topology.cluster import Cluster


@dataclass(frozen=True, slots=True)
class BinaryTree(OverGroups):
    """A complete binary tree over ranks counted from the root on: rank i has the children 2i + 1 and 2i + 2.

    A parent receives from both children, or sends to both, in one round; where it has one port they share it. A
    broadcast or a reduce sends (P - 1)·D bytes in all, an all-reduce twice as many.
    """

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        down = []
        for depth in range(1, groups.members.bit_length()):
            child = np.arange(2**depth - 1, min(2 ** (depth + 1) - 1, groups.members))
            down.append(ChunkMove(MemberPairs((child - 1) // 2, child), np.zeros(len(child), np.int64), 1))
        moves = {"broadcast": down, "reduce": reverse_moves(down), "all_reduce": [*reverse_moves(down), *down]}[kind]
        return stage_of_moves(groups.ranks, single_chunk(groups), moves)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return h·(L + D/B), h = floor(log2 P), or twice that, where every pair of ranks has links of its own.

        On any fabric where a rank has one port, two children share it and this form does not hold.
        """
        require_uniform_routes(self.name, hops)
        levels = demand.ranks.bit_length() - 1
        return (2 if demand.kind == "all_reduce" else 1) * levels * hops.round_s(float(demand.buffer_bytes))


@dataclass(frozen=True, slots=True)
class Binomial(OverGroups):
    """Whole buffers down or up a binomial tree: as few rounds as there can be, for small messages.

    With ranks counted from the root on, a broadcast sends in each round from every rank that has the buffer to the one
    at half the distance of the round before, from the first power of two below P on down to 1. A reduce is the same
    backwards. All ranks together send (P - 1)·D bytes.
    """

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        moves = []
        for j in reversed(range((groups.members - 1).bit_length())):
            source = np.arange(0, groups.members - 2**j, 2 ** (j + 1))
            moves.append(ChunkMove(MemberPairs(source, source + 2**j), np.zeros(len(source), np.int64), 1))
        moves = moves if kind == "broadcast" else reverse_moves(moves)
        return stage_of_moves(groups.ranks, single_chunk(groups), moves)

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time where messages share nothing and all ways are alike: ceil(log2 P)·(L + D/B)."""
        require_uniform_routes(self.name, hops)
        return (demand.ranks - 1).bit_length() * hops.round_s(float(demand.buffer_bytes))


# Ranks times channels, unless the number of channels is given.
_MAX_PARTS = 1 << 17


def tree_channels(interfaces: int, ranks: int) -> int:
    """Return the default number of pairs of trees: one per interface, fewer for many ranks.

    Rates are solved for the messages of each channel; with eight interfaces there are fewer from 16,385 ranks on.

    >>> tree_channels(8, 64), tree_channels(8, 65536), tree_channels(8, 10**6)
    (8, 2, 1)
    """
    return max(1, min(interfaces, _MAX_PARTS // max(ranks, 1)))


def trees_over_nodes(node_of_place: Ints) -> list[Ints]:
    """Return the parent of each rank in both trees, -1 for the roots: int64 of shape (ranks,) each.

    A tree over nodes, and a chain inside each node that ends in the rank that is part of the tree: the first of the
    node in one tree and the last in the other (Sanders, Speck and Träff, Parallel Computing 35(12), 2009).
    """
    count = len(np.unique(node_of_place))
    # An in-order binary tree: counted from 1, the lowest set bit of a node is its height, so that odd ones are leaves.
    number = np.arange(1, count + 1)
    low = number & -number
    above, below = (number ^ low) | (low << 1), number ^ low
    first = np.where(above <= count, above, below).astype(np.int64) - 1
    # The second, whose leaves have children in the first, is mirrored for an even count, else shifted.
    renamed = count - number if count % 2 == 0 else number % count
    second = np.empty(count, np.int64)
    second[renamed] = np.where(first >= 0, renamed[first], -1)
    return [_chain_tree(first, node_of_place, last=False), _chain_tree(second, node_of_place, last=True)]


def _chain_tree(tree: Ints, node_of_place: Ints, *, last: bool) -> Ints:
    """Return the parent of each rank in one tree, in which the first or last rank of each chain is part of the tree."""
    places = len(node_of_place)
    order = np.lexsort((-np.arange(places) if last else np.arange(places), node_of_place))
    leader = order[np.unique(node_of_place[order], return_index=True)[1]]
    parent = np.empty(places, np.int64)
    parent[order[1:]] = order[:-1]
    parent[leader] = np.where(tree >= 0, leader[tree], -1)
    return parent


# With more chunks the fill of the pipeline is below 1 % up to dozens of ranks, and rounds cost simulation time.
_MAX_CHUNKS = 128
# Rounds times edges, a byte each.
_MAX_EDGES = 1 << 30


def up_and_down(parents: list[Ints]) -> Pipeline:
    """Return the edges of trees, each used up and down, from the parent of each member, -1 for roots.

    A member at depth d sends chunk c up in round c + height - d, as soon as its children can have delivered it, and
    receives the sum in round c + height + d - 1.
    """
    depths = []
    for parent in parents:
        depth, ancestor = np.zeros_like(parent), parent
        while (ancestor >= 0).any():
            depth += ancestor >= 0
            ancestor = np.where(ancestor >= 0, parent[ancestor], -1)
        depths.append(depth)
    height = max(int(depth.max()) for depth in depths)
    sender, receiver, tree, delay, adds = [], [], [], [], []
    for number, (parent, depth) in enumerate(zip(parents, depths, strict=True)):
        child = np.flatnonzero(parent >= 0)
        sender += [child, parent[child]]
        receiver += [parent[child], child]
        delay += [height - depth[child], height + depth[child] - 1]
        adds += [np.ones(len(child), bool), np.zeros(len(child), bool)]
        tree += [np.full(2 * len(child), number)]
    return Pipeline(len(parents), *(np.concatenate(parts) for parts in (sender, receiver, tree, delay, adds)))


def _trees_of_members(members: int) -> Pipeline:
    return up_and_down(trees_over_nodes(np.arange(members)))


def tree_stage(groups: Groups, trees: Pipeline, chunks: int) -> Stage:
    """Return the rounds in which an all-reduce of each group goes up and down trees, each with an even part."""
    rounds, edges = trees.rounds(chunks), len(trees.delay)
    if rounds * edges > _MAX_EDGES:
        raise OptionError(
            f"double-binary-tree: chunks={chunks} over {groups.members} ranks make {rounds:,} rounds of up to "
            f"{edges:,} messages: take fewer chunks"
        )
    return trees.stage(groups, chunks)


@dataclass(frozen=True, slots=True)
class DoubleBinaryTree(OverGroups):
    """Two pipelined binary trees over nodes, chains inside: latency logarithmic in nodes."""

    minimums: ClassVar = {"channels": 1, "chunks": 1}
    # Pairs of trees that run side by side, each with its part of the buffer, and in every node led by other GPUs; None
    # takes one for each network interface of a node, where there are several nodes; fewer of very many ranks, see
    # `tree_channels`
    channels: int | None = None
    # Pieces that each half of a channel's part is cut into; None as many as the closed form makes fastest
    chunks: int | None = None

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule; the cluster determines which ranks share a node, and by its rates the chunks."""
        channels = self.channels or tree_channels(channel_count(cluster, None), demand.ranks)
        groups = channel_groups(demand, cluster, channels, "nodes")
        # Every channel has the same order of nodes.
        trees = up_and_down(trees_over_nodes(cluster.node_of_rank[groups.ranks[0]]))
        chunks = self._chunks(groups, trees, cluster)
        text = option_text(replace(self, channels=channels if channels > 1 else None, chunks=chunks))
        return schedule_of(demand, text, tree_stage(groups, trees, chunks))

    def fitted(self, groups: Groups, cluster: Cluster) -> "DoubleBinaryTree":
        return replace(self, chunks=self._chunks(groups, _trees_of_members(groups.members), cluster))

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        return tree_stage(groups, _trees_of_members(groups.members), self.chunks or 1)

    def _chunks(self, groups: Groups, trees: Pipeline, cluster: Cluster) -> int:
        """Return the K that minimises (K - 1)(L + c·b2) + 2h·(L + c·b1), with c = D/2K."""
        # In K - 1 rounds chunks go up and down concurrently, in about 2h only up or only down; b2 and b1 are the
        # seconds per byte of the busiest link then.
        if self.chunks is not None or groups.members == 1:
            return self.chunks or 1
        latency_s, both_ways_s, one_way_s = trees.loads(groups, cluster)
        if latency_s == 0:
            return _MAX_CHUNKS
        height = (trees.rounds(1) + 1) // 2
        best = sqrt(float(groups.bytes[0].sum()) / 2 * max(0.0, 2 * height * one_way_s - both_ways_s) / latency_s)
        return max(1, min(_MAX_CHUNKS, round(best)))

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time where every pair of ranks, one a node, has links of its own: each round is one chunk's time.

        (K + 2h - 1)(L + D/(2K·B)), h the height of the trees. On any fabric where a rank has one port, messages share
        it and this form does not hold.
        """
        if hops.nodes < demand.ranks:
            raise ContendedError(f"{self.name} has a closed form for one rank a node: simulate it instead")
        if demand.ranks == 1:
            return 0.0
        chunks = self.chunks or 1
        return _trees_of_members(demand.ranks).rounds(chunks) * hops.round_s(demand.buffer_bytes / 2 / chunks)


_MAX_FITTED_CHUNKS = 4096


@dataclass(frozen=True, slots=True)
class Chain(OverGroups):
    """Every rank passes chunks on to the next, in rank order from the root on: for large messages.

    Chunk c crosses the pair number i in round c + i, so that there are P - 2 + K rounds. All ranks together send
    (P - 1)·D bytes. Unless the number of ``chunks`` is given, it is the one that the closed form makes fastest.
    """

    minimums: ClassVar = {"channels": 1, "chunks": 1}
    # Chains that run side by side as rings do, each with its part of the buffer; None takes those of a mesh of NVLinks
    # that has all ranks, else one
    channels: int | None = None
    chunks: int | None = None  # Pieces that each channel's part is cut into
    order: Order = "ranks"  # By rank from the root on, or node by node and GPU by GPU

    def schedule(self, demand: Demand, cluster: Cluster) -> Schedule:
        """Return the schedule: in every channel its order of ranks, from the root on."""
        channels = self.channels or mesh_ring_count(cluster)
        groups = channel_groups(demand, cluster, channels, self.order)
        first = np.argmax(groups.ranks == demand.root, axis=1)
        from_root = (first[:, None] + np.arange(groups.members)) % groups.members
        groups = replace(groups, ranks=np.take_along_axis(groups.ranks, from_root, axis=1))
        fitted = replace(self.fitted(groups, cluster), channels=channels if channels > 1 else None)
        return schedule_of(demand, option_text(fitted), fitted.stage(demand.kind, groups))

    def fitted(self, groups: Groups, cluster: Cluster) -> "Chain":
        return replace(self, chunks=self._chunks(groups, cluster))

    def stage(self, kind: Kind, groups: Groups) -> Stage:
        return _line(kind, groups.members).stage(groups, self.chunks or 1)

    def _chunks(self, groups: Groups, cluster: Cluster) -> int:
        """Return the K that minimises (P - 2 + K)(L + b·D/K), at most one per position."""
        # L is the largest latency, b are the seconds per byte of the busiest link: the number of pairs that cross it
        # over its rate.
        most = int(min(_MAX_FITTED_CHUNKS, max(1, (groups.end[:, -1] - groups.begin[:, 0]).max())))
        if self.chunks is not None or groups.members <= 2:
            return self.chunks or 1
        latency_s, busy_s, _ = _line("broadcast", groups.members).loads(groups, cluster)
        if latency_s == 0:
            return most
        busy_s *= float(groups.bytes.sum(axis=1).max())
        # Convex in K: the best integer is next to the best real number.
        best = min(float(most), max(1.0, sqrt((groups.members - 2) * busy_s / latency_s)))
        return min(floor(best), ceil(best), key=lambda k: (groups.members - 2 + k) * (latency_s + busy_s / k))

    def closed_form_s(self, demand: Demand, hops: Hops) -> float:
        """Return the time without shared links, on routes of one latency and rate: (P - 2 + K)(L + D/(C·K·B))."""
        require_uniform_routes(self.name, hops)
        chunks = self.chunks or 1
        round_s = hops.round_s(demand.buffer_bytes / (self.channels or 1) / chunks)
        return _line("broadcast", demand.ranks).rounds(chunks) * round_s


def _line(kind: Kind, members: int) -> Pipeline:
    """Return the pairs of neighbours, from the first member to the last, or for a reduce back."""
    pair = np.arange(members - 1)
    reduces = kind == "reduce"
    sender = members - 1 - pair if reduces else pair
    receiver = sender - 1 if reduces else sender + 1
    return Pipeline(1, sender, receiver, np.zeros_like(pair), pair, np.full(len(pair), reduces))
