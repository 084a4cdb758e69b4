"""The constants of a library's protocol overhead, every number with its origin."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from s2sim.errors import TopologyError, suggest_nearest
from s2sim.files import data_directory, read_toml
from s2sim.topology.quantity import FieldReader, Quantity, read_quantity
from s2sim.units import parse_size_bytes

LINKS = ("nvlink", "pcie")
"""Links between GPUs inside a node."""

SHARES = (*LINKS, "host-memory", "host-memory-both-ways")
"""Links with a share of the rate inside a node: PCIe with peer-to-peer, and without, for one direction or both."""

ConstantOverrides: TypeAlias = tuple[tuple[str, "str | float"], ...]
"""Constants by their dotted names, with values as in a file: ``"5us"``, or 0.9."""


@dataclass(frozen=True, slots=True)
class ProtocolConstants:
    """One protocol; limits are infinite if there are none."""

    name: str
    share: float  # Data in a byte that is sent
    limit_Bps: float  # Of one rank, data and flags
    network_limit_Bps: float  # The same between nodes
    inside_ps: tuple[tuple[str, int], ...]  # Of a hop over each kind of link inside a node
    between_ps: int  # Of a hop between nodes, in addition to the network's latency
    direct: bool  # Whether it needs NVLink inside nodes, and between nodes paths without a processor
    messages_bytes: float  # Largest message, for collectives that consist of sends and receives
    part_bytes: float  # Least part of a buffer with its own channel; infinite if there is one channel


@dataclass(frozen=True, slots=True)
class PathConstants:
    """A network, or the path to it."""

    share: float  # Of the rate that data reaches; for a path past a host, of the rate of the GPU's PCIe
    latency_ps: int  # Of a hop
    stream_Bps: float  # Limit of a message through one interface
    eager_bytes: float
    rendezvous_ps: int  # Added to messages of ``eager_bytes`` and more, which are announced


@dataclass(frozen=True, slots=True)
class SwitchReductionShares:
    """The shares of the rate that an NVSwitch reaches in reductions."""

    share: float
    share_over_hosts: float  # In one domain over several hosts
    share_over_nodes: float  # With trees between nodes


@dataclass(frozen=True, slots=True)
class GpuGeneration:
    """GPUs that a library treats as one class, by their names in the catalogue."""

    name: str
    gpus: tuple[str, ...]
    switched: SwitchReductionShares | None  # None if no NVSwitch reduces
    # Limit of one channel over several nodes, as bus bandwidth, by algorithm and protocol (``tree-Simple``), with
    # ``-two-nodes`` if that differs
    channel_Bps: tuple[tuple[str, float], ...]
    channels: int  # Of a large buffer between GPUs with NVLink


@dataclass(frozen=True, slots=True)
class LibraryConstants:
    """All constants of one library, times in picoseconds."""

    name: str
    source: str
    launch_ps: int
    launch_gpu_ps: int  # Per GPU of a process that launches on several GPUs
    launch_channel_ps: int  # Per channel on such a GPU
    peer_inside_ps: int  # Per peer in a rank's node, for collectives that consist of sends and receives
    peer_between_ps: int  # Per peer in another node
    protocols: tuple[ProtocolConstants, ...]
    shares: tuple[tuple[str, float], ...]  # Share of the rate of a link inside a node that data reaches
    generations: tuple[GpuGeneration, ...]
    in_network_ps: int  # Latency of a reduction in a switch
    in_network_channels: int  # Concurrent reductions in a switch
    in_network_stages: int  # Of each chunk inside a node
    networks: tuple[tuple[str, PathConstants], ...]  # By transport
    paths: tuple[tuple[str, PathConstants], ...]  # Between GPU and network interface
    # First version with an algorithm or protocol; ``messages``: with another protocol for small messages
    since: tuple[tuple[str, Version], ...]
    quantities: tuple[Quantity, ...]

    def generation_of(self, gpu: str | None) -> GpuGeneration | None:
        """Return the generation of a GPU's name, or None."""
        return next((each for each in self.generations if gpu in each.gpus), None)

    def has(self, what: str, version: Version) -> bool:
        """Return whether a version of the library has a feature; no version means the newest.

        >>> from s2sim.libraries.constants import load_constants
        >>> load_constants("nccl").has("LL128", (2, 4)), load_constants("nccl").has("LL128", ())
        (False, True)
        """
        return not version or version >= dict(self.since).get(what, ())


