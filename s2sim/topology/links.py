"""The links inside every node, whatever joins them, and those of network interfaces to the fabric."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import translate

import numpy as np

from s2sim.arrays import Floats, Ints
from s2sim.errors import TopologyError
from s2sim.topology.graph import Fabric, LinkPart, build_fabric
from s2sim.topology.layout import Layout
from s2sim.topology.node_spec import LinkSpec, NodeSpec
from s2sim.topology.nodes import Nodes
from s2sim.topology.shape import NamedLinks

Ends = Callable[[Ints], tuple[Ints, Ints]]


def intra_node_links(layout: Layout) -> list[LinkPart]:
    """Return the links between GPUs, PCIe switches, nodes and the fabric, each kind out and in."""
    nodes = layout.dims.node_set
    hub, first_pcie = layout.first_node, layout.first_pcie
    parts = []
    if len(gpus := nodes.nvlink_gpus):
        # Nodes of one domain meet above them all.
        shared = nodes.specs[0].domain_nodes > 1
        joined = layout.first_domain + nodes.domain_of_gpu[gpus] if shared else hub + nodes.node_of_gpu[gpus]
        parts += _gpu_links("nvlink", nodes, gpus, lambda spec: spec.nvlink, joined)
    if nodes.meshes.variants:
        parts.append(_mesh_links(nodes))
    if len(gpus := nodes.pcie_gpus):
        switch = nodes.switch_of_gpu[gpus]
        at_host = _top_vertex(layout)[nodes.node_of_gpu[gpus]]
        parts += _gpu_links(
            "pcie", nodes, gpus, lambda spec: spec.pcie, np.where(switch < 0, at_host, first_pcie + switch)
        )
    if nodes.pcie_switches:
        parts += _uplinks(layout)
    if len(nodes.bridge_nodes):
        parts += _bridges(layout)
    parts += _socket_links("memory", "host-memory", "node{}.socket{}.memory", layout, nodes.memory_sockets)
    parts += _socket_links("socket", "socket", "node{}.socket{}.out", layout, nodes.linked_sockets)
    return [*parts, *_interface_links(layout)]


def _link_specs(nodes: Nodes, node: Ints, choose: Callable[[NodeSpec], LinkSpec | None]) -> tuple[Floats, Ints]:
    """Return rate and latency of what each node in ``node`` has, by its kind."""
    specs = [choose(spec) for spec in nodes.specs]
    rates = np.array([spec.rate_Bps if spec else 0.0 for spec in specs], np.float64)
    latencies = np.array([spec.latency_ps if spec else 0 for spec in specs], np.int64)
    return rates[nodes.spec[node]], latencies[nodes.spec[node]]


def _bidirectional(
    key: str, link_class: str, specs: tuple[Floats, Ints], template: str, numbers: tuple[Ints, ...], ends: Ends
) -> list[LinkPart]:
    """Return links in both directions, out first."""

    def indices(number: int) -> list[int]:
        return [int(column[number]) for column in numbers]

    out = LinkPart(f"{key}.out", link_class, *specs, f"{template}.out", indices, len(numbers[0]), ends)
    back = LinkPart(f"{key}.in", link_class, *specs, f"{template}.in", indices, len(numbers[0]), ends)
    return [out, back.turned()]


def _gpu_links(
    name: str, nodes: Nodes, gpus: Ints, choose: Callable[[NodeSpec], LinkSpec | None], joined: Ints
) -> list[LinkPart]:
    """Return a link from each of some GPUs to the vertex that it joins."""
    node = nodes.node_of_gpu[gpus]
    numbers = (node, nodes.local_gpu(gpus))
    template = f"node{{}}.gpu{{}}.{name}"
    return _bidirectional(name, name, _link_specs(nodes, node, choose), template, numbers, lambda _: (gpus, joined))


def _mesh_links(nodes: Nodes) -> LinkPart:
    """Return the links between GPUs, node by node; the lines between two GPUs are one link."""
    meshes = nodes.meshes
    source, target, lines = (
        np.concatenate([getattr(meshes.variants[variant], name) for variant in meshes.variant if variant >= 0])
        for name in ("source", "target", "lines")
    )
    node = np.repeat(np.arange(nodes.count), np.diff(meshes.first))
    rate_Bps, latency_ps = _link_specs(nodes, node, lambda spec: spec.nvlink)
    first = nodes.first_gpu[node]

    def indices(number: int) -> tuple[int, int, int]:
        return int(node[number]), int(source[number]), int(target[number])

    return LinkPart(
        "nvlink.mesh",
        "nvlink",
        rate_Bps * lines,
        latency_ps,
        "node{}.gpu{}.to{}",
        indices,
        len(node),
        lambda _: (first + source, first + target),
    )


def _top_vertex(layout: Layout) -> Ints:
    """Return the vertex at which what leads up in each node ends: its host bridge, if that has a rate, or the node."""
    nodes = layout.dims.node_set
    top = layout.first_node + np.arange(nodes.count)
    bridges = nodes.bridge_nodes
    top[bridges] = layout.first_pcie + nodes.pcie_switches + np.arange(len(bridges))
    return top


def _uplinks(layout: Layout) -> list[LinkPart]:
    nodes = layout.dims.node_set
    node = nodes.node_of_switch
    switch = np.arange(nodes.pcie_switches)
    numbers = (node, switch - nodes.first_switch[node])
    joined = _top_vertex(layout)[node]
    specs = _link_specs(nodes, node, lambda spec: spec.uplink)
    return _bidirectional(
        "uplink", "pcie-uplink", specs, "node{}.pcie{}.uplink", numbers, lambda _: (layout.first_pcie + switch, joined)
    )


def _bridges(layout: Layout) -> list[LinkPart]:
    nodes = layout.dims.node_set
    node = nodes.bridge_nodes
    bridge = _top_vertex(layout)[node]
    specs = _link_specs(nodes, node, lambda spec: spec.bridge)
    return _bidirectional(
        "host", "pcie-host", specs, "node{}.host", (node,), lambda _: (bridge, layout.first_node + node)
    )


def _socket_links(name: str, link_class: str, template: str, layout: Layout, sockets: Ints) -> list[LinkPart]:
    """Return a link for each of some sockets, which leads from its node back to it: what is at the node passes it."""
    nodes = layout.dims.node_set
    if not len(sockets):
        return []
    node = nodes.node_of_socket[sockets]
    number = sockets - nodes.first_socket[node]
    specs = _link_specs(nodes, node, lambda spec: getattr(spec, name))
    hub = layout.first_node + node

    def indices(at: int) -> tuple[int, int]:
        return int(node[at]), int(number[at])

    return [LinkPart(name, link_class, *specs, template, indices, len(sockets), lambda _: (hub, hub))]


def _interface_links(layout: Layout) -> list[LinkPart]:
    """Return the links from network interfaces to the switches that they join."""
    nodes, first_pcie = layout.dims.node_set, layout.first_pcie
    node, port = nodes.node_of_port, np.arange(nodes.ports)
    start = np.where(nodes.switch_of_port < 0, layout.first_node + node, first_pcie + nodes.switch_of_port)
    end = layout.first_switch + layout.switch_of_port(port)
    specs = _link_specs(nodes, node, layout.shape.host_link_of)
    return _bidirectional("nic", "nic", specs, "node{}.nic{}", (node, nodes.local_port(port)), lambda _: (start, end))


# More names than these are not compared with a pattern that fits none.
_MAX_COMPARED = 2000


def build_link_graph(layout: Layout) -> Fabric:
    """Return the graph of all links of a layout, named ones with the rates and latencies of their own."""
    dims = layout.dims
    what = f"{layout.shape.name} with {dims.workers} workers"
    fabric = build_fabric(intra_node_links(layout) + layout.parts(), dims.workers, dims.nodes, what)
    return with_named_links(fabric, layout.shape.named_links, what)


def with_named_links(fabric: Fabric, named: Sequence[NamedLinks], what: str) -> Fabric:
    """Return the graph with the rates and latencies of named links, of which later ones win."""
    if not named:
        return fabric
    rate_Bps, latency_ps = fabric.rate_Bps.copy(), fabric.latency_ps.copy()
    for item in named:
        found = find_links(fabric, item.pattern, what)
        if item.rate_Bps is not None:
            rate_Bps[found] = item.rate_Bps
        if item.latency_ps is not None:
            latency_ps[found] = item.latency_ps
    return replace(fabric, rate_Bps=rate_Bps, latency_ps=latency_ps)


def find_links(fabric: Fabric, pattern: str, what: str) -> Ints:
    """Return the numbers of the links that a name or a shell pattern (``*``, ``?``) names, int64, in order.

    Where there is none, `TopologyError` tells the nearest link of ``what`` and one link of each kind.
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
    compared = fabric.link_names[:: 1 + len(fabric) // _MAX_COMPARED]
    close = get_close_matches(pattern, compared, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    examples = ", ".join(block.name(0) for block in fabric.blocks.values() if block.count)
    raise TopologyError(f"{what} has no link {pattern!r} ({hint}there are for example {examples})")
