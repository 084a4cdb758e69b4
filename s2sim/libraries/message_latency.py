"""The overheads of each message by a library's constants: latencies, shares of the rate, and a limit.

For NCCL also its rules for chunks, and the overheads of a reduction in switches: `calcCollChunking` in src/enqueue.cc,
v2.27, and the sizes of buffers in src/include/device.h.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, inf

import numpy as np

from s2sim.arrays import Ints
from s2sim.collectives.schedules.demand import Blocks, Demand
from s2sim.collectives.schedules.overheads import MessageConstants, Overheads, Powers, overheads_of
from s2sim.collectives.schedules.round_latency import inside_node
from s2sim.collectives.schedules.schedule import Pattern, Round, Schedule
from s2sim.collectives.timing.library_profile import LibraryProfile
from s2sim.errors import S2SimError
from s2sim.libraries.constants import LINKS, SHARES, ConstantOverrides, LibraryConstants, load_constants
from s2sim.topology.cluster import Cluster
from s2sim.topology.quantity import Quantity
from s2sim.topology.shape import TRANSPORTS, ClusterShape, NodeSpec
from s2sim.units import PS_PER_S


@dataclass(frozen=True, slots=True)
class ConstantsProfile(LibraryProfile):
    """A library by its constants: those of a file of ``libraries/``, of which ``own`` replace some."""

    library: str
    own: ConstantOverrides = ()

    @property
    def _constants(self) -> LibraryConstants:
        return load_constants(self.library, self.own)

    @property
    def used_quantities(self) -> tuple[Quantity, ...]:
        """All constants of the library."""
        return self._constants.quantities

    def check_network(self, spec: NodeSpec) -> None:
        """Raise `S2SimError` if the constants do not tell a node's network."""

    def unmodelled_reason(self, shape: ClusterShape) -> str | None:
        """Return the reason why networks of a shape have no constants, or None."""
        try:
            for spec in shape.nodes:
                self.check_network(spec)
        except S2SimError as error:
            return str(error)
        return None

    def assumed(self, shape: ClusterShape) -> str:
        """Return the networks as text."""
        return f"with its constants for {' and '.join(dict.fromkeys(str(spec.transport) for spec in shape.nodes))}"


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


@dataclass(frozen=True, slots=True)
class Sending:
    """How the messages of a pattern are sent between nodes."""

    announced: bool = False  # Whether they wait for a rendezvous
    use: float = 1.0  # Share of the channels that have data
    # The host posts messages one after another. In rings, which infinity stands for, a hop inside a node takes at least
    # as long as that, since each step has a post; in chains each chunk of so many bytes does; 0 is neither.
    chunk_bytes: float = 0.0
    to_children: bool = False  # Whether nodes have two children in a tree
    ahead: bool = False  # Whether a rank sends on without waiting for what the protocol adds to a hop


