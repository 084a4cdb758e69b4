"""NCCL's rules for chunks, and the overheads of a reduction in switches.

Sources: `calcCollChunking` in src/enqueue.cc, v2.27, and the sizes of buffers in src/include/device.h.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.schedules.blocks import blocks_of
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.overheads import MessageConstants, Overheads, Powers, overheads_of
from s2sim.collectives.schedules.schedule import Round
from s2sim.libraries.constants import LibraryConstants
from s2sim.libraries.message_latency import inter_node_path, path_latencies, path_latency_ps, select_constant
from s2sim.topology.cluster import Cluster
from s2sim.units import PS_PER_S

MAX_PIECES = 256
"""With more chunks the fill of a pipeline hardly changes, and the simulation is slower."""

# Bytes of data in a step of a channel's buffers.
_LL, _LL128, _SIMPLE = 32 << 10, 576_000, 512 << 10
# Each rule halves chunks down to a least size while the buffer does not fill the tree's hops the given number of times.
_SIMPLE_RULES = ((8, 128 << 10), (4, 64 << 10), (1, 32 << 10))
_LL128_RULES = ((64, 128 << 10), (16, 32 << 10))


def tree_pieces(protocol: str, size_bytes: float, channels: int, nodes: int, ranks_a_node: int) -> int:
    """Return the number of chunks of each tree's part of an all-reduce.

    ``protocol`` is ``LL``, ``LL128``, or another, which is plain data; ``channels`` trees share ``size_bytes``.

    >>> [tree_pieces(protocol, 16 << 20, 16, 2, 8) for protocol in ("LL", "LL128", "Simple")]
    [32, 15, 16]
    """
    hops = (nodes - 1).bit_length()
    rules: tuple[tuple[int, int], ...] = ()
    chunk, filled = _LL, 0.0
    if protocol == "LL128":
        chunk, rules, filled = _LL128, _LL128_RULES, (1 + hops + 0.1 * ranks_a_node) / ranks_a_node
    elif protocol != "LL":
        chunk, rules, filled = _SIMPLE, _SIMPLE_RULES, ranks_a_node - 1 + hops
    for times, least in rules:
        while size_bytes / (channels * chunk) < filled * times and chunk > least:
            chunk //= 2
    return max(1, min(MAX_PIECES, ceil(size_bytes / (channels * chunk))))


# Largest chunk, and rules that reduce it if a buffer is smaller than the given multiple of the bytes in flight.
_ONE_NODE_RULES = (131072, ((64, 65536), (8, 32768), (2, 16384)))
_MULTI_NODE_RULES = (131072, ((4, 65536), (1, 32768)))


def nvls_in_flight_bytes(size_bytes: float, lanes: int, *, over_nodes: bool) -> float:
    """Return the bytes of a buffer in flight on ``lanes`` = channels times heads (GPUs of a node that read sums).

    With ``over_nodes`` for NVLS trees, which have larger chunks for the same buffer.

    >>> nvls_in_flight_bytes(64 << 20, 128, over_nodes=True) / 2**20
    16.0
    """
    chunk, rules = _MULTI_NODE_RULES if over_nodes else _ONE_NODE_RULES
    for times, smaller in rules:
        if size_bytes < times * lanes * chunk:
            chunk = smaller
    return min(size_bytes, float(lanes * chunk))


def most_peers(demand: Demand, node_of_rank: Ints) -> tuple[int, int]:
    """Return the largest number of peers of a rank in its own node, and in other nodes.

    ``demand`` is an all-to-all or sends to the next rank; ``node_of_rank`` is int64 of shape (ranks,).

    >>> from s2sim.collectives.schedules.demand import Demand
    >>> most_peers(Demand("all_to_all", (6,) * 6, 4), np.array([0, 0, 0, 0, 1, 1]))
    (3, 4)
    """
    if demand.kind == "send_recv":
        sends = demand.sizes_bytes > 0
        same = node_of_rank == np.roll(node_of_rank, -1)
        return int((sends & same).any()), int((sends & ~same).any())
    if not demand.blocks or demand.blocks.rows.all():
        # Each rank sends to all.
        in_node = np.bincount(node_of_rank)
        return int(in_node.max()) - 1, demand.ranks - int(in_node[in_node > 0].min())
    sends = blocks_of(demand).sizes() > 0
    np.fill_diagonal(sends, val=False)
    same = node_of_rank[:, None] == node_of_rank
    inside, between = (
        max(int(chosen.sum(axis=axis).max()) for axis in (0, 1)) for chosen in (sends & same, sends & ~same)
    )
    return inside, between


def switch_reduction_overheads(
    constants: LibraryConstants, protocol: str, sent: Round, cluster: Cluster, min_channels: int
) -> Overheads:
    """Return the overheads of a reduction in switches, and of the hops of the trees between nodes.

    Each stage of a chunk (constants in a node; legs and switches over nodes) waits for the bytes in flight.
    """
    legs, fabric = sent.pattern.legs, cluster.fabric
    once = np.zeros(1, np.int64)
    latencies = [select_constant("in-network", constants.named("in-network.latency"), once)]
    stages, limit_Bps = constants["in-network.stages"], np.inf
    powers: Powers = (("in-network.stages", 1),)
    # The constant of the share of the rate that switches reach, if there is one.
    name, generation = "", constants.generation_of(cluster.shape.gpu)
    if generation in constants.tables["in-network"]:
        several = len(np.unique(cluster.host_of_rank)) > 1
        where = "-over-nodes" if legs is not None else "-over-hosts" if several else ""
        name = f"in-network.{generation}.share{where}"
    share = constants[name] if name else 1.0
    own = select_constant("share", [(name, share)], once)
    limited_by: Powers = ()
    if legs is None:
        routes = cluster.reduction_tree()
    else:
        ways = [inter_node_path(constants, spec) for spec in cluster.dims.node_set.specs]
        slowest = max(ways, key=lambda way: path_latency_ps(constants, way))
        between = constants.named(f"protocol.{protocol}.network")
        between += path_latencies(constants, slowest, announced=True)
        latencies += [select_constant("hop", [each], once, legs.depth) for each in between if each[1]]
        stages, powers = legs.depth + 1, ()
        passed = cluster.routes(legs.src, legs.dst)
        load = np.bincount(passed.links, passed.weights, len(fabric)) * legs.share
        routes = cluster.reduction_over_nodes(passed, legs.share, legs.depth)
        narrowest = min((f"{network}.share" for network, _ in ways), key=constants.__getitem__)
        limit_Bps = float((fabric.rate_Bps[load > 0] / load[load > 0]).min()) * constants[narrowest]
        limited_by = ((narrowest, -1),)
    lanes = max(int(constants["in-network.channels"]), min_channels) * int(np.bincount(cluster.node_of_rank).max())
    size_bytes = float(sent.bytes[0])
    own_Bps = float(routes.narrowest(fabric.rate_Bps)[0]) * share
    flight_bytes = nvls_in_flight_bytes(size_bytes, lanes, over_nodes=legs is not None)
    fill_ps = round(stages * flight_bytes / min(limit_Bps, own_Bps) * PS_PER_S)
    powers += limited_by if limit_Bps < own_Bps else own.powers[0]
    latencies.append(MessageConstants("fill", (powers,), np.array([float(fill_ps)]), once))
    # A limit is in bytes on the network, of which only a share is data.
    limited_by += tuple((each, 1) for each, _ in own.powers[0])
    limit = MessageConstants("limit", (limited_by,), np.array([limit_Bps / share]), once)
    return overheads_of(latencies, [own], [limit])
