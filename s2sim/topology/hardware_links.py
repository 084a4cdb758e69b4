"""The links of the hardware catalogue: NVLinks and PCIe by the name of a GPU, and the latencies of networks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from s2sim.topology.hardware import HardwareTables, shipped_tables
from s2sim.topology.quantity import Quantity
from s2sim.units import PS_PER_S, parse_time_ps

_WORDS = re.compile(r"rtx(?=\d)|[a-z0-9]+")
# What indexes call the model where no GPU takes part.
_NOTE_PATTERN = re.compile(r"\([^)]*\)")
_NO_GPU = "none"
_PS_PER_NS = PS_PER_S // 10**9


@dataclass(frozen=True, slots=True)
class NetworkLinks:
    """Latencies of the hardware of a network, and the number of nodes that one of its switches joins."""

    transports: tuple[str, ...]
    nic: Quantity
    link: Quantity
    nodes_below_a_switch: Quantity


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """Links of one model of GPU."""

    names: tuple[str, ...]  # As users write them: words that all occur in the name of a GPU
    nvlink: str | None = None  # Generation, a name in `LinkCatalogue.nvlink`
    links: Quantity | None = None  # Number of NVLinks, or Infinity Fabric links, of a GPU
    # Generation of its PCIe x16, a name in `LinkCatalogue.pcie`; None if something faster joins it to its host
    pcie: Quantity | None = None
    # By GPUs in one NVLink domain: ``mesh``, ``switch``, ``rack`` or a name in `LinkCatalogue.board`
    boards: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LinkCatalogue:
    """The links in ``topologies/hardware.toml``, by name."""

    nvlink: dict[str, Quantity]  # Rates of one link and direction
    pcie: dict[str, dict[str, Quantity]]  # ``rate`` of one x16 and direction, and ``memory`` of one socket for GPUs
    latency: dict[str, Quantity]  # Latencies inside a node
    network: dict[str, NetworkLinks]
    # ``pairs`` of GPUs that are joined, each as often as it has links, and ``host``: what joins each to its host, if
    # not PCIe
    board: dict[str, dict[str, Quantity]]
    gpu: dict[str, GpuLinks]

    def find_gpu(self, model: str) -> GpuLinks | None:
        """Return the links of a GPU by its model as users write it; None if it is not in the catalogue."""
        if _NOTE_PATTERN.sub(" ", model.lower()).strip() == _NO_GPU:
            return GpuLinks(names=(_NO_GPU,))
        name = self.gpu_name(model)
        return None if name is None else self.gpu[name]

    def gpu_name(self, model: str) -> str | None:
        """Return the catalogue's name that most words of a model match (no remark in parentheses); None if not one."""
        written = set(_WORDS.findall(_NOTE_PATTERN.sub(" ", model.lower())))
        found = [
            (len(words), name)
            for name, gpu in self.gpu.items()
            for words in (set(_WORDS.findall(each)) for each in gpu.names)
            if words <= written
        ]
        best = {name for count, name in found if count == max(found)[0]}
        return best.pop() if len(best) == 1 else None

    def find_network(self, transport: str) -> NetworkLinks | None:
        """Return the links of the network below a transport; None if it is not in the catalogue."""
        return next((network for network in self.network.values() if transport in network.transports), None)


def load_links() -> LinkCatalogue:
    """Return the links of the shipped catalogue."""
    tables = shipped_tables()

    def known(section: str) -> dict[str, dict[str, Quantity]]:
        return {name: tables.part(section, name).quantities for name in tables.names(section)}

    pcie = known("pcie")
    return LinkCatalogue(
        nvlink={name: found["rate"] for name, found in known("nvlink").items()},
        pcie=pcie,
        latency={name: found["value"] for name, found in known("latency").items()},
        network={name: found for name in tables.names("transport") if (found := _network(tables, name))},
        board=known("board"),
        gpu={name: _gpu(tables, name, set(pcie)) for name in tables.names("gpu")},
    )


def _gpu(tables: HardwareTables, name: str, pcie: set[str]) -> GpuLinks:
    part = tables.part("gpu", name)
    boards = [str(board).partition(" ") for board in part.value("boards") or ()]
    return GpuLinks(
        names=part.names,
        nvlink=part.value("nvlink"),
        links=part.quantities["links"] if part.value("links") else None,
        # What is no PCIe joins a GPU to its CPU without limiting other traffic.
        pcie=part.quantities["pcie"] if part.value("pcie") in pcie else None,
        boards={int(gpus): shape for gpus, _, shape in boards},
    )


def _network(tables: HardwareTables, transport: str) -> NetworkLinks | None:
    """Return the hardware below a transport; None for one that leaves no host."""
    part = tables.part("transport", transport)
    if part.value("nic") is None:
        return None
    switch = tables.part("switch", part.value("switch"))
    through, cable = switch.quantities["latency"], tables.part("latency", "cable").quantities["value"]
    # Two links make a route through one switch.
    link_ps = parse_time_ps(through.value) // 2 + parse_time_ps(cable.value)
    source = f"half of a switch ({switch.name}: {through.source}) and a cable ({cable.source})"
    return NetworkLinks(
        transports=(transport, *part.names),
        nic=tables.part("nic", part.value("nic")).quantities["latency"],
        link=Quantity("latency", f"{link_ps / _PS_PER_NS:g}ns", through.kind, source),
        nodes_below_a_switch=switch.quantities["down"],
    )
