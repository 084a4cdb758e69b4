"""Channels and pipelines: concurrent parts of a collective, and chunks that follow each other along lines and trees.

A channel goes through each network interface of a node; in a mesh of NVLinks channels also use different links, see
`s2sim.topology.nvlink_mesh`.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.collectives.schedules.demand import Demand, cut
from s2sim.collectives.schedules.groups import Groups, even_groups, group_of_all, pattern_of_members
from s2sim.collectives.schedules.schedule import CombinedRound, LazySteps, Pieces, Round, Stage, Step, traffic_between
from s2sim.topology.cluster import Cluster
from s2sim.topology.nvlink_mesh import RankOrder, path_orders, ring_orders
from s2sim.units import PS_PER_S

# MAXCHANNELS of NCCL up to v2.18 (src/include/devcomm.h); a rack may have more interfaces.
_MAX_LANES = 32


def channel_count(cluster: Cluster, requested: int | None) -> int:
    """Return the requested number of channels, or the number that uses all links.

    That is one per interface and rank of a node if there are several nodes, at most the limit of NCCL, and in one mesh
    of NVLinks one per ring of `ring_orders`.
    """
    if requested:
        return requested
    if cluster.nodes_used > 1:
        return min(cluster.shape.lanes_per_node, cluster.least_ranks_per_node, _MAX_LANES)
    return mesh_ring_count(cluster)


def mesh_ring_count(cluster: Cluster) -> int:
    """Return the number of rings that use all links of one mesh of NVLinks with all ranks; 1 without a mesh."""
    return max(1, len(_mesh_rings(cluster)))


Order: TypeAlias = Literal["ranks", "nodes"]


def channel_groups(demand: Demand, cluster: Cluster, channels: int, order: Order = "ranks") -> Groups:
    """Return a group per channel of all ranks, so that each channel enters a node at another GPU.

    Ranks are in their order, or with ``order`` of ``"nodes"`` node by node and GPU by GPU wherever they are placed. In
    a node they are rotated, or along the links of its mesh. Groups have even parts of a shared buffer, or of every
    rank's range; if their number is that of the rings in one mesh, the parts of these.
    """
    return groups_in_orders(demand, *_channel_orders(cluster, channels, order))


def ranks_by_node(cluster: Cluster) -> Ints:
    """Return the ranks node by node, nodes in the order of their first ranks, and in a node in that of its GPUs."""
    begin, node = np.unique(cluster.node_of_rank, return_index=True, return_inverse=True)[1:]
    return np.lexsort((cluster.gpu_of_rank, begin[node]))


# Of the sizes of a table, one after another.
@lru_cache(maxsize=2)
def _channel_orders(cluster: Cluster, channels: int, order: Order) -> tuple[Ints, Ints | None]:
    """Return the order of ranks in each channel, int64 of shape (channels, ranks), and the channels' shares."""
    ranks = np.arange(cluster.workers)
    if order == "nodes" and ((by_node := ranks_by_node(cluster)) != ranks).any():
        orders, shares = _channel_orders(cluster.within(by_node.tolist()), channels, order)
        return by_node[orders], shares
    if rings := _mesh_rings(cluster):
        taken = [rings[channel % len(rings)] for channel in range(channels)]
        shares = np.array([share for _, share in taken]) if channels == len(rings) else None
        return np.array([order for order, _ in taken], np.int64), shares
    # Ranges of consecutive ranks of one node.
    starts = np.flatnonzero(np.concatenate([[True], np.diff(cluster.node_of_rank) != 0]))
    lengths = np.diff([*starts, cluster.workers])
    start, length = np.repeat(starts, lengths), np.repeat(lengths, lengths)
    # Interface i serves GPUs from ceil(i·gpus/interfaces) on: each channel enters through the first GPU of another one.
    turn = np.arange(channels)[:, None] * length // -channels
    orders = (start + (ranks - start - turn) % length).astype(np.int64)
    nodes = cluster.layout.node_set
    for first, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        gpus = cluster.gpu_of_rank[first : first + length]
        if nodes.meshes.variants and length > 1 and (lines := nodes.mesh_lines(gpus)) is not None:
            entered = tuple(-(-channel * length // channels) % length for channel in range(channels))
            ports = np.unique(nodes.port_of_gpu[gpus], return_inverse=True)[1]
            for number, path in enumerate(path_orders(lines, entered, tuple(ports.tolist()))):
                if path is not None:
                    orders[number, first : first + length] = first + np.array(path)
    return orders, None


def groups_in_orders(demand: Demand, orders: Ints, shares: Ints | None = None) -> Groups:
    """Return a group per channel, of all ranks in its order, int64 of shape (channels, ranks).

    Parts of the data are proportional to ``shares``, int64 of shape (channels,), or equal.
    """
    shares = np.ones(len(orders), np.int64) if shares is None else shares
    ends = np.cumsum(shares)
    begins, parts = ends - shares, int(ends[-1])
    if demand.shared:
        begin, end = begins * demand.buffer_elements // parts, ends * demand.buffer_elements // parts
        return even_groups(orders, begin, end, demand.buffer_bytes / parts * shares.astype(np.float64))
    own = group_of_all(demand)
    first, last = own.begin[0][orders], own.end[0][orders]
    begin, _ = cut(first, last, begins[:, None], parts)
    end, _ = cut(first, last, ends[:, None], parts)
    return Groups(orders, begin, end, own.bytes[0][orders] / parts * shares[:, None])


def _mesh_rings(cluster: Cluster) -> tuple[tuple[RankOrder, int], ...]:
    """Return the rings of a mesh through all ranks; none without a mesh, or on several nodes."""
    if cluster.workers == 1 or cluster.nodes_used > 1:
        return ()
    lines = cluster.layout.node_set.mesh_lines(cluster.gpu_of_rank)
    return ring_orders(lines) if lines is not None else ()


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """Edges of lines or trees over the members of a group, int64 and bool arrays of shape (edges,).

    Chunk c crosses an edge in round c + ``delay``. Each line or tree has an even part of the group's buffer.
    """

    trees: int
    sender: Ints
    receiver: Ints
    tree: Ints  # Line or tree of each edge, from 0 on
    delay: Ints
    adds: Mask  # Whether the receiver adds the chunk to its own

    def rounds(self, chunks: int) -> int:
        """Return the number of rounds."""
        return chunks + int(self.delay.max()) if len(self.delay) else 0

    def stage(self, groups: Groups, chunks: int) -> Stage:
        """Return the rounds; consecutive rounds with the same active edges are one step, created on access."""
        rounds, count, edges = self.rounds(chunks), len(groups.ranks), len(self.delay)
        first, last = cut(groups.begin[:, :1], groups.end[:, -1:], np.arange(self.trees), self.trees)
        chunk_bytes = groups.bytes.sum(axis=1) / self.trees / chunks
        begins = np.unique(self.delay)
        starts: list[int] = np.union1d(begins, begins + chunks)[:-1].tolist()
        lengths = np.diff([*starts, rounds]).tolist()
        pattern = pattern_of_members(groups.ranks, self.sender, self.receiver)
        group = np.arange(count)[:, None]

        def active(step: int) -> Ints:
            return np.flatnonzero((self.delay <= starts[step]) & (self.delay > starts[step] - chunks))

        def make(step: int) -> Step:
            edge = active(step)
            part = pattern.part((group * edges + edge).reshape(-1))
            return Step(Round(part, np.repeat(chunk_bytes, len(edge))), lengths[step])

        def pieces(step: int, time: int) -> Pieces:
            edge = active(step)
            chunk = starts[step] + time - self.delay[edge]
            start, stop = cut(first[:, self.tree[edge]], last[:, self.tree[edge]], chunk, chunks)
            return Pieces.one_each(start, stop, np.tile(self.adds[edge], count))

        def volume(ranks: int) -> Ints:
            return traffic_between(ranks, pattern.src, pattern.dst, (last - first)[:, self.tree])

        whole = None
        if edges:
            sent, line = Round(pattern, np.repeat(chunk_bytes, edges)), self.trees * group + self.tree
            whole = CombinedRound(sent, np.tile(self.delay, count), chunks, line.reshape(-1))
        return Stage(LazySteps(len(starts), make), pieces, volume, whole=whole)

    def loads(self, groups: Groups, cluster: Cluster) -> tuple[float, float, float]:
        """Return the largest latency in seconds, and seconds per byte on the busiest link: of all edges, of one way.

        One way are the edges whose receivers add, or the others.
        """
        pattern = pattern_of_members(groups.ranks, self.sender, self.receiver)
        routes = cluster.routes(pattern.src, pattern.dst)
        adds = np.repeat(np.tile(self.adds, len(groups.ranks)), np.diff(routes.offsets))

        def busiest(crossings: Mask) -> float:
            load = np.bincount(routes.links[crossings], routes.weights[crossings], len(cluster.fabric))
            return float((load / cluster.fabric.rate_Bps).max())

        latency_s = float(routes.latency_ps.max()) / PS_PER_S
        return latency_s, busiest(adds | ~adds), max(busiest(adds), busiest(~adds))
