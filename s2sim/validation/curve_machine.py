"""Clusters of the machines of measured curves, by the hardware catalogue alone."""

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from s2sim.collectives.timing.library_profile import LibraryProfile
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import S2SimError, suggest_nearest
from s2sim.libraries.constants import load_constants, read_version
from s2sim.libraries.gloo import HostLibraryProfile
from s2sim.libraries.nccl import NcclProfile
from s2sim.libraries.tuner import newest_version
from s2sim.topology.cluster import build_cluster
from s2sim.topology.hardware import (
    GpuLinks,
    catalogue_values,
    find_gpu_links,
    find_gpu_name,
    find_network_links,
    usual_library,
)
from s2sim.topology.quantity import Quantity
from s2sim.topology.read_file import parse_shape
from s2sim.topology.shape import MAX_MESHED, ClusterShape
from s2sim.validation.curve import MeasuredMachine
from s2sim.validation.node_files import names

MESH, SWITCH, RACK = "mesh", "switch", "rack"
# Most GPUs that bridges or boards of processors join with the links of the GPU.
_MAX_BRIDGED = 4
_MAX_IN_A_SOCKET = 4
# Simulating more takes longer than people wait for a curve.
_MAX_RANKS = 2**13


@dataclass(frozen=True, slots=True)
class NvlinkBoard:
    """The number of GPUs in one NVLink domain, and its shape as named in `GpuLinks.boards`."""

    shape: str
    gpus: int


def nvlink_board(machine: MeasuredMachine, gpu: GpuLinks) -> NvlinkBoard | None:
    """Return the board of a node's GPUs; None where PCIe alone joins them, or nothing has to.

    A domain without a board in the catalogue is a rack if the GPU has those and the node is smaller, joined by an
    NVSwitch if the row states one, else, of few GPUs, a mesh that splits the links of each. Without a domain it is the
    smallest board of the catalogue that has all GPUs of a node, or the largest.
    """
    domain = machine.nvlink_domain_gpus
    joined = _mentions_nvlink(machine, gpu) if domain is None else domain > 1
    if not joined or (machine.gpus_per_node == 1 and gpu.boards.get(domain or 0) != RACK):
        return None
    if gpu.nvlink is None or gpu.links is None:
        raise S2SimError(f"the NVLinks of {machine.gpu_model} are not in the catalogue")
    if domain is None:
        if machine.has_nvswitch:
            return NvlinkBoard(SWITCH, machine.gpus_per_node)
        large_enough = [size for size in gpu.boards if size >= machine.gpus_per_node]
        domain = min(large_enough) if large_enough else max(gpu.boards, default=machine.gpus_per_node)
    if domain in gpu.boards:
        return NvlinkBoard(gpu.boards[domain], domain)
    if RACK in gpu.boards.values() and domain > machine.gpus_per_node:
        return NvlinkBoard(RACK, domain)
    if machine.has_nvswitch:
        return NvlinkBoard(SWITCH, domain)
    if domain > _MAX_BRIDGED or domain > gpu.links.value + 1:
        raise S2SimError(f"no board of {domain} {machine.gpu_model} in one NVLink domain is in the catalogue")
    return NvlinkBoard(MESH, domain)


def _mentions_nvlink(machine: MeasuredMachine, gpu: GpuLinks) -> bool:
    text = machine.intra_interconnect.lower()
    if "nvlink" in text or "nvswitch" in text or "infinity" in text or "xgmi" in text:
        return "no nvlink" not in text
    return "pcie" not in text and bool(gpu.boards)


