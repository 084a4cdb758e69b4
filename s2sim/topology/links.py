"""The links inside every node, and those of network interfaces to the fabric."""

import re
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import translate

import numpy as np

from s2sim.arrays import Ints
from s2sim.errors import TopologyError
from s2sim.topology.graph import Fabric, LinkPart, build_fabric
from s2sim.topology.layout import Layout
from s2sim.topology.nodes import Nodes
from s2sim.topology.shape import LinkSpec


def _node_links(
    nodes: Nodes, key: str, link_class: str, template: str, numbers: tuple[Ints, ...], field: str, *ends: Ints
) -> LinkPart:
    """Return links as a field of their nodes' kinds has them; ``numbers`` in their names begin with the node."""
    specs = [getattr(spec, field) or LinkSpec(0.0, 0) for spec in nodes.specs]
    kind = nodes.spec[numbers[0]]
    rate_Bps = np.array([spec.rate_Bps for spec in specs], np.float64)[kind]
    latency_ps = np.array([spec.latency_ps for spec in specs], np.int64)[kind]

    def indices(number: int) -> list[int]:
        return [int(column[number]) for column in numbers]

    return LinkPart(key, link_class, rate_Bps, latency_ps, template, indices, len(kind), lambda _: (ends[0], ends[1]))


def intra_node_links(layout: Layout) -> list[LinkPart]:
    """Return the links between GPUs, PCIe switches, nodes and the fabric, each kind out and in."""
    nodes, hub, first_pcie = layout.node_set, layout.first_node, layout.first_pcie
    parts: list[LinkPart] = []

    def add_both_ways(key: str, kind: str, template: str, numbers: tuple[Ints, ...], field: str, *ends: Ints) -> None:
        out, back = (
            _node_links(nodes, f"{key}.{way}", kind, f"{template}.{way}", numbers, field, *ends)
            for way in ("out", "in")
        )
        parts.extend([out, back.turned()])

    # The vertex at which the links up in each node end: its host bridge, if that has a rate, or the node.
    top, bridge_nodes = hub + np.arange(nodes.count), nodes.bridge_nodes
    top[bridge_nodes] = first_pcie + nodes.pcie_switches + np.arange(len(bridge_nodes))
    if len(gpus := np.flatnonzero(nodes.nvlink_of_gpu >= 0)):
        node = nodes.node_of_gpu[gpus]
        # Nodes of one domain meet above them all.
        shared = nodes.specs[0].domain_nodes > 1
        joined = layout.first_domain + nodes.domain_of_gpu[gpus] if shared else hub + node
        add_both_ways("nvlink", "nvlink", "node{}.gpu{}.nvlink", (node, nodes.local_gpu(gpus)), "nvlink", gpus, joined)
    if nodes.meshes.variants:
        parts.append(_mesh_links(nodes))
    if len(gpus := np.flatnonzero(nodes.pcie_of_gpu >= 0)):
        node, switch = nodes.node_of_gpu[gpus], nodes.switch_of_gpu[gpus]
        joined = np.where(switch < 0, top[node], first_pcie + switch)
        add_both_ways("pcie", "pcie", "node{}.gpu{}.pcie", (node, nodes.local_gpu(gpus)), "pcie", gpus, joined)
    if nodes.pcie_switches:
        node, switch = nodes.node_of_switch, np.arange(nodes.pcie_switches)
        numbers = (node, switch - nodes.first_switch[node])
        ends = first_pcie + switch, top[node]
        add_both_ways("uplink", "pcie-uplink", "node{}.pcie{}.uplink", numbers, "uplink", *ends)
    if len(bridge_nodes):
        ends = top[bridge_nodes], hub + bridge_nodes
        add_both_ways("host", "pcie-host", "node{}.host", (bridge_nodes,), "bridge", *ends)
    # What is at the node passes these, which lead from the node back to it.
    for key, link_class, name, sockets in (
        ("memory", "host-memory", "memory", nodes.memory_sockets),
        ("socket", "socket", "out", nodes.linked_sockets),
    ):
        if len(sockets):
            node = nodes.node_of_socket[sockets]
            numbers = (node, sockets - nodes.first_socket[node])
            template, ends = f"node{{}}.socket{{}}.{name}", (hub + node, hub + node)
            parts.append(_node_links(nodes, key, link_class, template, numbers, key, *ends))
    node, port = nodes.node_of_port, np.arange(nodes.ports)
    start = np.where(nodes.switch_of_port < 0, hub + node, first_pcie + nodes.switch_of_port)
    ends = start, layout.first_switch + layout.switch_of_port(port)
    add_both_ways("nic", "nic", "node{}.nic{}", (node, nodes.local_port(port)), "nic", *ends)
    for place, way in ((-2, "out"), (-1, "in")):
        links, (rate_Bps, latency_ps) = parts[place], layout.cables(way)
        rates, latencies = np.minimum(links.rate_Bps, rate_Bps), links.latency_ps + latency_ps
        parts[place] = replace(links, rate_Bps=rates, latency_ps=latencies)
    return parts


