"""The overheads of each message by a library's constants: latencies, shares of the rate, and a limit."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.schedules.overheads import MessageConstants, Overheads, Powers, overheads_of
from s2sim.collectives.schedules.round_latency import inside_node
from s2sim.collectives.schedules.schedule import Pattern
from s2sim.errors import S2SimError
from s2sim.libraries.constants import LINKS, SHARES, LibraryConstants
from s2sim.topology.cluster import Cluster
from s2sim.topology.shape import TRANSPORTS, NodeSpec


def inter_node_path(constants: LibraryConstants, spec: NodeSpec) -> tuple[str, str]:
    """Return the tables of a node's network and of the path to it; `S2SimError` if there are none."""
    tables = []
    for section, name in (("network", transport_of(spec, constants.name)), ("path", spec.path)):
        known = sorted(constants.tables[section])
        if name not in known:
            raise S2SimError(
                f"the constants of {constants.name} do not tell the {section} {name}: they have {', '.join(known)}"
            )
        tables.append(f"{section}.{name}")
    return tables[0], tables[1]


def path_latency_ps(constants: LibraryConstants, path: tuple[str, str]) -> float:
    """Return the picoseconds of a network and of the path to it."""
    return sum(constants[f"{table}.latency"] for table in path)


def transport_of(spec: NodeSpec, library: str) -> str:
    """Return the transport of a node's network; `S2SimError` if its topology does not state it."""
    if spec.transport is None:
        raise S2SimError(
            f"what {library} adds depends on the network, and the topology does not say which: where its latencies are "
            f"those of the hardware alone, add nic.transport, one of {', '.join(TRANSPORTS)}"
        )
    return spec.transport


def message_overheads(
    constants: LibraryConstants,
    protocol: str,
    pattern: Pattern,
    cluster: Cluster,
    channel: tuple[str, float] = ("", inf),
    *,
    announced: bool = False,
) -> Overheads:
    """Return the overheads of hops and protocol for each message of a pattern without switch reduction.

    Inside a node they depend on the link (NVLink, PCIe or host memory), between nodes on the slower and the narrower of
    both ends, where ``channel`` is a constant that limits the data of a message, with its bytes per second. With
    ``announced``, messages wait for a rendezvous.
    """
    nodes = cluster.dims.node_set
    spec = nodes.spec[cluster.node_of_rank]
    source, target = spec[pattern.src], spec[pattern.dst]
    inside = inside_node(cluster, pattern)
    limit, limit_Bps = f"protocol.{protocol}.limit", constants[f"protocol.{protocol}.limit"]
    hops = constants.named(*(f"protocol.{protocol}.{link}" for link in LINKS))
    shares = constants.named(*(f"share.{name}" for name in SHARES))
    over_nvlink = cluster.over_nvlink(pattern.src, pattern.dst)
    hop_row = np.where(over_nvlink, LINKS.index("nvlink"), LINKS.index("pcie"))
    staged = np.array([not each.peer_to_peer for each in nodes.specs])[source] & ~over_nvlink
    both_ways = np.isin(pattern.src, pattern.dst) | np.isin(pattern.dst, pattern.src)
    share_row = np.where(staged, SHARES.index("host-memory") + both_ways, hop_row)
    all_messages = np.zeros(pattern.messages, np.int64)
    protocol_share = select_constant("share", constants.named(f"protocol.{protocol}.share"), all_messages)
    if inside.all():
        # All messages that a rank sends concurrently share one limit.
        counts, at_once = np.unique(np.bincount(pattern.src)[pattern.src], return_inverse=True)
        of_rank = [(limit, limit_Bps / count) for count in counts.tolist()]
        return overheads_of(
            [select_constant("hop", hops, hop_row)],
            [select_constant("share", shares, share_row), protocol_share],
            [select_constant("limit", of_rank, at_once)],
        )
    paths = [inter_node_path(constants, each) for each in nodes.specs]
    path_ps = np.array([path_latency_ps(constants, path) for path in paths])
    path_shares = constants.named(*(f"{network}.share" for network, _ in paths))
    path_share = np.array([value for _, value in path_shares])
    slower = np.where(path_ps[source] >= path_ps[target], source, target)
    narrower = np.where(path_share[source] <= path_share[target], source, target)
    hop_row = np.where(inside, hop_row, len(hops))
    share_row = np.where(inside, share_row, len(shares) + narrower)
    hops += constants.named(f"protocol.{protocol}.network")
    shares += path_shares
    # Messages inside nodes have the last row, which has no constant.
    nowhere = len(paths)
    latencies = [
        select_constant("hop", [*each, ("", 0)], np.where(inside, nowhere, slower))
        for each in zip(*(path_latencies(constants, path, announced=announced) for path in paths), strict=True)
    ]
    most = [
        _inter_node_limit(constants, protocol, each, path, channel)
        for each, path in zip(nodes.specs, paths, strict=True)
    ]
    most_Bps = np.array([value for _, value in most])
    tighter = np.where(most_Bps[source] <= most_Bps[target], source, target)
    values = np.array([*most_Bps, limit_Bps])
    powers = (*(powers for powers, _ in most), ((limit, -1),))
    limit_row = np.where(inside, nowhere, tighter).astype(np.min_scalar_type(len(values)))
    limits = [MessageConstants("limit", powers, values, limit_row)]
    of_links = select_constant("share", shares, share_row)
    return overheads_of([select_constant("hop", hops, hop_row), *latencies], [of_links, protocol_share], limits)


def _inter_node_limit(
    constants: LibraryConstants, protocol: str, spec: NodeSpec, path: tuple[str, str], channel: tuple[str, float]
) -> tuple[Powers, float]:
    """Return the constants and the value of the least limit between nodes at one end, in bytes/s on the network."""
    name, data_Bps = channel
    network, to_network = path
    shares = f"protocol.{protocol}.share", f"{network}.share"
    own = constants.named(f"protocol.{protocol}.limit", f"protocol.{protocol}.network-limit", f"{network}.stream")
    limits: list[tuple[Powers, float]] = [(((field, -1),), limit_Bps) for field, limit_Bps in own]
    of_channel_Bps = data_Bps / (constants[shares[0]] * constants[shares[1]])
    limits.append((((name, -1), *((share, 1) for share in shares)), of_channel_Bps))
    if spec.pcie is not None and spec.path != "switch":
        limits.append((((f"{to_network}.share", -1),), spec.pcie.rate_Bps * constants[f"{to_network}.share"]))
    return min(limits, key=lambda limit: limit[1])


def select_constant(kind: str, named: Sequence[tuple[str, float]], row: Ints, times: int = 1) -> MessageConstants:
    """Return the constant of each message: row ``row`` (int64, shape (m,)) of the ``named`` values, ``times`` times.

    ``kind`` is ``"share"``, ``"limit"``, or the kind of a latency; values that are no constants have no name.
    """
    power = -1 if kind in ("share", "limit") else 1
    powers = tuple(((name, power),) if name else () for name, _ in named)
    values = np.array([value for _, value in named], np.float64)
    return MessageConstants(kind, powers, values, row.astype(np.min_scalar_type(len(values))), times)


def path_latencies(constants: LibraryConstants, path: tuple[str, str], *, announced: bool) -> list[tuple[str, float]]:
    """Return the latencies of a network and of the path to it, by the names of their constants, no name for none."""
    network, to_network = path
    rendezvous = f"{network}.rendezvous" if announced and constants[f"{network}.rendezvous"] else ""
    return constants.named(f"{network}.latency", f"{to_network}.latency", rendezvous)
