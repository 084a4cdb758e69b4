"""The one interface between a kind of fabric and everything else."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.errors import TopologyError
from s2sim.topology.graph import Fabric, LinkPart, RouteStage
from s2sim.topology.nodes import Nodes
from s2sim.topology.shape import ClusterShape


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A partition of the nodes, and of the switches that belong to their groups."""

    name: str
    group_of_node: Ints  # Numbered without gaps
    group_of_switch: Ints  # That of all of its nodes; -1 for a switch without a group
    nested: bool = False  # Whether each group of the partition before lies in one group of this one


def sum_by_group(rate_Bps: Floats, group: Ints, groups: int) -> Floats:
    """Return the sum of rates by group, float64 of shape (groups,); those of group -1 are left out."""
    chosen = group >= 0
    if len(rate_Bps) and (rate_Bps == rate_Bps[0]).all():
        # A product, which unlike a long sum is rounded once.
        return np.bincount(group[chosen], minlength=groups) * np.float64(rate_Bps[0])
    return accumulate_by_group(group[chosen], rate_Bps[chosen], groups)


def accumulate_by_group(group: Ints, rate_Bps: Floats, groups: int) -> Floats:
    """Return the sum of rates by group, one after the other, float64 of shape (groups,)."""
    return np.bincount(group, rate_Bps, groups).astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class Capacity:
    """The most that links transmit in one direction, out of sets of ranks or into them: never too low; float64."""

    gpu_Bps: Floats  # (GPUs,): to the others of its node, and its network interface in full
    switch_Bps: Floats  # (sets,): of the GPUs below each PCIe switch, and of all GPUs of each node without one
    port_Bps: Floats  # (ports,)
    # (nodes,): the interfaces of the GPUs in use, limited by the links to them, and NVLink to other nodes of the domain
    node_Bps: Floats
    domain_Bps: Floats  # (NVLink domains,): without traffic inside
    families: tuple[Floats, ...]  # (groups,) for each partition
    # Of the links between switches out of each of some groups of these, -1 for none, and their number
    leaving: Callable[[Ints, int], Floats]


