"""Channels: concurrent parts of a collective, one through every network interface of a node.

In a mesh of NVLinks channels also use different links: see `s2sim.topology.nvlink_mesh`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.groups import Groups, cut, even_groups, group_of_all
from s2sim.topology.cluster import Cluster
from s2sim.topology.nvlink_mesh import RankOrder, path_orders, ring_orders

# MAXCHANNELS of NCCL up to v2.18 (src/include/devcomm.h); a rack may have more interfaces.
_MAX_LANES = 32


def channel_count(cluster: Cluster, requested: int | None) -> int:
    """Return the requested number of channels, or the number that uses all links.

    That is one per interface of a node if there are several nodes, at most the limit of NCCL, and in one mesh of
    NVLinks one per ring of `ring_orders`.
    """
    if requested:
        return requested
    if len(np.unique(cluster.node_of_rank)) > 1:
        return min(cluster.shape.lanes_per_node, _MAX_LANES)
    return mesh_ring_count(cluster)


def mesh_ring_count(cluster: Cluster) -> int:
    """Return the number of rings that use all links of one mesh of NVLinks with all ranks; 1 without a mesh."""
    return max(1, len(_mesh_rings(cluster)))


def channel_groups(demand: Demand, cluster: Cluster, channels: int) -> Groups:
    """Return a group per channel of all ranks, node by node, so that each channel enters a node at another GPU.

    The order in a node is rotated rank order, or one along the links of its mesh. Groups have even parts of a shared
    buffer, or of every rank's range; if their number is that of the rings in one mesh, the parts of these.
    """
    ranks = np.arange(cluster.workers)
    if rings := _mesh_rings(cluster):
        taken = [rings[channel % len(rings)] for channel in range(channels)]
        shares = np.array([share for _, share in taken]) if channels == len(rings) else None
        return groups_in_orders(demand, np.array([order for order, _ in taken], np.int64), shares)
    # Ranges of consecutive ranks of one node.
    starts = np.flatnonzero(np.concatenate([[True], np.diff(cluster.node_of_rank) != 0]))
    lengths = np.diff([*starts, cluster.workers])
    start, length = np.repeat(starts, lengths), np.repeat(lengths, lengths)
    # Interface i serves GPUs from ceil(i·gpus/interfaces) on: each channel enters through the first GPU of another one.
    channel = np.arange(channels)[:, None]
    orders = (start + (ranks - start - channel * length // -channels) % length).astype(np.int64)
    for first, lines in _mesh_paths(cluster, starts, lengths, channels):
        for number, order in enumerate(lines):
            if order is not None:
                orders[number, first : first + len(order)] = first + np.array(order)
    return groups_in_orders(demand, orders)


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
    if cluster.workers == 1 or len(np.unique(cluster.node_of_rank)) > 1:
        return ()
    lines = cluster.layout.dims.node_set.mesh_lines(cluster.gpu_of_rank)
    return ring_orders(lines) if lines is not None else ()


def _mesh_paths(
    cluster: Cluster, starts: Ints, lengths: Ints, channels: int
) -> Iterator[tuple[int, tuple[RankOrder | None, ...]]]:
    """Yield the first rank of each range in a mesh, and the order of the range in each channel."""
    nodes = cluster.layout.dims.node_set
    if not nodes.meshes.variants:
        return
    for first, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        gpus = cluster.gpu_of_rank[first : first + length]
        if length > 1 and (lines := nodes.mesh_lines(gpus)) is not None:
            entered = tuple(-(-channel * length // channels) % length for channel in range(channels))
            ports = np.unique(nodes.port_of_gpu[gpus], return_inverse=True)[1]
            yield first, path_orders(lines, entered, tuple(ports.tolist()))
