"""The nodes of one cluster as arrays: GPUs, network interfaces and PCIe switches."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from s2sim.arrays import Ints, Mask
from s2sim.errors import TopologyError
from s2sim.topology.nvlink_mesh import LinkCounts, NodeMeshes, find_meshes
from s2sim.topology.shape import ClusterShape, NodeSpec

# The most links of a graph: each GPU and each interface has some.
_MOST = 10_000_000


def positions_of(chosen: Ints, among: int) -> Ints:
    """Return the position of each number in the sorted ``chosen``; -1 if absent."""
    position = np.full(among, -1, np.int64)
    position[chosen] = np.arange(len(chosen))
    return position


# Without slots, for cached properties.
@dataclass(frozen=True, eq=False)
class Nodes:
    """Nodes in order, each with the GPUs in use and with all of its interfaces and PCIe switches.

    GPUs, interfaces ("ports") and PCIe switches are numbered node by node. The last node may be partial.
    """

    specs: tuple[NodeSpec, ...]
    spec: Ints  # Which of them each node is
    # first_gpu, first_port, first_switch: node i holds the numbers ``first[i] ... first[i + 1] - 1``.
    first_gpu: Ints
    first_port: Ints
    first_switch: Ints
    node_of_gpu: Ints
    port_of_gpu: Ints  # The first interface that each GPU uses
    switch_of_gpu: Ints  # -1 below no PCIe switch
    node_of_port: Ints
    switch_of_port: Ints  # -1 at the host bridge

    @property
    def count(self) -> int:
        """Number of nodes."""
        return len(self.spec)

    @property
    def gpus(self) -> int:
        """GPUs in use."""
        return len(self.node_of_gpu)

    @property
    def ports(self) -> int:
        """Network interfaces."""
        return len(self.node_of_port)

    @property
    def pcie_switches(self) -> int:
        """PCIe switches."""
        return int(self.first_switch[-1])

    @property
    def most_nics(self) -> int:
        """Network interfaces of the kind of node that has most."""
        return max(spec.nics for spec in self.specs)

    @property
    def ports_per_gpu(self) -> int:
        """Network interfaces over which each GPU spreads a message, equal in all nodes."""
        return self.specs[0].nics_per_gpu

    @cached_property
    def ports_of_gpu(self) -> Ints:
        """All interfaces of each GPU, int64 of shape (GPUs, interfaces a GPU)."""
        return self.port_of_gpu[:, None] + np.arange(self.ports_per_gpu)

    @property
    def gpus_in_use(self) -> Ints:
        """How many GPUs of each node are in use, shape (nodes,)."""
        return np.diff(self.first_gpu)

    @cached_property
    def bridge_nodes(self) -> Ints:
        """Nodes with a rate of the host bridge."""
        return np.flatnonzero(self.having(lambda spec: spec.bridge is not None))

    @cached_property
    def nvlink_of_gpu(self) -> Ints:
        """Number of each GPU among those with a port to an NVSwitch, or -1."""
        return positions_of(np.flatnonzero(self.having(lambda spec: spec.has_nvswitch)[self.node_of_gpu]), self.gpus)

    @cached_property
    def pcie_of_gpu(self) -> Ints:
        """Number of each GPU among those with a PCIe link, or -1."""
        with_pcie = self.having(lambda spec: spec.pcie is not None)
        return positions_of(np.flatnonzero(with_pcie[self.node_of_gpu]), self.gpus)

    @cached_property
    def domain_of_node(self) -> Ints:
        """Number of the NVLink domain of each node; its own number if nodes do not share NVSwitches."""
        return np.arange(self.count, dtype=np.int64) // self.specs[0].domain_nodes

    @cached_property
    def domain_of_gpu(self) -> Ints:
        """Number of the NVLink domain of each GPU."""
        return self.domain_of_node[self.node_of_gpu]

    @property
    def domains(self) -> int:
        """Number of NVLink domains."""
        return int(self.domain_of_node[-1]) + 1

    @cached_property
    def staged(self) -> Mask:
        """Whether PCIe traffic between GPUs of each node passes host memory, bool of shape (nodes,)."""
        return self.having(lambda spec: not spec.peer_to_peer)

    @cached_property
    def first_socket(self) -> Ints:
        """Node i holds the sockets ``first[i] ... first[i + 1] - 1``, shape (nodes + 1,)."""
        sockets = np.array([spec.sockets for spec in self.specs], np.int64)[self.spec]
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(sockets)])

    @cached_property
    def node_of_socket(self) -> Ints:
        """Node of each socket."""
        return np.repeat(np.arange(self.count), np.diff(self.first_socket))

    @cached_property
    def socket_of_gpu(self) -> Ints:
        """Socket of each GPU: that of the first one below its PCIe switch."""
        node = self.node_of_gpu
        of_kinds = np.array([(spec.gpus, spec.sockets, spec.gpus_per_switch or 1) for spec in self.specs], np.int64)
        gpus, sockets, below = of_kinds[self.spec[node]].T
        first = self.local_gpu(np.arange(self.gpus)) // below * below
        socket: Ints = self.first_socket[node] + first * sockets // gpus
        return socket

    @cached_property
    def memory_sockets(self) -> Ints:
        """Sockets with a rate of host memory."""
        return np.flatnonzero(self.having(lambda spec: spec.memory is not None)[self.node_of_socket])

    @cached_property
    def linked_sockets(self) -> Ints:
        """Sockets with a rate of the link to the others."""
        return np.flatnonzero(self.having(lambda spec: spec.socket is not None)[self.node_of_socket])

    @cached_property
    def node_of_switch(self) -> Ints:
        """Node of each PCIe switch."""
        return np.repeat(np.arange(self.count), np.diff(self.first_switch))

    @cached_property
    def meshes(self) -> NodeMeshes:
        """The links that join GPUs directly."""
        return find_meshes(self.specs, self.spec, self.gpus_in_use)

    def mesh_lines(self, gpus: Ints) -> LinkCounts | None:
        """Return the number of NVLinks between each two of some GPUs of one node; None without a mesh."""
        node = self.node_of_gpu[gpus[0]]
        if (variant := self.meshes.variant[node]) < 0:
            return None
        ways, place = self.meshes.variants[variant], np.full(int(self.gpus_in_use[node]), -1, np.int64)
        place[self.local_gpu(gpus)] = np.arange(len(gpus))
        source, target = place[ways.source], place[ways.target]
        both = (source >= 0) & (target >= 0)
        lines = np.zeros((len(gpus), len(gpus)), np.int64)
        lines[source[both], target[both]] = ways.lines[both]
        return tuple(map(tuple, lines.tolist()))

    def local_gpu(self, gpu: Ints) -> Ints:
        """Return the number of each GPU in its node."""
        return gpu - self.first_gpu[self.node_of_gpu[gpu]]

    def local_port(self, port: Ints) -> Ints:
        """Return the number of each interface in its node."""
        return port - self.first_port[self.node_of_port[port]]

    def having(self, condition: Callable[[NodeSpec], bool]) -> Mask:
        """Return a mask of the nodes of which the kind fulfils a condition."""
        return np.array([condition(spec) for spec in self.specs], np.bool_)[self.spec]


def fill_nodes(shape: ClusterShape, workers: int) -> Nodes:
    """Return the nodes that ``workers`` GPUs fill in order; there are enough."""
    left, counts = workers, []
    for kind in shape.nodes:
        needed = -(-left // kind.gpus)
        counts.append(needed if kind.count is None else min(needed, kind.count))
        left -= min(left, counts[-1] * kind.gpus)
    ports = sum(count * spec.nics for count, spec in zip(counts, shape.nodes, strict=True))
    if max(workers, ports) > _MOST:
        raise TopologyError(
            f"{shape.name} with {workers} workers has {workers:,} GPUs and {ports:,} network interfaces, more than "
            f"{_MOST:,}: ask for fewer workers"
        )
    spec = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    of_kinds = [(node.gpus, node.nics, node.pcie_switches, node.gpus_per_switch or 1) for node in shape.nodes]
    gpus, nics, switches, per_switch = np.array(of_kinds, np.int64)[spec].T
    nics_at_switch = np.array([node.pcie_switches > 0 and not node.nics_at_host for node in shape.nodes])[spec]
    first_gpu, first_port, first_switch = (
        np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]) for counts in (gpus, nics, switches)
    )
    first_gpu[-1] = workers
    node = np.arange(len(spec), dtype=np.int64)
    node_of_gpu, node_of_port = np.repeat(node, np.diff(first_gpu)), np.repeat(node, nics)
    local_gpu = np.arange(workers) - first_gpu[node_of_gpu]
    local_port = np.arange(ports) - first_port[node_of_port]
    # The first GPU that uses an interface: interface i serves GPUs from ceil(i * GPUs / interfaces) on, or one of them.
    users, ports_there = gpus[node_of_port], nics[node_of_port]
    first_user = np.where(ports_there > users, local_port * users // ports_there, -(-local_port * users // ports_there))
    return Nodes(
        specs=shape.nodes,
        spec=spec,
        first_gpu=first_gpu,
        first_port=first_port,
        first_switch=first_switch,
        node_of_gpu=node_of_gpu,
        port_of_gpu=first_port[node_of_gpu] + local_gpu * nics[node_of_gpu] // gpus[node_of_gpu],
        switch_of_gpu=np.where(
            (switches > 0)[node_of_gpu], first_switch[node_of_gpu] + local_gpu // per_switch[node_of_gpu], -1
        ),
        node_of_port=node_of_port,
        switch_of_port=np.where(
            nics_at_switch[node_of_port], first_switch[node_of_port] + first_user // per_switch[node_of_port], -1
        ),
    )
