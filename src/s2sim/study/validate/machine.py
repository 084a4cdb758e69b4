"""From what is written on a machine to a cluster: by the hardware catalogue, and nothing that was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from s2sim.collectives.timing.ways import Ways
from s2sim.errors import S2SimError
from s2sim.study.validate.board import RACK, Board, board_of, links_inside
from s2sim.topology.cluster import build_cluster
from s2sim.topology.files.quantity import Quantity
from s2sim.topology.files.read import shape_of

if TYPE_CHECKING:
    from s2sim.study.validate.curve import Machine
    from s2sim.topology.cluster import Cluster
    from s2sim.topology.files.links import GpuLinks, LinkCatalogue
    from s2sim.topology.shape import ClusterShape

# As topologies call what indexes call otherwise.
_TRANSPORTS = {"": "ib-verbs", "verbs": "ib-verbs"}
_MOST_IN_A_SOCKET = 4
# Simulating more takes longer than people wait for a curve.
_MOST_RANKS = 2**13


def shape_of_machine(machine: Machine, catalogue: LinkCatalogue) -> ClusterShape:
    """Return the shape of the cluster that a row of an index describes.

    `S2SimError` where something is not known, or where the parts do not fit each other.
    """
    if machine.ranks < 2:
        raise S2SimError("one rank has nothing to send")
    if machine.ranks > _MOST_RANKS:
        raise S2SimError(f"{machine.ranks} ranks are more than {_MOST_RANKS}, which takes too long")
    if machine.ranks > machine.gpus_per_node * machine.nodes:
        raise S2SimError(f"{machine.ranks} ranks do not fit on {machine.nodes} nodes of {machine.gpus_per_node} GPUs")
    gpu = catalogue.find_gpu(machine.gpu_model)
    if gpu is None:
        raise S2SimError(f"the GPU {machine.gpu_model!r} is not in the hardware catalogue")
    name = catalogue.gpu_name(machine.gpu_model)
    board = board_of(machine, gpu)
    # Ranks are spread evenly.
    gpus = -(-machine.ranks // machine.nodes)
    nics = max(1, machine.nics_per_node * gpus // machine.gpus_per_node)
    rack_nodes = _rack_nodes(machine, board)
    inside = links_inside(machine, gpu, board, gpus, catalogue) if gpus * rack_nodes > 1 else []
    if rack_nodes > 1:
        inside.append(Quantity("nvlink.domain_nodes", rack_nodes, "user", "index"))
    switched = bool(inside) and inside[0].field == "nvlink.rate"
    fields = [
        Quantity("name", machine.id, "user", ""),
        Quantity("node.gpus", gpus, "user", "index"),
        *inside,
        *_pcie(machine, gpu, gpus, catalogue, board, switched=switched),
        *([Quantity("gpu", name, "user", "index")] if name is not None else []),
        *_network(machine, gpus, nics, gpus * rack_nodes, _path(machine, gpu), catalogue),
    ]
    return shape_of({field.field: field for field in fields}, Path(machine.id))


class MachineClusters:
    """Clusters of machines by the hardware catalogue, built once for those that differ in nothing but their name."""

    def __init__(self, catalogue: LinkCatalogue) -> None:
        self._catalogue = catalogue
        self._built: dict[object, tuple[Cluster, Ways]] = {}

    def of(self, machine: Machine) -> tuple[Cluster, Ways]:
        """Return the cluster of a machine and its routes; `S2SimError` where something is not known."""
        shape = shape_of_machine(machine, self._catalogue)
        key = str([(item.field, item.value) for item in shape.quantities if item.field != "name"]), machine.ranks
        if key not in self._built:
            cluster = build_cluster(shape, machine.ranks)
            self._built[key] = cluster, Ways(cluster)
        return self._built[key]


def _rack_nodes(machine: Machine, board: Board | None) -> int:
    """Return how many nodes one NVLink domain joins."""
    if board is None or board.shape != RACK:
        return 1
    return max(1, board.gpus // machine.gpus_per_node)


def _pcie(
    machine: Machine, gpu: GpuLinks, gpus: int, catalogue: LinkCatalogue, board: Board | None, *, switched: bool
) -> list[Quantity]:
    """Return the PCIe of a node's GPUs, and the memory of its host where what they send passes it."""
    if gpu.pcie is None:
        return []
    links = catalogue.pcie[str(gpu.pcie.value)]
    special = catalogue.board[board.shape].host if board is not None and board.shape in catalogue.board else None
    fields = [(special or links.rate).of("pcie.rate"), catalogue.latency.pcie.of("pcie.latency")]
    text = machine.intra_interconnect.lower()
    no_peers = not switched and (machine.p2p == "no" or "no p2p" in text)
    if no_peers:
        fields.append(Quantity("pcie.peer_to_peer", "no", "user", "index"))
    if no_peers or (machine.ranks > gpus and machine.path == "staged"):
        fields.append(links.memory.of("pcie.memory.rate"))
        # GPUs in use are those of the first sockets.
        sockets = 2 if "two sockets" in text or machine.gpus_per_node > _MOST_IN_A_SOCKET else 1
        used = -(-gpus * sockets // machine.gpus_per_node)
        if used > 1:
            fields.append(Quantity("pcie.sockets", used, "user", "index, or assumed: more than four cards have two"))
    return fields


def _path(machine: Machine, gpu: GpuLinks) -> str:
    """Return the way between GPU and interface: past a Grace, which NVLink-C2C joins, nothing is in the way."""
    past_grace = gpu.pcie is None and machine.path == "host-bridge"
    return "switch" if past_grace else machine.path or "switch"


def _network(
    machine: Machine, gpus: int, nics: int, joined: int, path: str, catalogue: LinkCatalogue
) -> list[Quantity]:
    """Return interfaces and fabric; where GPUs cannot have as many interfaces each, they have one of the rates."""
    if machine.ranks <= joined:
        unused = "index: one node or NVLink domain, which nothing leaves"
        return [Quantity("nic.rate", "1Gbps", "user", unused), Quantity("fabric.kind", "single-switch", "user", unused)]
    network = None if machine.transport == "none" else catalogue.find_network(machine.transport)
    if network is None:
        raise S2SimError(f"several nodes over the transport {machine.transport!r}, which is not in the catalogue")
    if not machine.nics_per_node or not machine.nic_rate_gbps:
        raise S2SimError("several nodes, and nics_per_node or nic_rate_gbps is 0")
    count = min(nics, gpus) if nics % gpus else nics
    together = nics / count
    nodes = -(-machine.ranks // gpus)
    # A non-blocking tree is a switch with a longer way: up to a spine and down again.
    switches = 1 if nodes <= int(network.nodes_below_a_switch.value) else 2
    link_ns = float(str(network.link.value).removesuffix("ns"))
    return [
        Quantity("nic.transport", _TRANSPORTS.get(machine.transport, machine.transport), "user", "index"),
        Quantity("nic.path", path, "user", "index"),
        Quantity("nic.count", count, "user", "index"),
        Quantity("nic.rate", f"{machine.nic_rate_gbps * together:.9g}Gbps", "user", "index"),
        network.nic.of("nic.latency"),
        network.link.of("fabric.link.latency", f"{link_ns * switches:g}ns"),
        Quantity("fabric.kind", "single-switch", "user", "assumed: nothing blocks between nodes"),
    ]