def half_Bps(node_Bps: Floats) -> float:
    """Return the total rate of the slower half of the nodes, the smaller half of an odd number."""
    return float(np.sort(node_Bps)[: len(node_Bps) // 2].sum())


@dataclass(frozen=True, slots=True)
class Layout(ABC):
    """One kind of fabric at one size: what joins the network interfaces of the nodes; the last of these may be partial.

    Interfaces ("ports") are numbered node by node, switches from 0. In the graph the switches follow the GPUs and the
    nodes, and are followed by the PCIe switches.
    """

    shape: ClusterShape
    node_set: Nodes
    # Nodes that share their first switch (of a rail-optimised fabric: their first switches), and how many such sets
    # there are; a ring or torus, which has no switches, counts as one
    hosts_per_leaf: int
    leaves: int

    @classmethod
    def most_nodes(cls, shape: ClusterShape) -> tuple[int, str] | None:
        """Return the most nodes by the kind's own fields, and the field to raise; None for any number."""
        return None

    @classmethod
    @abstractmethod
    def fit(cls, shape: ClusterShape, nodes: Nodes) -> Self:
        """Return the smallest fabric of this shape that holds ``nodes``, not more than `most_nodes`."""

    @property
    def workers(self) -> int:
        """GPUs that work."""
        return self.node_set.gpus

    @property
    def nodes(self) -> int:
        """Nodes that hold them."""
        return self.node_set.count

    @property
    def first_node(self) -> int:
        """Vertex of node 0."""
        return self.workers

    @property
    def first_switch(self) -> int:
        """Vertex of switch 0."""
        return self.workers + self.nodes

    @property
    @abstractmethod
    def switches(self) -> int:
        """How many switches there are, or stops."""

    @property
    def first_pcie(self) -> int:
        """Vertex of the first PCIe switch."""
        return self.first_switch + self.switches

    @property
    def first_domain(self) -> int:
        """Vertex of the NVSwitches of the first domain of several nodes, which follow the host bridges."""
        return self.first_pcie + self.node_set.pcie_switches + len(self.node_set.bridge_nodes)

    def drawn_vertices(self) -> Ints:
        """Return, for each vertex of the graph, itself, or its node where it is a PCIe switch or host bridge."""
        nodes = self.node_set
        inside = np.concatenate([nodes.node_of_switch, nodes.bridge_nodes])
        domains = self.first_domain + np.arange(nodes.domains)
        return np.concatenate([np.arange(self.first_pcie), self.first_node + inside, domains])

    def switch_links(self, fabric: Fabric) -> Mask:
        """Return a mask of the links between two switches, shape (links,)."""
        low, high = np.minimum(fabric.tail, fabric.head), np.maximum(fabric.tail, fabric.head)
        return (low >= self.first_switch) & (high < self.first_pcie)

    @property
    def leaf_of_node(self) -> Ints:
        """The first switch of each node, numbered without gaps."""
        return np.arange(self.nodes, dtype=np.int64) // self.hosts_per_leaf

    def cables(self, way: str) -> tuple[float | Floats, int | Ints]:
        """Return rate and latency of what joins interfaces to the fabric, of all or of each; ``out`` or ``in``."""
        link = self.shape.link
        return (link.rate_Bps, link.latency_ps) if self.shape.host_cable else (np.inf, 0)

    @property
    def draws(self) -> bool:
        """Whether any route is drawn by a hash, so that the seed matters."""
        return False

    def switch_of_port(self, port: Ints) -> Ints:
        """Return the switch that each network interface joins: the leaf of its node, unless a kind says otherwise."""
        return self.node_set.node_of_port[port] // self.hosts_per_leaf

    @abstractmethod
    def parts(self) -> list[LinkPart]:
        """Return the links between switches."""

    @abstractmethod
    def stages(self, fabric: Fabric, source: Ints, target: Ints, outside: Mask, seed: int) -> list[RouteStage]:
        """Return the stages between the switches of two ports, int64 (m,); ``outside``: transfers between nodes."""

    @abstractmethod
    def hops(self) -> tuple[int, int]:
        """Return the fewest and the most links between switches on any possible route between two nodes."""

    @abstractmethod
    def partitions(self) -> list[Partition]:
        """Return the partitions of the nodes whose cuts may bind, inner ones first."""

    def halves(self) -> list[Mask]:
        """Return the sets of switches, bool of shape (switches,), on one side of cuts that halve the nodes."""
        return []

    def bisection_Bps(self, capacity: Capacity) -> float:
        """Return the rate, in one direction, across the cut that halves the nodes; there are at least two."""
        crossing = [capacity.leaving(np.where(half, 0, -1), 1)[0] for half in self.halves()]
        return float(min([half_Bps(capacity.node_Bps), *crossing]))

    def oversubscription(self, capacity: Capacity) -> float | None:
        """Return the rate of full hosts over that of the uplinks, at the worst level; None without uplinks."""
        return None

    @abstractmethod
    def describe(self, oversubscription: float | None) -> list[str]:
        """Return the fabric's description, a few words per item."""

    def counts(self) -> dict[str, Any]:
        """Return the counts of what only some kinds have, as plain values."""
        return {}

    def reduction(self, port: Ints) -> list[tuple[str, str, Ints]]:
        """Return, per level, the blocks up and down (keys) and their links (int64) between ports and a common root."""
        raise TopologyError(
            f"an in-network reduction was asked for on {self.shape.name}, a {self.shape.kind}, where no switch is "
            "above all ranks: use a fat-tree, leaf-spine, single-switch or rail-optimised fabric"
        )


@dataclass(frozen=True, slots=True)
class FabricKind:
    """A kind of fabric as a reader of description files knows it."""

    layout: type[Layout]
    levels: tuple[int, ...] = ()  # Possible numbers of switch levels, the default first
    # Fields of ``[fabric]`` that it has, and the least number of switch levels with which they have an effect
    fields: Mapping[str, int] = field(default_factory=dict)
    routings: tuple[str, ...] = ()  # The default first; empty if there is one route only
    host_cable: bool = True  # Whether a cable joins each interface to a switch, and not to its node's own stop


def pcie_switch_groups(nodes: Nodes) -> Ints:
    """Return the set of each GPU for ``Capacity.switch_Bps``, int64 of shape (GPUs,); GPUs not in use have no part."""
    place = np.where(nodes.switch_of_gpu < 0, 0, nodes.switch_of_gpu - nodes.first_switch[nodes.node_of_gpu])
    return np.cumsum((np.diff(place, prepend=0) != 0) | (np.diff(nodes.node_of_gpu, prepend=0) != 0))


def find_capacity(layout: Layout, fabric: Fabric, way: str) -> Capacity:
    """Return the capacities of a graph; ``way`` is ``"out"`` or ``"in"``."""
    nodes = layout.node_set
    ports = _PortRates(nodes, fabric, way)
    links = layout.switch_links(fabric)
    tail, head = (vertices[links] - layout.first_switch for vertices in (fabric.tail, fabric.head))
    near, far = (tail, head) if way == "out" else (head, tail)

    def leaving(group_of_switch: Ints, groups: int) -> Floats:
        own = group_of_switch[near]
        return sum_by_group(fabric.rate_Bps[links], np.where(own == group_of_switch[far], -1, own), groups)

    used = np.zeros(nodes.ports, np.bool_)
    used[nodes.ports_of_gpu] = True
    network_Bps = _node_Bps(nodes, ports, used)
    # What its interfaces send into a switch, unless the links between switches carry less.
    passed_Bps = np.minimum(
        sum_by_group(ports.port_Bps[used], layout.switch_of_port(np.arange(nodes.ports))[used], layout.switches),
        leaving(np.arange(layout.switches), layout.switches),
    )
    if not layout.shape.host_cable:
        network_Bps = np.minimum(network_Bps, passed_Bps[: nodes.count])
    # Over NVLink to other nodes of a domain.
    others = np.bincount(nodes.domain_of_node)[nodes.domain_of_node] > 1
    nvlink_Bps = np.where(others, accumulate_by_group(nodes.node_of_gpu, ports.nvlink_Bps, nodes.count), 0.0)
    node_Bps = network_Bps + nvlink_Bps
    families: list[Floats] = []
    group_before = np.zeros(0, np.int64)
    for partition in layout.partitions():
        group, groups = partition.group_of_node, int(partition.group_of_node.max()) + 1
        sent_Bps = accumulate_by_group(group, node_Bps, groups)
        if partition.nested:
            outer = np.zeros(len(families[-1]), np.int64)
            outer[group_before] = group
            sent_Bps = np.minimum(sent_Bps, accumulate_by_group(outer, families[-1], groups))
        inner = partition.group_of_switch >= 0
        through_Bps = accumulate_by_group(partition.group_of_switch[inner], passed_Bps[inner], groups)
        crossing_Bps = leaving(partition.group_of_switch, groups)
        # Of a domain that lies in several groups, NVLink leaves them.
        apart = np.bincount(np.unique(np.stack([nodes.domain_of_node, group]), axis=1)[0])[nodes.domain_of_node] > 1
        over_nvlink_Bps = accumulate_by_group(group[apart], nvlink_Bps[apart], groups)
        families.append(np.minimum(sent_Bps, np.minimum(through_Bps, crossing_Bps) + over_nvlink_Bps))
        group_before = group
    return Capacity(
        gpu_Bps=_gpu_Bps(nodes, ports),
        switch_Bps=_switch_Bps(nodes, ports, used),
        port_Bps=ports.port_Bps,
        node_Bps=node_Bps,
        domain_Bps=accumulate_by_group(nodes.domain_of_node, network_Bps, nodes.domains),
        families=tuple(families),
        leaving=leaving,
    )


class _PortRates:
    """The rates of the links inside nodes in one direction, 0 if absent (infinite for a bridge without a rate)."""

    def __init__(self, nodes: Nodes, fabric: Fabric, way: str) -> None:
        def rates(key: str, chosen: Ints | Mask, size: int, missing: float = 0.0) -> Floats:
            rate_Bps = np.full(size, missing)
            if f"{key}.{way}" in fabric.blocks:
                rate_Bps[chosen] = fabric.rate_Bps[fabric.blocks[f"{key}.{way}"].part]
            return rate_Bps

        self.nvlink_Bps = rates("nvlink", nodes.nvlink_of_gpu >= 0, nodes.gpus)
        self.pcie_Bps = rates("pcie", nodes.pcie_of_gpu >= 0, nodes.gpus)
        self.uplink_Bps = rates("uplink", np.arange(nodes.pcie_switches), nodes.pcie_switches)
        self.bridge_Bps = rates("host", nodes.bridge_nodes, nodes.count, np.inf)
        self.port_Bps = rates("nic", np.arange(nodes.ports), nodes.ports)
        self.mesh_Bps, self.meshed = np.zeros(nodes.gpus), np.zeros(nodes.gpus, np.int64)
        if "nvlink.mesh" in fabric.blocks:
            links = fabric.blocks["nvlink.mesh"].part
            near = (fabric.tail if way == "out" else fabric.head)[links]
            self.mesh_Bps = accumulate_by_group(near, fabric.rate_Bps[links], nodes.gpus)
            self.meshed = np.bincount(near, minlength=nodes.gpus)


def _gpu_Bps(nodes: Nodes, ports: _PortRates) -> Floats:
    peers = np.bincount(nodes.domain_of_gpu)[nodes.domain_of_gpu] - 1
    network_Bps = ports.port_Bps[nodes.ports_of_gpu].sum(axis=1) if nodes.count > 1 else np.zeros(nodes.gpus)
    inside_Bps = np.where(peers > 0, ports.nvlink_Bps, 0.0) + ports.mesh_Bps
    has_pcie = ports.pcie_Bps > 0
    to_peers = has_pcie & (ports.nvlink_Bps == 0) & (ports.meshed < peers)
    over_pcie_Bps = np.where(to_peers, ports.pcie_Bps, np.minimum(network_Bps, ports.pcie_Bps))
    return inside_Bps + np.where(has_pcie, over_pcie_Bps, network_Bps)


def _node_Bps(nodes: Nodes, ports: _PortRates, used: Mask) -> Floats:
    rates = sum_by_group(ports.port_Bps[used], nodes.node_of_port[used], nodes.count)
    has_pcie = nodes.having(lambda spec: spec.pcie is not None)
    rates = np.where(has_pcie, np.minimum(rates, sum_by_group(ports.pcie_Bps, nodes.node_of_gpu, nodes.count)), rates)
    if nodes.pcie_switches:
        # All that goes to interfaces at the host bridge comes up to it.
        switches = np.unique(nodes.switch_of_gpu[nodes.switch_of_gpu >= 0])
        uplinks_Bps = sum_by_group(ports.uplink_Bps[switches], nodes.node_of_switch[switches], nodes.count)
        at_host = nodes.having(lambda spec: spec.pcie_switches > 0 and spec.nics_at_host)
        rates = np.where(at_host, np.minimum(rates, np.minimum(uplinks_Bps, ports.bridge_Bps)), rates)
    return rates


def _switch_Bps(nodes: Nodes, ports: _PortRates, used: Mask) -> Floats:
    """Return the rates out of the GPUs below each PCIe switch: over NVLink, its uplink and its interfaces."""
    group = pcie_switch_groups(nodes)
    groups = int(group[-1]) + 1
    switch = nodes.switch_of_gpu[np.searchsorted(group, np.arange(groups))]
    up_Bps = np.full(groups, np.inf)
    behind = switch >= 0
    up_Bps[behind] = ports.uplink_Bps[switch[behind]]
    if nodes.count > 1:
        at_switch = used & (nodes.switch_of_port >= 0)
        extra_Bps = accumulate_by_group(nodes.switch_of_port[at_switch], ports.port_Bps[at_switch], nodes.pcie_switches)
        up_Bps[behind] += extra_Bps[switch[behind]]
    pcie_Bps = np.minimum(accumulate_by_group(group, ports.pcie_Bps, groups), up_Bps)
    nvlink_Bps = accumulate_by_group(group, ports.nvlink_Bps + ports.mesh_Bps, groups)
    alone_Bps = accumulate_by_group(group, _gpu_Bps(nodes, ports), groups)
    return np.minimum(alone_Bps, np.where(behind, nvlink_Bps + pcie_Bps, np.inf))


def node_bisection_Bps(layout: Layout, fabric: Fabric, way: str) -> float:
    """Return the rate out of, or into, the first half of the GPUs of a single node, for the other half."""
    nodes = layout.node_set
    ports = _PortRates(nodes, fabric, way)
    half = np.arange(nodes.gpus) < nodes.gpus // 2
    total_Bps = float(ports.nvlink_Bps[half].sum())
    if "nvlink.mesh" in fabric.blocks:
        links = fabric.blocks["nvlink.mesh"].part
        near, far = (fabric.tail[links], fabric.head[links])[:: 1 if way == "out" else -1]
        total_Bps += float(fabric.rate_Bps[links][half[near] & ~half[far]].sum())
    if ports.nvlink_Bps.any() or (ports.meshed == nodes.gpus - 1).all():
        return total_Bps
    below = pcie_switch_groups(nodes)
    sent_Bps = accumulate_by_group(below[half], ports.pcie_Bps[half], int(below[half][-1]) + 1)
    split = below[half][-1] == below[nodes.gpus // 2]
    if nodes.pcie_switches:
        # A switch with GPUs of both halves joins them itself.
        whole = slice(0, len(sent_Bps) - bool(split))
        sent_Bps[whole] = np.minimum(sent_Bps[whole], ports.uplink_Bps[: len(sent_Bps)][whole])
    crossing_Bps = min(float(sent_Bps.sum()), _host_bisection_Bps(nodes, fabric))
    return total_Bps + (crossing_Bps if split else min(crossing_Bps, float(ports.bridge_Bps[0])))


def _host_bisection_Bps(nodes: Nodes, fabric: Fabric) -> float:
    """Return the rate of a single node's host from one half of its GPUs to the other; infinite without a limit."""
    limits_Bps = [np.inf]
    if "memory" in fabric.blocks and nodes.staged[0]:
        # What is written is read.
        limits_Bps.append(float(fabric.rate_Bps[fabric.blocks["memory"].part].sum()) / 2)
    socket, half = nodes.socket_of_gpu, nodes.gpus // 2
    if "socket" in fabric.blocks and socket[half - 1] < socket[half]:
        limits_Bps.append(float(fabric.rate_Bps[fabric.blocks["socket"].part][: socket[half]].sum()))
    return min(limits_Bps)
