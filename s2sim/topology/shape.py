"""A cluster's shape as its file states it: the content of nodes and how they are joined, for any number of workers."""

import re
from dataclasses import dataclass, replace

from s2sim.topology.quantity import FieldReader, Quantity

TRANSPORTS = ("ib-verbs", "roce", "slingshot", "efa", "tcpx", "tcpxo", "tcp")
PATHS = ("switch", "host-bridge", "other-socket", "staged")
_SOCKETS = ("tcp",)


def usual_path(transport: str) -> str:
    """Return the way from GPU to interface where none is stated: sockets carry what is in host memory."""
    return "staged" if transport in _SOCKETS else "switch"


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
    queue_pairs: int = 1  # Of a connection between two GPUs
    path: str = "switch"  # From GPU memory to an interface, one of `PATHS`
    peer_to_peer: bool = True  # Whether GPUs reach each other's memory over PCIe; if not, through host memory
    sockets: int = 1  # GPU g is at socket ``g * sockets // gpus``; GPUs below one PCIe switch share a socket
    socket: LinkSpec | None = None  # From each socket to the others; None without a limit
    memory: LinkSpec | None = None  # What GPUs read from and write to one socket's memory; None without a limit
    domain_nodes: int = 1  # Consecutive nodes with GPUs on one fabric of NVSwitches
    count: int | None = None  # Of consecutive nodes of this kind; None for as many as are needed

    @property
    def nics_per_gpu(self) -> int:
        """Network interfaces over which a GPU spreads each message."""
        return max(1, self.nics // self.gpus)

    @property
    def has_nvswitch(self) -> bool:
        """Whether an NVSwitch joins the GPUs."""
        return self.nvlink is not None and self.mesh is None and self.gpus * self.domain_nodes > 1

    @property
    def pcie_switches(self) -> int:
        """PCIe switches of a node."""
        return -(-self.gpus // self.gpus_per_switch) if self.gpus_per_switch else 0


@dataclass(frozen=True, slots=True)
class NamedLinks:
    """Another rate (bytes per second) or latency (picoseconds) of the links of some names; None changes nothing.

    ``pattern`` is a link's name, or a shell pattern (``*``, ``?``) for several: ``"leaf3.up*"``.
    """

    pattern: str
    rate_Bps: float | None
    latency_ps: int | None


# How sources begin that no document backs.
_ASSUMED = "assumed"
# With fewer, switches of Ethernet may send several connections over one link, unless they adapt routes.
_MANY_QUEUE_PAIRS = 4
PRICE_FIELDS = ("price.gpu_hour", "price.node_hour", "price.node", "price.years")
_HOURS_PER_YEAR, _S_PER_HOUR = 8766, 3600


@dataclass(frozen=True, slots=True)
class HourlyCost:
    """What the workers of a cluster cost for an hour."""

    workers: int
    nodes: int  # All that they run on; without a price for each GPU all are paid for whole
    per_hour: float  # In ``currency``
    currency: str  # Three letters such as ``USD``

    def of(self, time_s: float) -> float:
        """Return what a number of seconds costs, in ``currency``."""
        return self.per_hour * time_s / _S_PER_HOUR

    def of_steps(self, step_s: float) -> float:
        """Return what 1,000 steps of so many seconds cost, in ``currency``: one costs less than a cent."""
        return 1000 * self.of(step_s)


@dataclass(frozen=True, slots=True)
class Price:
    """The price of an hour, of a GPU or of a node; of nodes that were bought the share of their years."""

    amount: float
    currency: str
    of_gpus: bool

    def cost(self, workers: int, nodes: int) -> HourlyCost:
        """Return the cost of ``workers`` GPUs on so many nodes."""
        return HourlyCost(workers, nodes, self.amount * (workers if self.of_gpus else nodes), self.currency)


def parse_money(text: str) -> tuple[float, str] | None:
    """Return an amount and its currency; None for another text.

    >>> parse_money("98.32 USD")
    (98.32, 'USD')
    """
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?) ?([A-Z]{3})", text.strip())
    return None if match is None else (float(match[1]), match[2])


def read_price(fields: FieldReader) -> Price | None:
    """Return the price that a description states; None without one."""
    if not (given := [field for field in PRICE_FIELDS if field in fields.quantities]):
        return None
    field, *more = given
    if field == "price.years" or more != ["price.years"] * (field == "price.node"):
        raise fields.error(
            f"{' and '.join(given)}: write price.gpu_hour or price.node_hour, or price.node with price.years"
        )
    money = parse_money(text := fields.text(field, None))
    if money is None:
        raise fields.error(f"{field} = {text!r} is no price: write for example '98.32 USD'")
    hours = _HOURS_PER_YEAR * fields.required_count("price.years") if more else 1
    amount, currency = money
    return Price(amount / hours, currency, of_gpus=field == "price.gpu_hour")


@dataclass(frozen=True, slots=True)
class FabricGraph:
    """A fabric that is given as a graph, of vertices by name: hosts, then switches."""

    name: str  # Of its file
    description: str  # Which nodes were taken for hosts, if they do not say it
    hosts: int
    vertices: tuple[str, ...]
    # In one direction: start, end, bytes per second and picoseconds; None for those of ``fabric.link``
    links: tuple[tuple[int, int, float | None, int | None], ...]
    link_names: tuple[str, ...] = ()  # Of those between switches; by their ends if empty
    # The links from each host to each, row after row, of routing "explicit"
    routes: tuple[tuple[int, ...], ...] = ()
    forwards: bool = False  # Whether hosts forward even where none is joined to another

    @property
    def first_switch(self) -> int:
        """The first vertex that forwards: host 0 where hosts are joined directly, or are all there is."""
        direct = len(self.vertices) == self.hosts or any(max(link[:2]) < self.hosts for link in self.links)
        return 0 if direct or self.forwards else self.hosts


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """One description file, checked."""

    name: str
    description: str
    source: str
    file: str
    gpu: str | None
    library: str | None  # Option string of a communication library
    nodes: tuple[NodeSpec, ...]  # Every kind of node, the first nodes' first; all except the last have a count
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
    graph: FabricGraph | None  # Of the kind ``graph``
    paths: int | None  # Of which ``k-shortest`` draws one
    max_nodes: int | None  # None for any number
    processors: int | None  # Shared by all nodes, which are processes of one machine; None if each has its own
    packet_bytes: float | None  # The most that TCP passes to the network of such a machine in one packet
    link: LinkSpec
    named_links: tuple[NamedLinks, ...]  # Links with another rate or latency; of several for a link, the last counts
    routing: str
    price: Price | None  # What an hour of it costs; None where nothing says that
    quantities: tuple[Quantity, ...]

    @property
    def assumed_fields(self) -> tuple[str, ...]:
        """Fields of interfaces and the fabric that no document backs, and the queue pairs of RoCE if they are few."""
        known = (each for each in self.quantities if each.field.startswith(("nic.", "fabric.")))
        found = [each.field for each in known if each.source.startswith(_ASSUMED)]
        if any(node.transport == "roce" and node.queue_pairs < _MANY_QUEUE_PAIRS for node in self.nodes):
            found.append("nic.queue_pairs")
        return tuple(dict.fromkeys(found))

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
        """Whether some GPUs of one node reach each other over PCIe, which neither NVSwitch nor NVLinks join."""
        return any(
            node.pcie is not None and not node.has_nvswitch and len(node.mesh or ()) < node.gpus * (node.gpus - 1) // 2
            for node in self.nodes
        )

    @property
    def nic(self) -> LinkSpec:
        """One network interface of the first node."""
        return self.nodes[0].nic


def follows(shape: ClusterShape, field: str) -> tuple[int, ...]:
    """Return the numbers of the kinds of nodes with such a link whose ``nic.rate``, or the like, is not their own."""
    given, table = {item.field for item in shape.quantities}, field.partition(".")[0]
    having = (number for number, node in enumerate(shape.nodes) if getattr(node, table) is not None)
    return tuple(number for number in having if f"nodes.{number}.{field}" not in given)


def with_rate(shape: ClusterShape, field: str, rate_Bps: float) -> ClusterShape:
    """Return the shape with another ``nic.rate``, ``nvlink.rate`` or ``pcie.rate``, as an override of it makes.

    Nodes with a rate of their own keep it. Links between switches follow the interfaces, and PCIe uplinks the GPUs'
    links, unless the file gives their rates.
    """
    table = field.partition(".")[0]
    following, uplinks = follows(shape, field), follows(shape, "pcie.uplink.rate")
    given = {item.field for item in shape.quantities}

    def changed(number: int, node: NodeSpec) -> NodeSpec:
        if number not in following:
            return node
        rates = {table: replace(getattr(node, table), rate_Bps=rate_Bps)}
        if table == "pcie" and node.uplink is not None and "pcie.uplink.rate" not in given and number in uplinks:
            rates["uplink"] = replace(node.uplink, rate_Bps=rate_Bps)
        return replace(node, **rates)

    link = shape.link
    if table == "nic" and "fabric.link.rate" not in given:
        link = replace(link, rate_Bps=rate_Bps)
    return replace(shape, nodes=tuple(changed(*each) for each in enumerate(shape.nodes)), link=link)
