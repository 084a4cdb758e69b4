"""The links inside every node, whatever joins them, and those of network interfaces to the fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.topology.fabric import LinkPart

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.arrays import Floats, Ints
    from s2sim.topology.kinds.layout import Layout
    from s2sim.topology.node_set import Nodes
    from s2sim.topology.node_spec import LinkSpec, NodeSpec

    Ends = Callable[[Ints], tuple[Ints, Ints]]


def node_parts(layout: Layout) -> list[LinkPart]:
    """Return the links between GPUs, PCIe switches, nodes and the fabric, each kind out and in."""
    nodes = layout.dims.node_set
    hub, first_pcie = layout.first_node, layout.first_pcie
    parts = []
    if len(gpus := nodes.nvlink_gpus):
        # Nodes of one domain meet above them all.
        shared = nodes.specs[0].domain_nodes > 1
        joined = layout.first_domain + nodes.domain_of_gpu[gpus] if shared else hub + nodes.node_of_gpu[gpus]
        parts += _of_gpus("nvlink", nodes, gpus, lambda spec: spec.nvlink, joined)
    if nodes.meshes.variants:
        parts.append(_mesh(nodes))
    if len(gpus := nodes.pcie_gpus):
        switch = nodes.switch_of_gpu[gpus]
        at_host = _top(layout)[nodes.node_of_gpu[gpus]]
        parts += _of_gpus(
            "pcie", nodes, gpus, lambda spec: spec.pcie, np.where(switch < 0, at_host, first_pcie + switch)
        )
    if nodes.pcie_switches:
        parts += _uplinks(layout)
    if len(nodes.bridge_nodes):
        parts += _bridges(layout)
    parts += _of_sockets("memory", "host-memory", "node{}.socket{}.memory", layout, nodes.memory_sockets)
    parts += _of_sockets("socket", "socket", "node{}.socket{}.out", layout, nodes.linked_sockets)
    return [*parts, *_interfaces(layout)]


def _specs(nodes: Nodes, node: Ints, choose: Callable[[NodeSpec], LinkSpec | None]) -> tuple[Floats, Ints]:
    """Return rate and latency of what each node in ``node`` has, by its kind."""
    specs = [choose(spec) for spec in nodes.specs]
    rates = np.array([spec.rate_Bps if spec else 0.0 for spec in specs], np.float64)
    latencies = np.array([spec.latency_ps if spec else 0 for spec in specs], np.int64)
    return rates[nodes.spec[node]], latencies[nodes.spec[node]]


def _both_ways(
    key: str, link_class: str, specs: tuple[Floats, Ints], template: str, numbers: tuple[Ints, ...], ends: Ends
) -> list[LinkPart]:
    """Return links outwards and the same links back in."""

    def indices(number: int) -> list[int]:
        return [int(column[number]) for column in numbers]

    out = LinkPart(f"{key}.out", link_class, *specs, f"{template}.out", indices, len(numbers[0]), ends)
    back = LinkPart(f"{key}.in", link_class, *specs, f"{template}.in", indices, len(numbers[0]), ends)
    return [out, back.turned()]


def _of_gpus(
    name: str, nodes: Nodes, gpus: Ints, choose: Callable[[NodeSpec], LinkSpec | None], joined: Ints
) -> list[LinkPart]:
    """Return a link from each of some GPUs to the vertex that it joins."""
    node = nodes.node_of_gpu[gpus]
    numbers = (node, nodes.local_gpu(gpus))
    template = f"node{{}}.gpu{{}}.{name}"
    return _both_ways(name, name, _specs(nodes, node, choose), template, numbers, lambda _: (gpus, joined))


def _mesh(nodes: Nodes) -> LinkPart:
    """Return the links between GPUs, node by node; the lines between two GPUs are one link."""
    meshes = nodes.meshes
    source, target, lines = (
        np.concatenate([getattr(meshes.variants[variant], name) for variant in meshes.variant if variant >= 0])
        for name in ("source", "target", "lines")
    )
    node = np.repeat(np.arange(nodes.count), np.diff(meshes.first))
    rate_Bps, latency_ps = _specs(nodes, node, lambda spec: spec.nvlink)
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


def _top(layout: Layout) -> Ints:
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
    joined = _top(layout)[node]
    specs = _specs(nodes, node, lambda spec: spec.uplink)
    return _both_ways(
        "uplink", "pcie-uplink", specs, "node{}.pcie{}.uplink", numbers, lambda _: (layout.first_pcie + switch, joined)
    )


def _bridges(layout: Layout) -> list[LinkPart]:
    nodes = layout.dims.node_set
    node = nodes.bridge_nodes
    bridge = _top(layout)[node]
    specs = _specs(nodes, node, lambda spec: spec.bridge)
    return _both_ways("host", "pcie-host", specs, "node{}.host", (node,), lambda _: (bridge, layout.first_node + node))


def _of_sockets(name: str, link_class: str, template: str, layout: Layout, sockets: Ints) -> list[LinkPart]:
    """Return a link for each of some sockets, which leads from its node back to it: what is at the node passes it."""
    nodes = layout.dims.node_set
    if not len(sockets):
        return []
    node = nodes.node_of_socket[sockets]
    number = sockets - nodes.first_socket[node]
    specs = _specs(nodes, node, lambda spec: getattr(spec, name))
    hub = layout.first_node + node

    def indices(at: int) -> tuple[int, int]:
        return int(node[at]), int(number[at])

    return [LinkPart(name, link_class, *specs, template, indices, len(sockets), lambda _: (hub, hub))]


def _interfaces(layout: Layout) -> list[LinkPart]:
    """Return the links from network interfaces to the switches that they join."""
    nodes, first_pcie = layout.dims.node_set, layout.first_pcie
    node, port = nodes.node_of_port, np.arange(nodes.ports)
    start = np.where(nodes.switch_of_port < 0, layout.first_node + node, first_pcie + nodes.switch_of_port)
    end = layout.first_switch + layout.switch_of_port(port)
    specs = _specs(nodes, node, layout.shape.host_link_of)
    return _both_ways("nic", "nic", specs, "node{}.nic{}", (node, nodes.local_port(port)), lambda _: (start, end))