def message_overheads(
    constants: LibraryConstants,
    protocol: str,
    pattern: Pattern,
    cluster: Cluster,
    channel: tuple[str, float] = ("", inf),
    sending: Sending = Sending(),
) -> Overheads:
    """Return the overheads of hops and protocol for each message of a pattern without switch reduction.

    Inside a node they depend on the link (NVLink, PCIe or host memory), between nodes on the slower and the narrower of
    both ends, where ``channel`` is a constant that limits the data of a message, with its bytes per second.
    """
    nodes = cluster.layout.node_set
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
    protocol_share = select_constant("share", constants.named(f"protocol.{protocol}.share"), np.zeros_like(pattern.src))
    if inside.all():
        # All messages that a rank sends concurrently share one limit, which on one node is one of data.
        if channel[1] < inf and cluster.nodes_used == 1:
            limit, limit_Bps = channel[0], channel[1] / constants[f"protocol.{protocol}.share"]
        counts, at_once = np.unique(np.bincount(pattern.src)[pattern.src], return_inverse=True)
        of_rank = [(limit, limit_Bps / count) for count in counts.tolist()]
        return overheads_of(
            [select_constant("hop", hops, hop_row)],
            [select_constant("share", shares, share_row), protocol_share],
            [select_constant("limit", of_rank, at_once)],
        )
    if sending.chunk_bytes == inf:
        (post,) = constants.named(f"protocol.{protocol}.posting")
        hops = [max(hop, post, key=lambda named: named[1]) for hop in hops]
    paths = [inter_node_path(constants, each) for each in nodes.specs]
    path_ps = np.array([path_latency_ps(constants, path) for path in paths])
    path_shares = constants.named(*(_share_field(constants, network, sending) for network, _ in paths))
    path_share = np.array([value for _, value in path_shares])
    slower = np.where(path_ps[source] >= path_ps[target], source, target)
    narrower = np.where(path_share[source] <= path_share[target], source, target)
    hop_row = np.where(inside, hop_row, len(hops))
    share_row = np.where(inside, share_row, len(shares) + narrower)
    hops += constants.named("" if sending.ahead else f"protocol.{protocol}.network")
    shares += path_shares
    # Messages inside nodes have the last row, which has no constant.
    nowhere = len(paths)
    latencies = [
        select_constant("hop", [*each, ("", 0)], np.where(inside, nowhere, slower))
        for each in zip(*(path_latencies(constants, path, announced=sending.announced) for path in paths), strict=True)
    ]
    counts, at_once = np.unique(_messages_an_interface(cluster, pattern.src, pattern.dst), return_inverse=True)
    each_limit = partial(_inter_node_limit, constants, protocol, channel, sending)
    most = [each_limit(spec, count) for count in counts.tolist() for spec in nodes.specs]
    values = np.array([*(value for _, value in most), limit_Bps])
    source, target = (at_once * nowhere + side for side in (source, target))
    tighter = np.where(values[source] <= values[target], source, target)
    powers = (*(powers for powers, _ in most), ((limit, -1),))
    limit_row = np.where(inside, len(most), tighter).astype(np.min_scalar_type(len(values)))
    limits = [MessageConstants("limit", powers, values, limit_row)]
    of_links = select_constant("share", shares, share_row)
    return overheads_of([select_constant("hop", hops, hop_row), *latencies], [of_links, protocol_share], limits)


def _messages_an_interface(cluster: Cluster, src: Ints, dst: Ints) -> Ints:
    """Return the messages between nodes in the same direction over the busier interface of each, at least 1."""
    between = cluster.node_of_rank[src] != cluster.node_of_rank[dst]
    ports = (cluster.layout.node_set.port_of_gpu[cluster.gpu_of_rank[side]] for side in (src, dst))
    counts = [np.bincount(port[between], minlength=port.max() + 1)[port] for port in ports]
    return np.maximum(*counts).clip(1)


def _share_field(constants: LibraryConstants, network: str, sending: Sending) -> str:
    """Return the constant that says which share of a network's rate data reaches."""
    of_trees = f"{network}.tree-share"
    return of_trees if sending.to_children and of_trees in constants.values else f"{network}.share"


def _inter_node_limit(
    constants: LibraryConstants, protocol: str, channel: tuple[str, float], sending: Sending, spec: NodeSpec, count: int
) -> tuple[Powers, float]:
    """Return the constants and the value of the least limit at one end of ``count`` messages, in network bytes/s."""
    name, data_Bps = channel
    network, to_network = inter_node_path(constants, spec)
    shares = f"protocol.{protocol}.share", f"{network}.share"
    share = constants[shares[0]] * constants[shares[1]]
    (limit, limit_Bps), (stream, stream_Bps) = constants.named(f"protocol.{protocol}.limit", f"{network}.stream")
    # Sockets of an interface have one limit for all of its messages.
    stream_Bps *= spec.nics_per_gpu / count
    limits: list[tuple[Powers, float]] = [(((limit, -1),), limit_Bps), (((stream, -1),), stream_Bps)]
    of_data: Powers = tuple((each, 1) for each in shares)
    limits.append((((name, -1), *of_data), data_Bps / share))
    if 0 < sending.chunk_bytes < inf:
        posts = constants.named(f"protocol.{protocol}.posting", f"{network}.rendezvous" if sending.announced else "")
        post, post_ps = max(posts, key=lambda each: each[1])
        if post_ps:
            limits.append((((post, 1), *of_data), sending.chunk_bytes * PS_PER_S / post_ps / share))
    if spec.pcie is not None and spec.path != "switch":
        limits.append((((f"{to_network}.share", -1),), spec.pcie.rate_Bps * constants[f"{to_network}.share"]))
    powers, limit_Bps = min(limits, key=lambda limit: limit[1])
    field = _share_field(constants, network, sending)
    if field != shares[1]:
        # What trees leave unused is no bytes of theirs.
        return (*powers, (shares[1], -1), (field, 1)), limit_Bps * constants[shares[1]] / constants[field]
    return powers, limit_Bps


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


