"""A cluster's shape as its file states it: the content of nodes and how they are joined, for any number of workers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from s2sim.topology.price import Price, read_price
from s2sim.topology.quantity import FieldReader, Quantity

TRANSPORTS = ("ib-verbs", "roce", "slingshot", "efa", "tcpx", "tcpxo", "tcp")
PATHS = ("switch", "host-bridge", "other-socket", "staged")

MAX_MESHED = 512
"""GPUs that NVLinks without a switch may join; real ones join 8."""


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """One direction of a link: bytes per second, and picoseconds from the first bit sent to the first bit received."""

    rate_Bps: float
    latency_ps: int


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One kind of node."""

    gpus: int
    nvlink: LinkSpec | None  # Each GPU's port to the node's NVSwitch, or with ``mesh`` one link between two GPUs
    # Two GPUs, the lower number first, and the number of links between them; None with an NVSwitch or without NVLink
    mesh: tuple[tuple[int, int, int], ...] | None
    pcie: LinkSpec | None  # Each GPU's link to its PCIe switch, or to the host bridge without PCIe switches
    gpus_per_switch: int | None  # None without PCIe switches
    uplink: LinkSpec | None
    bridge: LinkSpec | None  # Total rate of the host bridge; None without a limit
    # GPU g uses interface ``g * nics // gpus``, or several in order. They join the host bridge (``nics_at_host``) or
    # the PCIe switch of the first GPU that uses them.
    nics: int
    nic: LinkSpec
    nics_at_host: bool
    # Between nodes, one of `TRANSPORTS`: latencies are then those of the hardware alone; None if not stated
    transport: str | None = None
    path: str = "switch"  # From GPU memory to an interface, one of `PATHS`
    peer_to_peer: bool = True  # Whether GPUs reach each other's memory over PCIe; if not, through host memory
    sockets: int = 1  # GPU g is at socket ``g * sockets // gpus``; GPUs below one PCIe switch share a socket
    socket: LinkSpec | None = None  # From each socket to the others; None without a limit
    memory: LinkSpec | None = None  # What GPUs read from and write to one socket's memory; None without a limit
    domain_nodes: int = 1  # Consecutive nodes with GPUs on one fabric of NVSwitches

    @property
    def nics_per_gpu(self) -> int:
        """Network interfaces over which a GPU spreads each message."""
        return max(1, self.nics // self.gpus)

    @property
    def has_nvswitch(self) -> bool:
        """Whether an NVSwitch joins the GPUs."""
        return self.nvlink is not None and self.mesh is None and self.gpus * self.domain_nodes > 1

    @property
    def all_joined(self) -> bool:
        """Whether NVLink joins every GPU to every other, over an NVSwitch or by links of their own."""
        return self.has_nvswitch or len(self.mesh or ()) == self.gpus * (self.gpus - 1) // 2

    @property
    def pcie_switches(self) -> int:
        """PCIe switches of a node."""
        return -(-self.gpus // self.gpus_per_switch) if self.gpus_per_switch else 0


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Consecutive nodes of one kind; a count of None is as many as are needed."""

    node: NodeSpec
    count: int | None


@dataclass(frozen=True, slots=True)
class NamedLinks:
    """Another rate (bytes per second) or latency (picoseconds) of the links of some names; None changes nothing.

    ``pattern`` is a link's name, or a shell pattern (``*``, ``?``) for several: ``"leaf3.up*"``.
    """

    pattern: str
    rate_Bps: float | None
    latency_ps: int | None


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """One description file, checked."""

    name: str
    description: str
    source: str
    file: str
    gpu: str | None
    library: str | None  # Option string of a communication library
    groups: tuple[NodeGroup, ...]  # The first nodes first; all groups except the last have a count
    kind: str
    # Whether a cable joins each interface to a switch; if not, the interface ends at its node's own stop
    host_cable: bool
    levels: int  # Levels of switches of a tree; 1 for a single switch, 0 without a tree
    # hosts_per_leaf, uplinks_per_leaf, leaves_per_pod, uplinks_per_aggregation: of a tree or rail-optimised fabric;
    # None for the smallest non-blocking one
    hosts_per_leaf: int | None
    uplinks_per_leaf: int | None
    leaves_per_pod: int | None
    uplinks_per_aggregation: int | None
    size: tuple[int, ...] | None  # Nodes along each dimension of a torus
    dimensions: int | None
    # hosts_per_router, routers_per_group, global_links_per_router: of a dragonfly; None for the smallest balanced one
    hosts_per_router: int | None
    routers_per_group: int | None
    global_links_per_router: int | None
    max_nodes: int | None  # None for any number
    processors: int | None  # Shared by all nodes, which are processes of one machine; None if each has its own
    packet_bytes: float | None  # The most that TCP passes to the network of such a machine in one packet
    link: LinkSpec
    named_links: tuple[NamedLinks, ...]  # Links with another rate or latency; of several for a link, the last counts
    routing: str
    quantities: tuple[Quantity, ...]

    @property
    def price(self) -> Price | None:
        """What an hour of it costs; None where nothing says that."""
        return read_price(FieldReader({each.field: each for each in self.quantities}, self.name))

    @property
    def nodes(self) -> tuple[NodeSpec, ...]:
        """Every kind of node, the first nodes' first."""
        return tuple(group.node for group in self.groups)

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a full node, of the largest where nodes differ."""
        return max(node.gpus for node in self.nodes)

    @property
    def lanes_per_node(self) -> int:
        """The fewest interfaces, each with a GPU of its own, out of any node or domain of nodes."""
        return min(min(node.nics, node.gpus) * node.domain_nodes for node in self.nodes)

    @property
    def nvlink(self) -> LinkSpec | None:
        """NVLink of the first node that has it."""
        return next((node.nvlink for node in self.nodes if node.nvlink is not None), None)

    @property
    def pcie(self) -> LinkSpec | None:
        """PCIe link of a GPU of the first node that has it."""
        return next((node.pcie for node in self.nodes if node.pcie is not None), None)

    @property
    def pcie_joins_gpus(self) -> bool:
        """Whether some GPUs of one node reach each other over PCIe."""
        return any(node.pcie is not None and not node.all_joined for node in self.nodes if node.gpus > 1)

    @property
    def nic(self) -> LinkSpec:
        """One network interface of the first node."""
        return self.nodes[0].nic

    @property
    def host_link(self) -> LinkSpec:
        """The link between a network interface of the first node and the fabric."""
        return self.host_link_of(self.nodes[0])

    def host_link_of(self, node: NodeSpec) -> LinkSpec:
        """Return the link from a network interface of a node to the fabric: the interface, with its cable if any."""
        if not self.host_cable:
            return node.nic
        return LinkSpec(min(node.nic.rate_Bps, self.link.rate_Bps), node.nic.latency_ps + self.link.latency_ps)


def with_rate(shape: ClusterShape, field: str, rate_Bps: float) -> ClusterShape:
    """Return the shape with another ``nic.rate``, ``nvlink.rate`` or ``pcie.rate`` in every node that has it.

    Links between switches follow the interfaces, and PCIe uplinks the GPUs' links, unless the file gives their rates.
    """
    table = field.partition(".")[0]
    given = {item.field.rpartition("nodes.")[2].lstrip("0123456789.") for item in shape.quantities}

    def changed(node: NodeSpec) -> NodeSpec:
        spec = getattr(node, table)
        if spec is None:
            return node
        rates = {table: replace(spec, rate_Bps=rate_Bps)}
        if table == "pcie" and node.uplink is not None and "pcie.uplink.rate" not in given:
            rates["uplink"] = replace(node.uplink, rate_Bps=rate_Bps)
        return replace(node, **rates)

    groups = tuple(replace(group, node=changed(group.node)) for group in shape.groups)
    link = shape.link
    if table == "nic" and "fabric.link.rate" not in given:
        link = replace(link, rate_Bps=rate_Bps)
    return replace(shape, groups=groups, link=link)