def pop_header(tables: dict[str, Any], known: Collection[str], where: str) -> tuple[str, str]:
    """Remove name and source from the tables of a file and return them; `TopologyError` for unknown tables."""
    texts = {key: tables.pop(key, None) for key in ("name", "source")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise TopologyError(f"{where}: {key} is missing: write {key} = '...'")
    for key in tables:
        if key not in known:
            raise TopologyError(f"{where}: unknown table [{key}]{suggest_nearest(key, known)}")
    return str(texts["name"]), str(texts["source"])


def check_known_fields(fields: FieldReader, known: Collection[str]) -> None:
    """Raise `TopologyError` for an unknown field."""
    for field in fields.quantities:
        if field not in known:
            raise TopologyError(f"{fields.origin}: unknown field {field!r}{suggest_nearest(field, sorted(known))}")


def flatten_tables(table: Mapping[str, object], prefix: str, where: str) -> list[tuple[str, Quantity]]:
    """Return the values of nested tables by their dotted names."""
    values: list[tuple[str, Quantity]] = []
    for key, value in table.items():
        if isinstance(value, dict) and "value" not in value:
            values += flatten_tables(value, f"{prefix}{key}.", where)
        else:
            values.append((prefix + key, read_quantity(value, prefix + key, where)))
    return values


def read_size(fields: FieldReader, field: str) -> float:
    """Return a size in bytes, infinite if absent."""
    return parse_size_bytes(fields.quantities[field].value) if field in fields.quantities else float("inf")


def read_share(fields: FieldReader, field: str) -> float:
    """Return a share, more than 0 and at most 1."""
    value = fields.number(field)
    if value > 1:
        raise TopologyError(f"{fields.origin}: {field} = {value} is a share: write at most 1")
    return value


# Of libraries, as opposed to those of systems and compilers in the same text.
_VERSION = re.compile(r"(?<![\d.])[12]\.\d{1,4}(\.\d{1,4})*")

Version: TypeAlias = tuple[int, ...]
"""The numbers of a version, empty if unknown."""


def read_version(text: str) -> Version:
    """Return the first version of a library in a text, empty if there is none.

    >>> read_version("2.18 (HPC SDK 23.7)"), read_version("2.x (GIN era, >=2.28)"), read_version("NGC 25.04 container")
    ((2, 18), (2, 28), ())
    """
    match = _VERSION.search(text)
    return tuple(map(int, match[0].split("."))) if match else ()


def common_version(libraries: Collection[str]) -> Version:
    """Return the version in texts such as ``NCCL 2.21.5``; empty if they have none, or several.

    >>> common_version(["NCCL 2.21.5", "NCCL 2.21.5+cuda12.4"]), common_version(["NCCL 2.18", "NCCL 2.21"])
    ((2, 21, 5), ())
    """
    versions = {read_version(text) for text in libraries}
    return versions.pop() if len(versions) == 1 else ()


_TABLES = ("launch", "peer", "protocol", "since", "share", "generation", "in-network", "network", "path")
_FIELDS = {
    *(f"launch.{key}" for key in ("collective", "gpu", "channel")),
    *("peer.inside", "peer.network"),
    *(f"share.{name}" for name in SHARES),
    *(f"in-network.{key}" for key in ("latency", "channels", "stages")),
    *(f"since.{feature}" for feature in ("tree", "in-network", "nvls-tree", "pat", "messages")),
}
# Fields of each table of a name.
_OF_SWITCHED = ("share", "share-over-hosts", "share-over-nodes")
_OF_NAME = {
    "protocol": ("share", "limit", "network-limit", "network", "ways", "messages", "part", *LINKS),
    "network": ("share", "latency", "stream", "eager", "rendezvous"),
    "path": ("share", "latency"),
    "in-network": _OF_SWITCHED,
}


def read_constants(path: Path, own: ConstantOverrides = ()) -> LibraryConstants:
    """Return the constants of a library's file with overrides; `TopologyError` if it is invalid."""
    tables = read_toml(path, TopologyError)
    where = path.name
    base = tables.pop("base", None)
    if base is not None:
        tables = _merge_tables(read_toml(data_directory("libraries") / f"{base}.toml", TopologyError), tables)
    _apply_overrides(tables, own, where)
    name, source = pop_header(tables, _TABLES, where)
    generations = {
        name: _read_names(table, f"generation.{name}.gpus", where)
        for name, table in tables.get("generation", {}).items()
    }
    fields = FieldReader(dict(flatten_tables(tables, "", where)), where)
    names = {table: sorted(tables.get(table, {})) for table in ("protocol", "network", "path")}
    names["in-network"] = list(generations)
    channels = [
        f"{of}-{name}{nodes}" for of in ("tree", "ring") for name in names["protocol"] for nodes in ("", "-two-nodes")
    ]
    known = {f"{table}.{name}.{key}" for table, keys in _OF_NAME.items() for name in names[table] for key in keys}
    known |= {f"generation.{name}.{key}" for name in generations for key in ("channels", *channels)}
    check_known_fields(fields, known | _FIELDS | {f"since.{name}" for name in names["protocol"]})
    protocols = tuple(
        ProtocolConstants(
            name,
            read_share(fields, f"protocol.{name}.share"),
            fields.rate(f"protocol.{name}.limit") or float("inf"),
            fields.rate(f"protocol.{name}.network-limit") or float("inf"),
            tuple((link, fields.latency(f"protocol.{name}.{link}")) for link in LINKS),
            fields.latency(f"protocol.{name}.network"),
            fields.text(f"protocol.{name}.ways", "all", ("all", "direct")) == "direct",
            read_size(fields, f"protocol.{name}.messages"),
            read_size(fields, f"protocol.{name}.part"),
        )
        for name in names["protocol"]
    )
    networks, paths = (
        tuple(
            (
                name,
                PathConstants(
                    read_share(fields, f"{table}.{name}.share"),
                    fields.latency(f"{table}.{name}.latency"),
                    fields.rate(f"{table}.{name}.stream") or float("inf"),
                    read_size(fields, f"{table}.{name}.eager"),
                    fields.latency(f"{table}.{name}.rendezvous"),
                ),
            )
            for name in names[table]
        )
        for table in ("network", "path")
    )
    return LibraryConstants(
        name=name,
        source=source,
        launch_ps=fields.latency("launch.collective"),
        launch_gpu_ps=fields.latency("launch.gpu"),
        launch_channel_ps=fields.latency("launch.channel"),
        peer_inside_ps=fields.latency("peer.inside"),
        peer_between_ps=fields.latency("peer.network"),
        protocols=protocols,
        shares=tuple((name, read_share(fields, f"share.{name}")) for name in SHARES),
        generations=tuple(_generation(name, gpus, channels, fields) for name, gpus in generations.items()),
        in_network_ps=fields.latency("in-network.latency"),
        in_network_channels=fields.required_count("in-network.channels"),
        in_network_stages=fields.required_count("in-network.stages"),
        networks=networks,
        paths=paths,
        since=tuple(
            (field.removeprefix("since."), _read_version(fields, field))
            for field in fields.quantities
            if field.startswith("since.")
        ),
        quantities=tuple(fields.quantities.values()),
    )


def _generation(name: str, gpus: tuple[str, ...], channels: Sequence[str], fields: FieldReader) -> GpuGeneration:
    switched = [f"in-network.{name}.{key}" for key in _OF_SWITCHED]
    rates = [(channel, f"generation.{name}.{channel}") for channel in channels]
    return GpuGeneration(
        name,
        gpus,
        SwitchReductionShares(*(read_share(fields, each) for each in switched))
        if switched[0] in fields.quantities
        else None,
        tuple((channel, fields.required_rate(field)) for channel, field in rates if field in fields.quantities),
        fields.required_count(f"generation.{name}.channels"),
    )


def _merge_tables(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in overrides.items():
        tables = isinstance(value, dict) and "value" not in value and isinstance(base.get(key), dict)
        merged[key] = _merge_tables(base[key], value) if tables else value
    return merged


def _read_names(table: dict[str, object], field: str, where: str) -> tuple[str, ...]:
    names = table.pop("gpus", None)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TopologyError(f"{where}: {field} is a list of names: write for example ['h100']")
    return tuple(names)


def _apply_overrides(tables: dict[str, Any], own: ConstantOverrides, where: str) -> None:
    for field, value in own:
        *outer, name = field.split(".")
        table: Any = tables
        for each in outer:
            table = table.get(each) if isinstance(table, dict) else None
        if not isinstance(table, dict) or name not in table:
            raise TopologyError(f"{where} has no constant {field!r}")
        table[name] = {"value": value, "kind": "measured", "source": "fitted to measurements of one's own"}


def _read_version(fields: FieldReader, field: str) -> Version:
    version = read_version(fields.text(field, None))
    if not version:
        raise TopologyError(f"{fields.origin}: {field} is no version: write for example '2.18'")
    return version


@cache
def load_constants(library: str, own: ConstantOverrides = ()) -> LibraryConstants:
    """Return the shipped constants of a library by its name, with overrides."""
    return read_constants(data_directory("libraries") / f"{library}.toml", own)
