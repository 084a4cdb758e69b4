"""What each hop of a message takes by a library's constants: latencies that add up, shares of the rate, and a limit."""

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
from s2sim.topology.node_spec import TRANSPORTS, NodeSpec


@dataclass(frozen=True, slots=True)
class InterNodePath:
    """What a hop between nodes takes by the network of a node (``transport``) and the way to it (``path``)."""

    transport: str
    path: str
    network: PathConstants
    to_network: PathConstants

    @property
    def latency_ps(self) -> int:
        """Picoseconds of both."""
        return self.network.latency_ps + self.to_network.latency_ps


def inter_node_path(constants: LibraryConstants, spec: NodeSpec) -> InterNodePath:
    """Return what the network of a node and the way to it make of a hop; an error where the constants do not tell."""
    network, path, transport = dict(constants.networks), dict(constants.paths), transport_of(spec, constants.name)
    for what, name, known in (("network", transport, network), ("path", spec.path, path)):
        if name not in known:
            raise S2SimError(
                f"the constants of {constants.name} do not tell the {what} {name}: they have {', '.join(known)}"
            )
    return InterNodePath(transport, spec.path, network[transport], path[spec.path])


def transport_of(spec: NodeSpec, library: str) -> str:
    """Return the transport of a node's network; an error where its topology does not say it."""
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
    """Return what hops and protocol add to each message of a pattern through no switch.

    Inside a node that is by whether a message goes over NVLink, over PCIe or through host memory, between nodes by the
    slower and the narrower of both ends, where ``channel`` is a constant that limits the data of a message, and its
    bytes per second. Messages that are ``announced`` wait for that.
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
    every = np.zeros(pattern.messages, np.int64)
    protocol_share = select_constant("share", [(f"protocol.{protocol.name}.share", protocol.share)], every)
    limits = [select_constant("limit", [(f"protocol.{protocol.name}.limit", protocol.limit_Bps)], every)]
    if inside.all():
        # All that a rank sends at once, over however many channels, has one limit.
        counts, at_once = np.unique(np.bincount(pattern.src)[pattern.src], return_inverse=True)
        of_rank = [(f"protocol.{protocol.name}.limit", protocol.limit_Bps / count) for count in counts.tolist()]
        return overheads_of(
            [select_constant("hop", hops, hop_row)],
            [select_constant("share", shares, share_row), protocol_share],
            [select_constant("limit", of_rank, at_once)],
        )
    ways = [inter_node_path(constants, each) for each in nodes.specs]
    way_ps, way_share = np.array([way.latency_ps for way in ways]), np.array([way.network.share for way in ways])
    slower = np.where(way_ps[source] >= way_ps[target], source, target)
    narrower = np.where(way_share[source] <= way_share[target], source, target)
    hop_row = np.where(inside, hop_row, len(hops))
    share_row = np.where(inside, share_row, len(shares) + narrower)
    hops.append((f"protocol.{protocol.name}.network", protocol.between_ps))
    shares += [(f"network.{way.transport}.share", way.network.share) for way in ways]
    # Messages that stay inside have the last row, which is of no constant.
    nowhere = len(ways)
    latencies = [
        select_constant("hop", [*each, ("", 0)], np.where(inside, nowhere, slower))
        for each in zip(*(path_latencies(way, announced=announced) for way in ways), strict=True)
    ]
    most = [_inter_node_limit(protocol, each, way, channel) for each, way in zip(nodes.specs, ways, strict=True)]
    most_Bps = np.array([value for _, value in most])
    tighter = np.where(most_Bps[source] <= most_Bps[target], source, target)
    values = np.array([*most_Bps, protocol.limit_Bps])
    powers = (*(powers for powers, _ in most), ((f"protocol.{protocol.name}.limit", -1),))
    limits = [MessageConstants("limit", powers, values, np.where(inside, nowhere, tighter))]
    of_links = select_constant("share", shares, share_row)
    return overheads_of([select_constant("hop", hops, hop_row), *latencies], [of_links, protocol_share], limits)


def _inter_node_limit(
    protocol: ProtocolConstants, spec: NodeSpec, way: InterNodePath, channel: tuple[str, float]
) -> tuple[Powers, float]:
    """Return what limits a message between nodes at one end, in bytes per second on the network, and by what constants.

    That is the protocol, a stream of the network, the way to the network past a host, where that goes over PCIe, or the
    channel, which is told of data.
    """
    name, data_Bps = channel
    of_data = (f"protocol.{protocol.name}.share", 1), (f"network.{way.transport}.share", 1)
    found: list[tuple[Powers, float]] = [
        (((f"protocol.{protocol.name}.limit", -1),), protocol.limit_Bps),
        (((f"protocol.{protocol.name}.network-limit", -1),), protocol.network_limit_Bps),
        (((f"network.{way.transport}.stream", -1),), way.network.stream_Bps),
        (((name, -1), *of_data), data_Bps / (protocol.share * way.network.share)),
    ]
    if spec.pcie is not None and spec.path != "switch":
        found.append((((f"path.{spec.path}.share", -1),), spec.pcie.rate_Bps * way.to_network.share))
    return min(found, key=lambda each: each[1])


def select_constant(kind: str, named: Sequence[tuple[str, float]], row: Ints, times: int = 1) -> MessageConstants:
    """Return what each message has of some constants, which latencies are multiples of and shares and limits divide by.

    Parameters
    ----------
    kind : str
        ``"share"``, ``"limit"``, or of what a latency is.
    named : sequence of (str, float)
        Constants and their values, no name for what is none.
    row : int64 array, shape (m,)
        Which of them each message has.
    times : int
        How often.
    """
    power = -1 if kind in ("share", "limit") else 1
    powers = tuple(((name, power),) if name else () for name, _ in named)
    return MessageConstants(kind, powers, np.array([value for _, value in named], np.float64), row, times)


def path_latencies(way: InterNodePath, *, announced: bool) -> list[tuple[str, int]]:
    """Return the latencies of a network and of the way to it, by the names of their constants, no name for none."""
    rendezvous_ps = way.network.rendezvous_ps if announced else 0
    return [
        (f"network.{way.transport}.latency", way.network.latency_ps),
        (f"path.{way.path}.latency", way.to_network.latency_ps),
        (f"network.{way.transport}.rendezvous" if rendezvous_ps else "", rendezvous_ps),
    ]


def _bidirectional_messages(pattern: Pattern) -> Mask:
    """Return which messages have an end that sends and receives, bool of shape (m,)."""
    both: Mask = np.isin(pattern.src, pattern.dst) | np.isin(pattern.dst, pattern.src)
    return both
