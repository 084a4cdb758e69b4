"""Which way a transfer takes: out of its node, through the fabric as its kind has it, into the other node.

Between nodes it is spread evenly over all interfaces that each of the GPUs has. Inside a node, or a domain of nodes
that NVSwitches join, it goes over the NVSwitch or a mesh of NVLinks, else over PCIe: up to the lowest switch that is
above both ends, and down again; up to the host where GPUs do not reach each other's memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from s2sim.topology.node_set import numbered
from s2sim.topology.stages import series, side_by_side, single

if TYPE_CHECKING:
    from s2sim.arrays import Ints, Mask
    from s2sim.topology.fabric import Fabric
    from s2sim.topology.kinds.layout import Layout
    from s2sim.topology.node_set import Nodes
    from s2sim.topology.routes import Stage


@dataclass(frozen=True, slots=True, eq=False)
class _AtHost:
    """What transfers do at a host, between the way up to it and the way down: all arrays of shape (m,).

    Attributes
    ----------
    start, end : int64 array
        Socket at which each arrives, and from which it goes on.
    writes, reads : bool array
        Whether a GPU writes it to the memory of the one, and whether a GPU reads it from that of the other.
    crosses : bool array
        Whether it passes from socket to socket.
    """

    start: Ints
    end: Ints
    writes: Mask
    reads: Mask
    crosses: Mask

    def back(self) -> _AtHost:
        """Return the same the other way."""
        return _AtHost(self.end, self.start, self.reads, self.writes, self.crosses)


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
        inside = nodes.domain_of_gpu[source] == nodes.domain_of_gpu[target]
        outside = ~inside
        over_switch = inside & (nodes.nvlink_of_gpu[source] >= 0)
        meshed, over_mesh = self._mesh(source, target, inside)
        up = inside & ~over_switch & ~over_mesh
        staged = up & nodes.staged[nodes.node_of_gpu[source]]
        apart = up & (nodes.socket_of_gpu[source] != nodes.socket_of_gpu[target])
        source_port, target_port = nodes.port_of_gpu[source], nodes.port_of_gpu[target]
        out, into = self._at_interfaces(source, outside), self._at_interfaces(target, outside)
        return [
            *self._port("nvlink", "out", nodes.nvlink_of_gpu[source], over_switch),
            *meshed,
            *self._port("pcie", "out", nodes.pcie_of_gpu[source], up | (outside & (nodes.pcie_of_gpu[source] >= 0))),
            *self._tree(
                nodes.switch_of_gpu[source],
                np.where(inside, nodes.switch_of_gpu[target], nodes.switch_of_port[source_port]),
                up | outside,
                _AtHost(
                    nodes.socket_of_gpu[source],
                    np.where(inside, nodes.socket_of_gpu[target], out.start),
                    staged | out.writes,
                    staged,
                    apart | out.crosses,
                ),
            ),
            *self._between(source_port, target_port, outside),
            *self._tree(nodes.switch_of_port[target_port], nodes.switch_of_gpu[target], outside, into.back()),
            *self._port("pcie", "in", nodes.pcie_of_gpu[target], up | (outside & (nodes.pcie_of_gpu[target] >= 0))),
            *self._port("nvlink", "in", nodes.nvlink_of_gpu[target], over_switch),
        ]

    def over_nvlink(self, source: Ints, target: Ints) -> Mask:
        """Return which ways between GPUs cross NVSwitches or links of a mesh alone, bool of shape (m,)."""
        nodes = self._nodes
        inside = nodes.domain_of_gpu[source] == nodes.domain_of_gpu[target]
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
            *self._tree(nodes.switch_of_gpu[gpu], nodes.switch_of_port[port], every, self._at_interfaces(gpu, every)),
            single(self.fabric, "nic.out", port, every),
        ]

    def from_ports(self, gpu: Ints) -> list[Stage]:
        """Return what lies between the fabric and GPUs, inwards: the way of `to_ports` back."""
        nodes, port = self._nodes, self._nodes.port_of_gpu[gpu]
        every = np.ones(len(gpu), np.bool_)
        at_host = self._at_interfaces(gpu, every).back()
        return [
            single(self.fabric, "nic.in", port, every),
            *self._tree(nodes.switch_of_port[port], nodes.switch_of_gpu[gpu], every, at_host),
            *self._port("pcie", "in", nodes.pcie_of_gpu[gpu], nodes.pcie_of_gpu[gpu] >= 0),
        ]

    def _at_interfaces(self, gpu: Ints, outside: Mask) -> _AtHost:
        """Return what transfers from GPUs to the interfaces of their nodes do at the host."""
        nodes = self._nodes
        node, socket = nodes.node_of_gpu[gpu], nodes.socket_of_gpu[gpu]
        first, after = nodes.first_socket[node], nodes.first_socket[node + 1]
        other = np.where(nodes.far[node], first + (socket - first + 1) % (after - first), socket)
        nothing = np.zeros(len(gpu), np.bool_)
        return _AtHost(socket, other, outside & nodes.stored[node], nothing, outside & nodes.far[node])

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

    def _tree(self, source: Ints, target: Ints, mask: Mask, at_host: _AtHost) -> list[Stage]:
        """Return what lies between two PCIe switches of a node, or between one and the host bridge (-1).

        What passes host memory passes the bridge though both ends are below one switch.
        """
        nodes = self._nodes
        passed = self._memories(at_host)
        if not nodes.pcie_switches:
            return passed
        through = mask & ((source != target) | at_host.writes | at_host.reads)
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
        return [*up, *passed, *down]

    def _memories(self, at_host: _AtHost) -> list[Stage]:
        """Return the host memories and the links between sockets that transfers pass."""
        nodes, found = self._nodes, []
        if len(nodes.memory_sockets):
            number = numbered(nodes.memory_sockets, len(nodes.node_of_socket))
            start, end = number[at_host.start], number[at_host.end]
            writes, reads = at_host.writes & (start >= 0), at_host.reads & (end >= 0)
            both = writes & reads & (start == end)
            found += [
                replace(single(self.fabric, "memory", start, both), weight=2.0),
                single(self.fabric, "memory", start, writes & ~both),
                single(self.fabric, "memory", end, reads & ~both),
            ]
        if len(nodes.linked_sockets):
            link = numbered(nodes.linked_sockets, len(nodes.node_of_socket))[at_host.start]
            found.insert(2 if found else 0, single(self.fabric, "socket", link, at_host.crosses & (link >= 0)))
        return found