MAX_PIECES = 256
"""With more chunks the fill of a pipeline hardly changes, and the simulation is slower."""

# Bytes of data in a step of a channel's buffers; of all other protocols plain data. Steps in these.
_STEP_BYTES, _PLAIN_STEP_BYTES, _STEPS = {"LL": 32 << 10, "LL128": 576_000}, 512 << 10, 8
# Each rule halves chunks down to a least size while the buffer does not fill the tree's hops the given number of times.
_SIMPLE_RULES = ((8, 128 << 10), (4, 64 << 10), (1, 32 << 10))
_LL128_RULES = ((64, 128 << 10), (16, 32 << 10))


def step_bytes(protocol: str) -> int:
    """Return the bytes of data in a step of a channel's buffers, of which there are eight.

    >>> step_bytes("LL"), step_bytes("Simple")
    (32768, 524288)
    """
    return _STEP_BYTES.get(protocol, _PLAIN_STEP_BYTES)


def tree_pieces(protocol: str, size_bytes: float, channels: int, nodes: int, ranks_a_node: int) -> int:
    """Return the number of chunks of each tree's part of an all-reduce.

    ``protocol`` is ``LL``, ``LL128``, or another, which is plain data; ``channels`` trees share ``size_bytes``.

    >>> [tree_pieces(protocol, 16 << 20, 16, 2, 8) for protocol in ("LL", "LL128", "Simple")]
    [32, 15, 16]
    """
    hops = nodes.bit_length() - 1
    rules: tuple[tuple[int, int], ...] = ()
    chunk, filled = step_bytes(protocol), 0.0
    if protocol == "LL128":
        rules, filled = _LL128_RULES, (1 + hops + 0.1 * ranks_a_node) / ranks_a_node
    elif protocol != "LL":
        rules, filled = _SIMPLE_RULES, ranks_a_node - 1 + hops
    for times, least in rules:
        while size_bytes / (channels * chunk) < filled * times and chunk > least:
            chunk //= 2
    return max(1, min(MAX_PIECES, ceil(size_bytes / (channels * chunk))))


