"""The links of the hardware catalogue: what the name of a GPU says of its NVLinks and PCIe, what networks add."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from s2sim.topology.hardware import HardwareTables, shipped_tables
from s2sim.topology.quantity import Quantity
from s2sim.units import PS_PER_S, parse_time_ps

_FORBID = {"extra": "forbid"}
_WORDS = re.compile(r"rtx(?=\d)|[a-z0-9]+")
# What indexes call the model where no GPU takes part.
_NOTE_PATTERN = re.compile(r"\([^)]*\)")
_NO_GPU = "none"
_PS_PER_NS = PS_PER_S // 10**9


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value of the catalogue with its kind and source."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID
    value: Any
    kind: Literal["datasheet", "measured", "estimated"]
    source: str

    def of(self, name: str, value: Any = None) -> Quantity:
        """Return it as a field of a cluster's description, with another value where that is derived from it."""
        return Quantity(name, self.value if value is None else value, self.kind, self.source)


@dataclass(frozen=True, slots=True)
class Rate:
    """What one link and direction carries."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID
    rate: SourcedValue


@dataclass(frozen=True, slots=True)
class PcieLinks:
    """What one PCIe x16 and direction carries, and what the host memory of one socket of such hosts does for GPUs."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID
    rate: SourcedValue
    memory: SourcedValue


@dataclass(frozen=True, slots=True)
class Board:
    """GPUs joined in a shape of their own; a pair stands as often as it has links.

    ``host`` joins each of them to its host, if not PCIe.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID
    pairs: SourcedValue
    host: SourcedValue | None = None


@dataclass(frozen=True, slots=True)
class Latencies:
    """What passing hardware takes inside a node."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID
    nvlink_port: SourcedValue
    nvlink_direct: SourcedValue
    pcie: SourcedValue


@dataclass(frozen=True, slots=True)
class NetworkLinks:
    """What the hardware of a network adds, and how many nodes one of its switches joins."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID
    transports: tuple[str, ...]
    nic: SourcedValue
    link: SourcedValue
    nodes_below_a_switch: SourcedValue


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """Links of one model of GPU."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID
    names: tuple[str, ...]  # What people write: words that all stand in it
    nvlink: str | None = None  # Generation, a name in `LinkCatalogue.nvlink`
    links: SourcedValue | None = None  # How many NVLinks, or Infinity Fabric links, a GPU has
    # Generation of its PCIe x16, a name in `LinkCatalogue.pcie`; None where something faster joins it to its host
    pcie: SourcedValue | None = None
    # By GPUs in one NVLink domain: ``mesh``, ``switch``, ``rack`` or a name in `LinkCatalogue.board`
    boards: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LinkCatalogue:
    """What ``topologies/hardware.toml`` says of links."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID
    nvlink: dict[str, Rate]
    pcie: dict[str, PcieLinks]
    latency: Latencies
    network: dict[str, NetworkLinks]
    board: dict[str, Board]
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
    from pydantic import TypeAdapter

    tables = shipped_tables()
    latencies = {name: _sourced_value(tables, "latency", name, "value") for name in tables.names("latency")}
    rates = {
        section: {
            name: {field: _sourced_value(tables, section, name, field) for field in known}
            for name in tables.names(section)
        }
        for section, known in (("nvlink", ("rate",)), ("pcie", ("rate", "memory")))
    }
    read = {
        **rates,
        "latency": {name: found for name, found in latencies.items() if name != "cable"},
        "network": {name: found for name in tables.names("transport") if (found := _network(tables, name))},
        "board": {
            name: {
                field: _sourced_value(tables, "board", name, field) for field in tables.part("board", name).quantities
            }
            for name in tables.names("board")
        },
        "gpu": {name: _gpu(tables, name, set(rates["pcie"])) for name in tables.names("gpu")},
    }
    return TypeAdapter(LinkCatalogue).validate_python(read)


def _sourced_value(tables: HardwareTables, section: str, name: str, field: str) -> dict[str, Any]:
    item = tables.part(section, name).quantities[field]
    return {"value": item.value, "kind": item.kind, "source": item.source}


def _gpu(tables: HardwareTables, name: str, pcie: set[str]) -> dict[str, Any]:
    part = tables.part("gpu", name)
    boards = [str(board).partition(" ") for board in part.value("boards") or ()]
    return {
        "names": part.names,
        "nvlink": part.value("nvlink"),
        "links": _sourced_value(tables, "gpu", name, "links") if part.value("links") else None,
        # What is no PCIe joins a GPU to its CPU without being in anybody's way.
        "pcie": _sourced_value(tables, "gpu", name, "pcie") if part.value("pcie") in pcie else None,
        "boards": {int(gpus): shape for gpus, _, shape in boards},
    }


def _network(tables: HardwareTables, transport: str) -> dict[str, Any] | None:
    """Return the hardware below a transport; None for one that leaves no host."""
    part = tables.part("transport", transport)
    if part.value("nic") is None:
        return None
    switch = tables.part("switch", part.value("switch"))
    through, cable = switch.quantities["latency"], tables.part("latency", "cable").quantities["value"]
    # Two links make a way through one switch.
    link_ps = parse_time_ps(through.value) // 2 + parse_time_ps(cable.value)
    return {
        "transports": (transport, *part.names),
        "nic": _sourced_value(tables, "nic", part.value("nic"), "latency"),
        "link": {
            "value": f"{link_ps / _PS_PER_NS:g}ns",
            "kind": through.kind,
            "source": f"half of a switch ({switch.name}: {through.source}) and a cable ({cable.source})",
        },
        "nodes_below_a_switch": _sourced_value(tables, "switch", switch.name, "down"),
    }