def intra_node_fields(machine: MeasuredMachine, gpu: GpuLinks, board: NvlinkBoard | None, gpus: int) -> list[Quantity]:
    """Return the fields of the NVLinks between the first ``gpus`` of a node, of which there are several."""
    if board is None:
        if gpu.pcie is None:
            raise S2SimError(f"what joins {gpus} {machine.gpu_model} without NVLink is not in the catalogue")
        return []
    # Without them there is no board.
    assert gpu.nvlink is not None
    assert gpu.links is not None
    one = catalogue_values("nvlink", gpu.nvlink)["rate"]
    one_GBps = float(str(one.value).removesuffix("GB/s"))
    links = int(gpu.links.value)
    if board.shape in (SWITCH, RACK) and gpus <= board.gpus:
        port = catalogue_values("latency", "nvlink_port")["value"]
        return [one.of("nvlink.rate", f"{links * one_GBps:g}GB/s"), port.of("nvlink.latency")]
    if board.shape in (SWITCH, RACK):
        if board.gpus > MAX_MESHED:
            raise S2SimError(f"a node of {gpus} GPUs on boards of {board.gpus} is not in the catalogue")
        # Each of several boards in a node is like a mesh that shares out the links of a GPU.
        lines, rate = 1, one.of("nvlink.rate", f"{links * one_GBps / (board.gpus - 1):.9g}GB/s")
    else:
        lines, rate = max(1, links // (board.gpus - 1)), one.of("nvlink.rate")
    if of_shape := catalogue_values("board", board.shape):
        stated = of_shape["pairs"]
        of_board = [(pair[0], pair[1]) for pair in stated.value]
    else:
        stated = gpu.links
        of_board = [pair for pair in combinations(range(board.gpus), 2) for _ in range(lines)]
    pairs = [
        [first + one, first + other]
        for first in range(0, gpus, board.gpus)
        for one, other in of_board
        if first + max(one, other) < gpus
    ]
    if not pairs:
        return []
    return [
        Quantity("nvlink.kind", "mesh", "user", "index and catalogue"),
        rate,
        catalogue_values("latency", "nvlink_direct")["value"].of("nvlink.latency"),
        stated.of("nvlink.pairs", pairs),
    ]


def machine_library(machine: MeasuredMachine) -> LibraryProfile:
    """Return a machine's library: NCCL, of its date if no version is told, RCCL of AMD's GPUs, MPI or Gloo of hosts."""
    if machine.in_host_memory:
        return HostLibraryProfile("gloo" if "gloo" in machine.nccl_version.lower() else "mpi")
    library = usual_library(machine.gpu_model)
    known = load_constants(library).tables["protocol"]
    if machine.protocol and machine.protocol not in known:
        raise S2SimError(f"protocol {machine.protocol!r}{suggest_nearest(machine.protocol, known)}")
    return NcclProfile(
        library,
        one_process=machine.launch == "node",
        only=machine.protocol,
        version=read_version(machine.nccl_version) or (newest_version(machine.date) if library == "nccl" else ()),
        min_channels=machine.min_channels or 1,
    )


def machine_shape(machine: MeasuredMachine) -> ClusterShape:
    """Return the shape of an index row's cluster; `S2SimError` where facts are missing or do not fit each other."""
    if machine.ranks < 2:
        raise S2SimError("one rank has nothing to send")
    if machine.ranks > _MAX_RANKS:
        raise S2SimError(f"{machine.ranks} ranks are more than {_MAX_RANKS}, which takes too long")
    if machine.ranks > machine.gpus_per_node * machine.nodes:
        raise S2SimError(f"{machine.ranks} ranks do not fit on {machine.nodes} nodes of {machine.gpus_per_node} GPUs")
    if (gpu := find_gpu_links(machine.gpu_model)) is None:
        raise S2SimError(f"the GPU {machine.gpu_model!r} is not in the hardware catalogue")
    name = find_gpu_name(machine.gpu_model)
    board = nvlink_board(machine, gpu)
    # Ranks are spread evenly.
    gpus = -(-machine.ranks // machine.nodes)
    nics = max(1, machine.nics_per_node * gpus // machine.gpus_per_node)
    rack_nodes = max(1, board.gpus // machine.gpus_per_node) if board is not None and board.shape == RACK else 1
    inside = intra_node_fields(machine, gpu, board, gpus) if gpus * rack_nodes > 1 else []
    if rack_nodes > 1:
        inside.append(Quantity("nvlink.domain_nodes", rack_nodes, "user", "index"))
    fields = [
        Quantity("name", machine.id, "user", ""),
        Quantity("node.gpus", gpus, "user", "index"),
        *inside,
        *_pcie(machine, gpu, gpus, board, switched=bool(inside) and inside[0].field == "nvlink.rate"),
        *([Quantity("gpu", name, "user", "index")] if name is not None else []),
        *_network(machine, gpu, gpus, nics, gpus * rack_nodes),
    ]
    return parse_shape({field.field: field for field in fields}, Path(machine.id))


def machine_timer(machine: MeasuredMachine, known: dict[object, Timer]) -> Timer:
    """Return the timer of a machine's cluster, without a library; `S2SimError` where something is not known.

    ``known`` keeps one for all machines that differ in nothing but their name.
    """
    shape = machine_shape(machine)
    key = str([(item.field, item.value) for item in shape.quantities if item.field != "name"]), machine.ranks
    if key not in known:
        known[key] = Timer(build_cluster(shape, machine.ranks))
    return known[key]


def _pcie(
    machine: MeasuredMachine, gpu: GpuLinks, gpus: int, board: NvlinkBoard | None, *, switched: bool
) -> list[Quantity]:
    if gpu.pcie is None:
        return []
    links, latency = catalogue_values("pcie", str(gpu.pcie.value)), catalogue_values("latency", "pcie")["value"]
    special = None if board is None else catalogue_values("board", board.shape).get("host")
    fields = [(special or links["rate"]).of("pcie.rate"), latency.of("pcie.latency")]
    text = machine.intra_interconnect.lower()
    no_peers = not switched and (machine.p2p == "no" or "no p2p" in text)
    if no_peers:
        fields.append(Quantity("pcie.peer_to_peer", "no", "user", "index"))
    if no_peers or (machine.ranks > gpus and machine.nic_path == "staged"):
        fields.append(links["memory"].of("pcie.memory.rate"))
        # GPUs in use are those of the first sockets.
        sockets = 2 if "two sockets" in text or machine.gpus_per_node > _MAX_IN_A_SOCKET else 1
        if (used := -(-gpus * sockets // machine.gpus_per_node)) > 1:
            fields.append(Quantity("pcie.sockets", used, "user", "index, or assumed: more than four cards have two"))
    return fields


def _network(machine: MeasuredMachine, gpu: GpuLinks, gpus: int, nics: int, joined: int) -> list[Quantity]:
    if machine.ranks <= joined:
        unused = "index: one node or NVLink domain, which nothing leaves"
        return [Quantity("nic.rate", "1Gbps", "user", unused), Quantity("fabric.kind", "single-switch", "user", unused)]
    network = None if machine.transport == "none" else find_network_links(machine.transport)
    if network is None:
        raise S2SimError(f"several nodes over the transport {machine.transport!r}, which is not in the catalogue")
    if not machine.nics_per_node or not machine.nic_rate_gbps:
        raise S2SimError("several nodes, and nics_per_node or nic_rate_gbps is 0 or not given")
    count = min(nics, gpus) if nics % gpus else nics
    together = nics / count
    nodes = -(-machine.ranks // gpus)
    # A non-blocking tree is a switch with a longer way: up to a spine and down again.
    switches = 1 if nodes <= int(network.nodes_below_a_switch.value) else 2
    link_ns = float(str(network.link.value).removesuffix("ns"))
    # Past a Grace, which NVLink-C2C joins to the GPU, no host bridge is in the way.
    past_grace = gpu.pcie is None and machine.nic_path == "host-bridge"
    return [
        Quantity("nic.transport", names()["network"].get(machine.transport, machine.transport), "user", "index"),
        Quantity("nic.path", "switch" if past_grace else machine.nic_path, "user", "index"),
        Quantity("nic.count", count, "user", "index"),
        Quantity("nic.queue_pairs", machine.qps or 1, "user", "index"),
        Quantity("nic.rate", f"{machine.nic_rate_gbps * together:.9g}Gbps", "user", "index"),
        network.nic.of("nic.latency"),
        network.link.of("fabric.link.latency", f"{link_ns * switches:g}ns"),
        Quantity("fabric.kind", "single-switch", "user", "assumed: nothing blocks between nodes"),
    ]