def pat_aggregation(part_bytes: float, ranks: int) -> int:
    """Return how many contributions PAT takes together: those that fit in a step of buffers, in all of these.

    ``part_bytes`` is a channel's part of a contribution (`PatRSAlgorithm` in src/include/collectives.h).

    >>> [pat_aggregation(part, 64) for part in (1 << 10, 100 << 10, 1 << 20)]
    [32, 32, 8]
    """
    in_a_step, half = max(1, int(_PLAIN_STEP_BYTES / max(1, part_bytes))), max(1, ranks // 2)
    return 1 << min((_STEPS * in_a_step).bit_length() - 1, (half - 1).bit_length())


# Largest chunk, and rules that reduce it if a buffer is smaller than the given multiple of the bytes in flight.
_ONE_NODE_RULES = (131072, ((64, 65536), (8, 32768), (2, 16384)))
_MULTI_NODE_RULES = (131072, ((4, 65536), (1, 32768)))
_MANY_NODES, _MOST_OF_MANY_NODES = 4, 65536  # since v2.20


def nvls_in_flight_bytes(size_bytes: float, lanes: int, nodes: int) -> float:
    """Return the bytes of a buffer in flight on ``lanes`` = channels times heads (GPUs of a node that read sums).

    >>> [nvls_in_flight_bytes(64 << 20, 128, nodes) / 2**20 for nodes in (1, 2, 4)]
    [8.0, 16.0, 8.0]
    """
    chunk, rules = _MULTI_NODE_RULES if nodes > 1 else _ONE_NODE_RULES
    if nodes >= _MANY_NODES:
        chunk = _MOST_OF_MANY_NODES
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
    sends = Blocks(demand).sizes() > 0
    np.fill_diagonal(sends, val=False)
    same = node_of_rank[:, None] == node_of_rank
    inside, between = (max(int(part.sum(axis=axis).max()) for axis in (0, 1)) for part in (sends & same, sends & ~same))
    return inside, between


def count_sends(schedule: Schedule, node_of_rank: Ints) -> tuple[int, int, int]:
    """Return the calls of a schedule that consists of sends and receives, and the peers in all of them.

    Rounds that need each other's data are calls of their own. Peers are counted as by `most_peers`.
    """
    if schedule.demand.kind in ("all_to_all", "send_recv"):
        return 1, *most_peers(schedule.demand, node_of_rank)
    calls = inside = between = 0
    for step in schedule.steps:
        sides = step.round.pattern.src, step.round.pattern.dst
        same = node_of_rank[sides[0]] == node_of_rank[sides[1]]
        most = [max(np.bincount(side[of], minlength=1).max() for side in sides) for of in (same, ~same)]
        calls, inside, between = calls + step.times, inside + step.times * most[0], between + step.times * most[1]
    return calls, int(inside), int(between)


def switch_reduction_overheads(
    constants: LibraryConstants, protocol: str, sent: Round, cluster: Cluster, min_channels: int
) -> Overheads:
    """Return the overheads of a reduction in switches, and of the hops of the trees between nodes.

    Each stage of a chunk waits for the bytes in flight: in a node those of the constants, over nodes also the legs of
    its tree, each at twice the rate that both directions leave to each other.
    """
    legs, fabric = sent.pattern.legs, cluster.fabric
    once = np.zeros(1, np.int64)
    latencies = [select_constant("in-network", constants.named("in-network.latency"), once)]
    # The constant of the share of the rate that switches reach, if there is one.
    name, generation = "", constants.generation_of(cluster.shape.gpu)
    if generation in constants.tables["in-network"]:
        several = len(np.unique(cluster.host_of_rank)) > 1
        where = "-over-nodes" if legs is not None else "-over-hosts" if several else ""
        name = f"in-network.{generation}.share{where}"
    share = constants[name] if name else 1.0
    lanes = max(int(constants["in-network.channels"]), min_channels) * int(np.bincount(cluster.node_of_rank).max())
    flight_bytes = nvls_in_flight_bytes(float(sent.bytes[0]), lanes, 1 if legs is None else cluster.nodes_used)
    if legs is None:
        own = select_constant("share", [(name, share)], once)
        limit = select_constant("limit", [("", np.inf)], once)
        rate_Bps = float(cluster.reduction_tree().narrowest(fabric.rate_Bps)[0]) * share
        stages = [((("in-network.stages", 1), *own.powers[0]), constants["in-network.stages"] / rate_Bps)]
    else:
        ways = [inter_node_path(constants, spec) for spec in cluster.layout.node_set.specs]
        slowest = max(ways, key=lambda way: path_latency_ps(constants, way))
        between = constants.named(f"protocol.{protocol}.network")
        between += path_latencies(constants, slowest, announced=True)
        latencies += [select_constant("hop", [each], once, legs.depth) for each in between if each[1]]
        passed = cluster.routes(legs.src, legs.dst)
        load = np.bincount(passed.links, passed.weights, len(fabric)) * legs.share
        fields = [[f"{network}.{limit}" for network, _ in ways] for limit in ("share", "stream")]
        narrowest, stream = (min(each, key=constants.__getitem__) for each in fields)
        # NVSwitches and interfaces have shares of their own, so that what is slower is a limit.
        of_links = float((fabric.rate_Bps[load > 0] / load[load > 0]).min()) * constants[narrowest]
        part = legs.share * int(_messages_an_interface(cluster, legs.src, legs.dst).max())
        of_sockets = constants[stream] * cluster.layout.node_set.ports_per_gpu / part * constants[narrowest]
        by_share: Powers = ((narrowest, -1),)
        between_nodes = min((by_share, of_links), (((stream, -1), *by_share), of_sockets), key=lambda end: end[1])
        inside = cluster.reduction_over_nodes(passed, 0.0, legs.depth)
        of_switches = float(inside.narrowest(fabric.rate_Bps)[0]) * share if len(inside.links) else np.inf
        own = select_constant("share", [("", 1.0)], once)
        slower = int(of_switches < between_nodes[1])
        ends = between_nodes, (((name, -1),) if name else (), of_switches)
        limit = MessageConstants("limit", ends[slower][:1], np.array([ends[slower][1]]), once)
        # The slowest stage is that of all bytes.
        times = (legs.depth / 2 - 1 + slower, constants["in-network.stages"] - slower)
        stages = [(powers, count / rate) for (powers, rate), count in zip(ends, times, strict=True)]
    for powers, each_s in stages:
        fill_ps = float(round(each_s * flight_bytes * PS_PER_S))
        latencies.append(MessageConstants("fill", (powers,), np.array([fill_ps]), once))
    return overheads_of(latencies, [own], [limit])
