"""What NVLink joins inside a measured machine: the board of its GPUs, by the row and the hardware catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from s2sim.errors import S2SimError
from s2sim.topology.files.quantity import Quantity
from s2sim.topology.node_spec import MOST_MESHED

if TYPE_CHECKING:
    from s2sim.study.validate.curve import Machine
    from s2sim.topology.files.links import GpuLinks, LinkCatalogue

MESH, SWITCH, RACK = "mesh", "switch", "rack"
# GPUs that bridges or boards of processors join, whose links are those that the GPU has.
_MOST_BRIDGED = 4


@dataclass(frozen=True, slots=True)
class Board:
    """GPUs in one NVLink domain, so many, and the shape of what joins them: as `GpuLinks.boards` calls it."""

    shape: str
    gpus: int


def board_of(machine: Machine, gpu: GpuLinks) -> Board | None:
    """Return the board of a node's GPUs; None where PCIe alone joins them, or nothing has to.

    A domain that the catalogue has no board for is a rack if the GPU is one of those and the node smaller, one of an
    NVSwitch if the row says so, else, of few GPUs, a mesh in
    which each shares out its links. Without a domain it is the smallest board of the catalogue that holds all GPUs of a
    node, or the largest.
    """
    domain = machine.nvlink_domain_gpus
    if machine.gpus_per_node == 1 and gpu.boards.get(domain or 0) != RACK:
        return None
    if domain is None and not _says_nvlink(machine, gpu):
        return None
    if domain is not None and domain <= 1:
        return None
    if gpu.nvlink is None or gpu.links is None:
        raise S2SimError(f"the NVLinks of {machine.gpu_model} are not in the catalogue")
    if domain is None and machine.has_nvswitch:
        return Board(SWITCH, machine.gpus_per_node)
    return _board_of_domain(machine, gpu, _likely_domain(machine, gpu) if domain is None else domain)


def _likely_domain(machine: Machine, gpu: GpuLinks) -> int:
    """Return the smallest board of the catalogue that holds a node's GPUs, or the largest."""
    holding = [size for size in gpu.boards if size >= machine.gpus_per_node]
    return min(holding) if holding else max(gpu.boards, default=machine.gpus_per_node)


def _board_of_domain(machine: Machine, gpu: GpuLinks, domain: int) -> Board:
    if domain in gpu.boards:
        return Board(gpu.boards[domain], domain)
    if RACK in gpu.boards.values() and domain > machine.gpus_per_node:
        return Board(RACK, domain)
    if machine.has_nvswitch:
        return Board(SWITCH, domain)
    if domain > _MOST_BRIDGED or domain > (gpu.links.value if gpu.links else 0) + 1:
        raise S2SimError(f"no board of {domain} {machine.gpu_model} in one NVLink domain is in the catalogue")
    return Board(MESH, domain)


def _says_nvlink(machine: Machine, gpu: GpuLinks) -> bool:
    """Return whether NVLink joins GPUs, where the row does not say how many."""
    text = machine.intra_interconnect.lower()
    if "nvlink" in text or "nvswitch" in text or "infinity" in text or "xgmi" in text:
        return "no nvlink" not in text
    return "pcie" not in text and bool(gpu.boards)


def links_inside(
    machine: Machine, gpu: GpuLinks, board: Board | None, gpus: int, catalogue: LinkCatalogue
) -> list[Quantity]:
    """Return the fields of the NVLinks between the first ``gpus`` of a node, of which there are several."""
    if board is None:
        if gpu.pcie is None:
            raise S2SimError(f"what joins {gpus} {machine.gpu_model} without NVLink is not in the catalogue")
        return []
    if gpu.nvlink is None or gpu.links is None:
        raise S2SimError(f"the NVLinks of {machine.gpu_model} are not in the catalogue")
    one = catalogue.nvlink[gpu.nvlink].rate
    one_GBps = float(str(one.value).removesuffix("GB/s"))
    links = int(gpu.links.value)
    if board.shape in (SWITCH, RACK) and gpus <= board.gpus:
        return [one.of("nvlink.rate", f"{links * one_GBps:g}GB/s"), catalogue.latency.nvlink_port.of("nvlink.latency")]
    if board.shape in (SWITCH, RACK):
        if board.gpus > MOST_MESHED:
            raise S2SimError(f"a node of {gpus} GPUs on boards of {board.gpus} is not in the catalogue")
        # Each of several boards in a node is like a mesh that shares out the links of a GPU.
        lines, rate = 1, one.of("nvlink.rate", f"{links * one_GBps / (board.gpus - 1):.9g}GB/s")
    else:
        lines, rate = max(1, links // (board.gpus - 1)), one.of("nvlink.rate")
    if board.shape in catalogue.board:
        stated = catalogue.board[board.shape].pairs
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
        catalogue.latency.nvlink_direct.of("nvlink.latency"),
        stated.of("nvlink.pairs", pairs),
    ]