def _mesh_links(nodes: Nodes) -> LinkPart:
    """Return the links between GPUs, node by node; the lines between two GPUs are one link."""
    meshes = nodes.meshes
    source, target, lines = (
        np.concatenate([getattr(meshes.variants[variant], name) for variant in meshes.variant if variant >= 0])
        for name in ("source", "target", "lines")
    )
    node = np.repeat(np.arange(nodes.count), np.diff(meshes.first))
    first, numbers = nodes.first_gpu[node], (node, source, target)
    ends = first + source, first + target
    links = _node_links(nodes, "nvlink.mesh", "nvlink", "node{}.gpu{}.to{}", numbers, "nvlink", *ends)
    return replace(links, rate_Bps=links.rate_Bps * lines)


# More names than these are not compared with a pattern that fits none.
_MAX_COMPARED = 2000


def build_link_graph(layout: Layout) -> Fabric:
    """Return the graph of all links of a layout; of named links with a rate or latency, later ones win."""
    what = f"{layout.shape.name} with {layout.workers} workers"
    fabric = build_fabric(intra_node_links(layout) + layout.parts(), layout.workers, layout.nodes, what)
    if not layout.shape.named_links:
        return fabric
    rate_Bps, latency_ps = fabric.rate_Bps.copy(), fabric.latency_ps.copy()
    for named in layout.shape.named_links:
        links = find_links(fabric, named.pattern, what)
        if named.rate_Bps is not None:
            rate_Bps[links] = named.rate_Bps
        if named.latency_ps is not None:
            latency_ps[links] = named.latency_ps
    return replace(fabric, rate_Bps=rate_Bps, latency_ps=latency_ps)


def find_links(fabric: Fabric, pattern: str, what: str) -> Ints:
    """Return the numbers of the links that a name or a shell pattern (``*``, ``?``) names, int64, in order.

    If there is none, `TopologyError` names the nearest link of ``what`` and one link of each kind.
    """
    fits = re.compile(translate(pattern)).match
    start = re.match(r"[^*?\[\d]*", pattern)
    found = []
    for block in fabric.blocks.values():
        # Names of a block begin alike: most blocks need no look at each name.
        begin = block.template.partition("{")[0]
        length = min(len(begin), start.end() if start else 0)
        if begin[:length] == pattern[:length]:
            found += [block.start + number for number in range(block.count) if fits(block.name(number))]
    if found:
        return np.sort(np.array(found, np.int64))
    # Every so many, so that all kinds and both ends of each are among them.
    close = get_close_matches(pattern, fabric.link_names[:: 1 + len(fabric) // _MAX_COMPARED], n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    examples = ", ".join(block.name(0) for block in fabric.blocks.values() if block.count)
    raise TopologyError(f"{what} has no link {pattern!r} ({hint}there are for example {examples})")
