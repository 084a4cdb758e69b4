"""Which way a transfer takes: out of its node, through the fabric as its kind has it, into the other node.

Between nodes it is spread evenly over all interfaces that each of the GPUs has. Inside a node it goes over the NVSwitch
or a mesh of NVLinks, else over PCIe: up to the lowest switch that is above both ends, and down again; up to the host
where GPUs do not reach each other's memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.topology.stages import series, side_by_side, single

if TYPE_CHECKING:
    from s2sim.arrays import Ints, Mask
    from s2sim.topology.fabric import Fabric
    from s2sim.topology.kinds.layout import Layout
    from s2sim.topology.node_set import Nodes
    from s2sim.topology.routes import Stage


@dataclass(frozen=True, slots=True)
class Router:
    """Everything that decides a way; ``seed`` is that of the hash."""

    layout: Layout
    fabric: Fabric
    seed: int

    @property
    def _nodes(self) -> Nodes:
        return self.layout.dims.node_set

    def stages(self, source: Ints, target: Ints) -> list[Stage]:
        """Return what transfers between GPUs cross, in order; GPUs are int64 of shape (m,), different in each pair."""
        nodes = self._nodes
        inside = nodes.node_of_gpu[source] == nodes.node_of_gpu[target]
        outside = ~inside
        over_switch = inside & (nodes.nvlink_of_gpu[source] >= 0)
        meshed, over_mesh = self._mesh(source, target, inside)
        up = inside & ~over_switch & ~over_mesh
        source_port, target_port = nodes.port_of_gpu[source], nodes.port_of_gpu[target]
        return [
            *self._port("nvlink", "out", nodes.nvlink_of_gpu[source], over_switch),
            *meshed,
            *self._port("pcie", "out", nodes.pcie_of_gpu[source], up | (outside & (nodes.pcie_of_gpu[source] >= 0))),
            *self._tree(
                nodes.switch_of_gpu[source],
                np.where(inside, nodes.switch_of_gpu[target], nodes.switch_of_port[source_port]),
                up | outside,
                to_host=up & nodes.staged[nodes.node_of_gpu[source]],
            ),
            *self._between(source_port, target_port, outside),
            *self._tree(nodes.switch_of_port[target_port], nodes.switch_of_gpu[target], outside),
            *self._port("pcie", "in", nodes.pcie_of_gpu[target], up | (outside & (nodes.pcie_of_gpu[target] >= 0))),
            *self._port("nvlink", "in", nodes.nvlink_of_gpu[target], over_switch),
        ]

    def over_nvlink(self, source: Ints, target: Ints) -> Mask:
        """Return which ways between GPUs of one node cross an NVSwitch or links of a mesh alone, bool of shape (m,)."""
        nodes = self._nodes
        inside = nodes.node_of_gpu[source] == nodes.node_of_gpu[target]
        over: Mask = inside & (nodes.nvlink_of_gpu[source] >= 0)
        if nodes.meshes.variants and not over.all():
            over |= self._mesh(source, target, inside)[1]
        return over

    def to_ports(self, gpu: Ints) -> list[Stage]:
        """Return what lies between GPUs and the fabric, outwards: over PCIe and through their network interfaces."""
        nodes, port = self._nodes, self._nodes.port_of_gpu[gpu]
        every = np.ones(len(gpu), np.bool_)
        return [
            *self._port("pcie", "out", nodes.pcie_of_gpu[gpu], nodes.pcie_of_gpu[gpu] >= 0),
            *self._tree(nodes.switch_of_gpu[gpu], nodes.switch_of_port[port], every),
            single(self.fabric, "nic.out", port, every),
        ]

    def from_ports(self, gpu: Ints) -> list[Stage]:
        """Return what lies between the fabric and GPUs, inwards: the way of `to_ports` back."""
        nodes, port = self._nodes, self._nodes.port_of_gpu[gpu]
        every = np.ones(len(gpu), np.bool_)
        return [
            single(self.fabric, "nic.in", port, every),
            *self._tree(nodes.switch_of_port[port], nodes.switch_of_gpu[gpu], every),
            *self._port("pcie", "in", nodes.pcie_of_gpu[gpu], nodes.pcie_of_gpu[gpu] >= 0),
        ]

    def _between(self, source: Ints, target: Ints, outside: Mask) -> list[Stage]:
        """Return what lies between the first interfaces of two GPUs: over all that each has, side by side."""
        lanes = range(self._nodes.ports_per_gpu)
        return side_by_side(
            [
                [
                    single(self.fabric, "nic.out", source + lane, outside),
                    *self.layout.stages(self.fabric, source + lane, target + lane, outside, self.seed),
                    single(self.fabric, "nic.in", target + lane, outside),
                ]
                for lane in lanes
            ]
        )

    def _port(self, name: str, way: str, link: Ints, mask: Mask) -> list[Stage]:
        """Return the port of a GPU, where there are such ports."""
        key = f"{name}.{way}"
        return [single(self.fabric, key, link, mask)] if key in self.fabric.blocks else []

    def _mesh(self, source: Ints, target: Ints, inside: Mask) -> tuple[list[Stage], Mask]:
        """Return the links between GPUs of one node, and which transfers take them."""
        if not self._nodes.meshes.variants:
            return [], np.zeros(len(source), np.bool_)
        nodes, first = self._nodes, self.fabric.blocks["nvlink.mesh"].start
        node = nodes.node_of_gpu[source]
        # GPUs of two nodes have no way here; any numbers stand for theirs.
        other = np.where(inside, target, source)
        links = self._nodes.meshes.links(node, nodes.local_gpu(source), nodes.local_gpu(other))
        stages = [series(self.fabric, first + link[link >= 0], (link >= 0).astype(np.int64)) for link in links]
        return stages, np.any([link >= 0 for link in links], axis=0) if links else np.zeros(len(source), np.bool_)

    def _tree(self, source: Ints, target: Ints, mask: Mask, to_host: Mask | None = None) -> list[Stage]:
        """Return what lies between two PCIe switches of a node, or between one and the host bridge (-1).

        What goes ``to_host`` passes the bridge though both ends are below one switch.
        """
        nodes = self._nodes
        if not nodes.pcie_switches:
            return []
        through = mask & ((source != target) if to_host is None else (source != target) | to_host)
        rises, falls = through & (source >= 0), through & (target >= 0)
        up = [single(self.fabric, "uplink.out", source, rises)]
        down = [single(self.fabric, "uplink.in", target, falls)]
        if "host.out" in self.fabric.blocks:
            source_bridge, target_bridge = (
                nodes.bridge_of_node[nodes.node_of_switch[source]],
                nodes.bridge_of_node[nodes.node_of_switch[target]],
            )
            up.append(single(self.fabric, "host.out", source_bridge, rises & (source_bridge >= 0)))
            down.insert(0, single(self.fabric, "host.in", target_bridge, falls & (target_bridge >= 0)))
        return [*up, *down]
