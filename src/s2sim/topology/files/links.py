"""The catalogue of links: what the name of a GPU says of its NVLinks and PCIe, and what networks' hardware adds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from s2sim.data import data_directory
from s2sim.errors import TopologyError
from s2sim.text_files import read_toml
from s2sim.topology.files.catalogue import LINKS_FILE
from s2sim.topology.files.quantity import Quantity

_FORBID = {"extra": "forbid"}
# What stands before the name of a card without telling which it is.
_MAKERS = re.compile(r"^(nvidia|amd|tesla|geforce|instinct|quadro)-")


@dataclass(frozen=True, slots=True)
class Stated:
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
    rate: Stated


@dataclass(frozen=True, slots=True)
class Board:
    """GPUs joined in a shape of their own; a pair stands as often as it has links."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID
    pairs: Stated


@dataclass(frozen=True, slots=True)
class Latencies:
    """What passing hardware takes inside a node."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID
    nvlink_port: Stated
    nvlink_direct: Stated
    pcie: Stated


@dataclass(frozen=True, slots=True)
class NetworkLinks:
    """What the hardware of a network adds, and how many nodes one of its switches joins."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID
    transports: tuple[str, ...]
    nic: Stated
    link: Stated
    nodes_below_a_switch: Stated


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """Links of one model of GPU.

    Attributes
    ----------
    names : tuple of str
        How the names begin that people write, in lower case with hyphens.
    nvlink : str or None
        Generation, a name in `LinkCatalogue.nvlink`.
    links : Stated or None
        How many NVLinks a GPU has.
    pcie : Stated or None
        Generation of its PCIe x16, a name in `LinkCatalogue.pcie`; None where something faster joins it to its host.
    boards : dict of int to str
        By GPUs in one NVLink domain: ``mesh``, ``switch``, ``rack`` or a name in `LinkCatalogue.board`.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID
    names: tuple[str, ...]
    nvlink: str | None = None
    links: Stated | None = None
    pcie: Stated | None = None
    boards: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LinkCatalogue:
    """All of ``topologies/links.toml``."""

    __pydantic_config__: ClassVar[dict[str, str]] = _FORBID
    nvlink: dict[str, Rate]
    pcie: dict[str, Rate]
    latency: Latencies
    network: dict[str, NetworkLinks]
    board: dict[str, Board]
    gpu: dict[str, GpuLinks]

    def find_gpu(self, model: str) -> GpuLinks | None:
        """Return the links of a GPU of which people wrote the model; None for one that is not in the catalogue."""
        written = re.sub(r"[^a-z0-9]+", "-", model.lower().strip()).strip("-")
        while (shorter := _MAKERS.sub("", written)) != written:
            written = shorter
        found = [
            (len(name), gpu) for gpu in self.gpu.values() for name in gpu.names if f"{written}-".startswith(f"{name}-")
        ]
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def find_network(self, transport: str) -> NetworkLinks | None:
        """Return what the hardware below a transport adds; None for one that is not in the catalogue."""
        return next((network for network in self.network.values() if transport in network.transports), None)


def load_links() -> LinkCatalogue:
    """Return the shipped catalogue."""
    from pydantic import TypeAdapter

    tables = read_toml(data_directory("topologies") / LINKS_FILE, TopologyError)
    return TypeAdapter(LinkCatalogue).validate_python(tables)
