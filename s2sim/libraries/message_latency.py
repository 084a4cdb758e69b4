"""The overheads of each message by a library's constants: latencies, shares of the rate, and a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.collectives.schedules.overheads import MessageConstants, Overheads, Powers, overheads_of
from s2sim.collectives.schedules.round_latency import inside_node
from s2sim.collectives.schedules.schedule import Pattern
from s2sim.errors import S2SimError
from s2sim.libraries.constants import LINKS, SHARES, LibraryConstants, PathConstants, ProtocolConstants
from s2sim.topology.cluster import Cluster
from s2sim.topology.shape import TRANSPORTS, NodeSpec


@dataclass(frozen=True, slots=True)
class InterNodePath:
    """The constants of a hop between nodes: of a node's network (``transport``) and of the ``path`` to it."""

    transport: str
    path: str
    network: PathConstants
    to_network: PathConstants

    @property
    def latency_ps(self) -> int:
        """Picoseconds of both."""
        return self.network.latency_ps + self.to_network.latency_ps


def inter_node_path(constants: LibraryConstants, spec: NodeSpec) -> InterNodePath:
    """Return the constants of a node's network and of the path to it; `S2SimError` if there are none."""
    network, path, transport = dict(constants.networks), dict(constants.paths), transport_of(spec, constants.name)
    for what, name, table in (("network", transport, network), ("path", spec.path, path)):
        if name not in table:
            raise S2SimError(
                f"the constants of {constants.name} do not tell the {what} {name}: they have {', '.join(table)}"
            )
    return InterNodePath(transport, spec.path, network[transport], path[spec.path])


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
    protocol: ProtocolConstants,
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
    latency_ps, share = dict(protocol.inside_ps), dict(constants.shares)
    hops = [(f"protocol.{protocol.name}.{link}", latency_ps[link]) for link in LINKS]
    shares = [(f"share.{name}", share[name]) for name in SHARES]
    over_nvlink = cluster.over_nvlink(pattern.src, pattern.dst)
    hop_row = np.where(over_nvlink, LINKS.index("nvlink"), LINKS.index("pcie"))
    staged = np.array([not each.peer_to_peer for each in nodes.specs])[source] & ~over_nvlink
    share_row = np.where(staged, SHARES.index("host-memory") + _bidirectional_messages(pattern), hop_row)
    all_messages = np.zeros(pattern.messages, np.int64)
    protocol_share = select_constant("share", [(f"protocol.{protocol.name}.share", protocol.share)], all_messages)
    if inside.all():
        # All messages that a rank sends concurrently share one limit.
        counts, at_once = np.unique(np.bincount(pattern.src)[pattern.src], return_inverse=True)
        of_rank = [(f"protocol.{protocol.name}.limit", protocol.limit_Bps / count) for count in counts.tolist()]
        return overheads_of(
            [select_constant("hop", hops, hop_row)],
            [select_constant("share", shares, share_row), protocol_share],
            [select_constant("limit", of_rank, at_once)],
        )
    paths = [inter_node_path(constants, each) for each in nodes.specs]
    path_ps, path_share = (
        np.array([path.latency_ps for path in paths]),
        np.array([path.network.share for path in paths]),
    )
    slower = np.where(path_ps[source] >= path_ps[target], source, target)
    narrower = np.where(path_share[source] <= path_share[target], source, target)
    hop_row = np.where(inside, hop_row, len(hops))
    share_row = np.where(inside, share_row, len(shares) + narrower)
    hops.append((f"protocol.{protocol.name}.network", protocol.between_ps))
    shares += [(f"network.{path.transport}.share", path.network.share) for path in paths]
    # Messages inside nodes have the last row, which has no constant.
    nowhere = len(paths)
    latencies = [
        select_constant("hop", [*each, ("", 0)], np.where(inside, nowhere, slower))
        for each in zip(*(path_latencies(path, announced=announced) for path in paths), strict=True)
    ]
    most = [_inter_node_limit(protocol, each, path, channel) for each, path in zip(nodes.specs, paths, strict=True)]
    most_Bps = np.array([value for _, value in most])
    tighter = np.where(most_Bps[source] <= most_Bps[target], source, target)
    values = np.array([*most_Bps, protocol.limit_Bps])
    powers = (*(powers for powers, _ in most), ((f"protocol.{protocol.name}.limit", -1),))
    limit_row = np.where(inside, nowhere, tighter).astype(np.min_scalar_type(len(values)))
    limits = [MessageConstants("limit", powers, values, limit_row)]
    of_links = select_constant("share", shares, share_row)
    return overheads_of([select_constant("hop", hops, hop_row), *latencies], [of_links, protocol_share], limits)


def _inter_node_limit(
    protocol: ProtocolConstants, spec: NodeSpec, path: InterNodePath, channel: tuple[str, float]
) -> tuple[Powers, float]:
    """Return the constants and the value of the least limit between nodes at one end, in bytes/s on the network."""
    name, data_Bps = channel
    of_data = (f"protocol.{protocol.name}.share", 1), (f"network.{path.transport}.share", 1)
    limits: list[tuple[Powers, float]] = [
        (((f"protocol.{protocol.name}.limit", -1),), protocol.limit_Bps),
        (((f"protocol.{protocol.name}.network-limit", -1),), protocol.network_limit_Bps),
        (((f"network.{path.transport}.stream", -1),), path.network.stream_Bps),
        (((name, -1), *of_data), data_Bps / (protocol.share * path.network.share)),
    ]
    if spec.pcie is not None and spec.path != "switch":
        limits.append((((f"path.{spec.path}.share", -1),), spec.pcie.rate_Bps * path.to_network.share))
    return min(limits, key=lambda limit: limit[1])


def select_constant(kind: str, named: Sequence[tuple[str, float]], row: Ints, times: int = 1) -> MessageConstants:
    """Return the constant of each message: row ``row`` (int64, shape (m,)) of the ``named`` values, ``times`` times.

    ``kind`` is ``"share"``, ``"limit"``, or the kind of a latency; values that are no constants have no name.
    """
    power = -1 if kind in ("share", "limit") else 1
    powers = tuple(((name, power),) if name else () for name, _ in named)
    values = np.array([value for _, value in named], np.float64)
    return MessageConstants(kind, powers, values, row.astype(np.min_scalar_type(len(values))), times)


def path_latencies(path: InterNodePath, *, announced: bool) -> list[tuple[str, int]]:
    """Return the latencies of a network and of the path to it, by the names of their constants, no name for none."""
    rendezvous_ps = path.network.rendezvous_ps if announced else 0
    return [
        (f"network.{path.transport}.latency", path.network.latency_ps),
        (f"path.{path.path}.latency", path.to_network.latency_ps),
        (f"network.{path.transport}.rendezvous" if rendezvous_ps else "", rendezvous_ps),
    ]


def _bidirectional_messages(pattern: Pattern) -> Mask:
    return np.asarray(np.isin(pattern.src, pattern.dst) | np.isin(pattern.dst, pattern.src), np.bool_)
