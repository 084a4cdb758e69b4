"""From what is written on a machine to a cluster: by the hardware catalogue, and nothing that was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.topology.files.quantity import Quantity
from s2sim.topology.files.read import shape_of

if TYPE_CHECKING:
    from s2sim.study.validate.curve import Machine
    from s2sim.topology.files.links import GpuLinks, LinkCatalogue
    from s2sim.topology.shape import ClusterShape

_MESH, _SWITCH, _RACK = "mesh", "switch", "rack"
# As topologies call what indexes call otherwise.
_TRANSPORTS = {"": "ib-verbs", "verbs": "ib-verbs"}
# Of each generation of NVLink whose switches reduce, a GPU as libraries call it.
_GPUS = {"sm90": "h100", "sm100": "b200"}
# Simulating more takes longer than people wait for a curve.
_MOST_RANKS = 2**13


class NotPredictedError(S2SimError):
    """Metadata or catalogue do not say enough; the text is the reason."""


def shape_of_machine(machine: Machine, catalogue: LinkCatalogue) -> ClusterShape:
    """Return the shape of the cluster that a row of an index describes.

    `NotPredictedError` where something is not known, `S2SimError` where the parts do not fit each other.
    """
    if machine.ranks < 2:
        raise NotPredictedError("one rank has nothing to send")
    if machine.ranks > _MOST_RANKS:
        raise NotPredictedError(f"{machine.ranks} ranks are more than {_MOST_RANKS}, which takes too long")
    if machine.ranks > machine.gpus_per_node * machine.nodes:
        raise NotPredictedError(
            f"{machine.ranks} ranks do not fit on {machine.nodes} nodes of {machine.gpus_per_node} GPUs"
        )
    gpu = catalogue.find_gpu(machine.gpu_model)
    if gpu is None:
        raise NotPredictedError(f"the GPU {machine.gpu_model!r} is not in the hardware catalogue")
    board = _board(machine, gpu)
    # A rack is one node of all the GPUs that its NVLink joins.
    spans = machine.nvlink_domain_gpus or 1 if board == _RACK else machine.gpus_per_node
    gpus = max(1, min(spans, machine.ranks))
    nics = max(1, machine.nics_per_node * gpus // machine.gpus_per_node)
    fields = [
        Quantity("name", machine.id, "user", ""),
        Quantity("node.gpus", gpus, "user", "index"),
        *(_inside(machine, gpu, board, gpus, catalogue) if gpus > 1 else []),
        *_pcie(gpu, catalogue),
        *([Quantity("pcie.peer_to_peer", "no", "user", "index")] if board is None and machine.p2p == "no" else []),
        *(
            [Quantity("gpu", _GPUS[gpu.nvlink], "user", "index")]
            if gpu.nvlink in _GPUS and board in (_SWITCH, _RACK)
            else []
        ),
        *_network(machine, gpus, nics, catalogue),
    ]
    return shape_of({field.field: field for field in fields}, Path(machine.id))


def _board(machine: Machine, gpu: GpuLinks) -> str | None:
    """Return the shape of the NVLinks in a node; None where PCIe alone joins its GPUs."""
    domain = machine.nvlink_domain_gpus
    if domain == 0 or (machine.gpus_per_node == 1 and domain is None):
        return None
    if domain is None:
        if gpu.nvlink is not None and machine.has_nvswitch:
            return _SWITCH
        if gpu.nvlink is None or machine.intra_interconnect.lower().startswith("pcie"):
            return None
        raise NotPredictedError("nvlink_domain_gpus is empty: which GPUs NVLink joins is not known")
    if gpu.nvlink is None or domain not in gpu.boards:
        if machine.gpus_per_node == 1:
            return None
        raise NotPredictedError(f"no board of {domain} {machine.gpu_model} in one NVLink domain is in the catalogue")
    board = gpu.boards[domain]
    if board not in (_MESH, _RACK) and machine.gpus_per_node > domain:
        raise NotPredictedError(f"a node of {machine.gpus_per_node} GPUs on boards of {domain} is not in the catalogue")
    return board


def _inside(machine: Machine, gpu: GpuLinks, board: str | None, gpus: int, catalogue: LinkCatalogue) -> list[Quantity]:
    """Return the NVLinks of a node of several GPUs."""
    if board is None:
        if gpu.pcie is None:
            raise NotPredictedError(f"what joins {gpus} {machine.gpu_model} without NVLink is not in the catalogue")
        return []
    if gpu.nvlink is None or gpu.links is None:
        raise NotPredictedError(f"the NVLinks of {machine.gpu_model} are not in the catalogue")
    one = catalogue.nvlink[gpu.nvlink].rate
    links = int(gpu.links.value)
    if board in (_SWITCH, _RACK):
        rate_GBps = links * float(str(one.value).removesuffix("GB/s"))
        return [one.of("nvlink.rate", f"{rate_GBps:g}GB/s"), catalogue.latency.nvlink_port.of("nvlink.latency")]
    domain = machine.nvlink_domain_gpus or gpus
    mesh = [
        Quantity("nvlink.kind", "mesh", "user", ""),
        one.of("nvlink.rate"),
        catalogue.latency.nvlink_direct.of("nvlink.latency"),
    ]
    if board != _MESH:
        stated = catalogue.board[board].pairs
        pairs = [pair for pair in stated.value if max(pair) < gpus]
    else:
        stated = gpu.links
        islands = range(0, gpus, domain)
        joined = [
            [a, b]
            for i in islands
            for a in range(i, min(i + domain, gpus))
            for b in range(a + 1, min(i + domain, gpus))
        ]
        pairs = [pair for pair in joined for _ in range(max(1, links // (domain - 1)))]
    return [*mesh, stated.of("nvlink.pairs", pairs)]


def _pcie(gpu: GpuLinks, catalogue: LinkCatalogue) -> list[Quantity]:
    if gpu.pcie is None:
        return []
    return [catalogue.pcie[str(gpu.pcie.value)].rate.of("pcie.rate"), catalogue.latency.pcie.of("pcie.latency")]


def _network(machine: Machine, gpus: int, nics: int, catalogue: LinkCatalogue) -> list[Quantity]:
    """Return interfaces and fabric; where GPUs cannot have as many interfaces each, they have one of the rates."""
    if machine.ranks <= gpus:
        unused = "index: one node, which nothing leaves"
        return [Quantity("nic.rate", "1Gbps", "user", unused), Quantity("fabric.kind", "single-switch", "user", unused)]
    network = None if machine.transport == "none" else catalogue.find_network(machine.transport)
    if network is None:
        raise NotPredictedError(
            f"several nodes over the transport {machine.transport!r}, which is not in the catalogue"
        )
    if not machine.nics_per_node or not machine.nic_rate_gbps:
        raise NotPredictedError("several nodes, and nics_per_node or nic_rate_gbps is 0")
    count = min(nics, gpus) if nics % gpus else nics
    together = nics / count
    nodes = -(-machine.ranks // gpus)
    # A non-blocking tree is a switch with a longer way: up to a spine and down again.
    switches = 1 if nodes <= int(network.nodes_below_a_switch.value) else 2
    link_ns = float(str(network.link.value).removesuffix("ns"))
    return [
        Quantity("nic.transport", _TRANSPORTS.get(machine.transport, machine.transport), "user", "index"),
        Quantity("nic.path", machine.path or "switch", "user", "index"),
        Quantity("nic.count", count, "user", "index"),
        Quantity("nic.rate", f"{machine.nic_rate_gbps * together:.9g}Gbps", "user", "index"),
        network.nic.of("nic.latency"),
        network.link.of("fabric.link.latency", f"{link_ns * switches:g}ns"),
        Quantity("fabric.kind", "single-switch", "user", "assumed: nothing blocks between nodes"),
    ]
