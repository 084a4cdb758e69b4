"""Capacities out of, or into, GPUs, nodes and larger sets: sums over the links of the graph that cross a border."""

from __future__ import annotations

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.topology.graph import Fabric
from s2sim.topology.layout import Capacity, InterSwitchLinks, Layout, accumulate_by_group, sum_by_group
from s2sim.topology.nodes import Nodes


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
    between = InterSwitchLinks(*((tail, head) if way == "out" else (head, tail)), fabric.rate_Bps[links])
    used = np.zeros(nodes.ports, np.bool_)
    used[nodes.ports_of_gpu] = True
    network_Bps = _node_Bps(nodes, ports, used)
    switch_of_port = layout.switch_of_port(np.arange(nodes.ports))
    # What its interfaces send into a switch, unless the links between switches carry less.
    passed_Bps = np.minimum(
        sum_by_group(ports.port_Bps[used], switch_of_port[used], layout.switches),
        between.leaving(np.arange(layout.switches), layout.switches),
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
        crossing_Bps = between.leaving(partition.group_of_switch, groups)
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
        between=between,
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
    rates: Floats = inside_Bps + np.where(has_pcie, over_pcie_Bps, network_Bps)
    return rates


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
