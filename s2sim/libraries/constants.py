"""What a library adds to the wire, as constants, every number with its origin."""

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
"""What joins GPUs inside a node, as hops go."""

SHARES = (*LINKS, "host-memory", "host-memory-both-ways")
"""What a share of the rate inside a node is told of: PCIe with peer-to-peer, and without for GPUs that send or receive
at a time, or both."""

ConstantOverrides: TypeAlias = tuple[tuple[str, "str | float"], ...]
"""Constants by their dotted names, with values as a file has them: ``"5us"``, or 0.9."""


@dataclass(frozen=True, slots=True)
class ProtocolConstants:
    """One protocol."""

    name: str
    share: float  # Data in a byte that is sent
    # limit_Bps, network_limit_Bps: most that one rank sends, data and flags, and between nodes; infinite where nothing
    # limits it
    limit_Bps: float
    network_limit_Bps: float
    # inside_ps, between_ps: picoseconds of a hop over each kind of link inside a node, and between nodes beside those
    # of the network
    inside_ps: tuple[tuple[str, int], ...]
    between_ps: int
    # Whether it needs NVLink inside nodes, and between nodes a path from GPU to interface without a processor
    direct: bool
    # Largest message that is sent so where collectives are made of sends and receives; infinite for any
    messages_bytes: float
    part_bytes: float  # Least part of a buffer that gets a channel of its own; infinite where it has one


@dataclass(frozen=True, slots=True)
class PathConstants:
    """A network, or the way to it: the share of the rate that it leaves, and the picoseconds that it adds to a hop.

    ``rendezvous_ps`` are added to messages of ``eager_bytes`` and more, which are announced before they are sent.
    ``stream_Bps`` is the most that a message gets through one interface, infinite where nothing limits it. The way to a
    network past a host has a share of the rate of the GPU's PCIe.
    """

    share: float
    latency_ps: int
    stream_Bps: float
    eager_bytes: float
    rendezvous_ps: int


@dataclass(frozen=True, slots=True)
class SwitchReductionShares:
    """The shares of the rate that an NVSwitch which reduces reaches.

    ``share_over_hosts`` is that of one domain over several hosts, ``share_over_nodes`` that beside trees between nodes.
    """

    share: float
    share_over_hosts: float
    share_over_nodes: float


@dataclass(frozen=True, slots=True)
class GpuGeneration:
    """GPUs that a library treats alike, by their names in the catalogue."""

    name: str
    gpus: tuple[str, ...]
    switched: SwitchReductionShares | None  # What NVSwitches between them reach; None where none reduces
    # Most data a second that one channel over several nodes reduces, as bus bandwidth, by algorithm and protocol
    # (``tree-Simple``), with ``-two-nodes`` where that differs
    channel_Bps: tuple[tuple[str, float], ...]
    channels: int  # How many channels a large buffer has between GPUs that NVLink joins


@dataclass(frozen=True, slots=True)
class LibraryConstants:
    """All of one library, times in picoseconds."""

    name: str
    source: str
    launch_ps: int
    # launch_gpu_ps, launch_channel_ps: of a process that launches on several GPUs, for each of them and for each
    # channel on one
    launch_gpu_ps: int
    launch_channel_ps: int
    # peer_inside_ps, peer_between_ps: of each peer of a rank where collectives are made of sends and receives, in its
    # node and in another
    peer_inside_ps: int
    peer_between_ps: int
    protocols: tuple[ProtocolConstants, ...]
    shares: tuple[tuple[str, float], ...]  # Share of the rate of a link inside a node that data reaches
    generations: tuple[GpuGeneration, ...]
    # in_network_ps, in_network_channels, in_network_stages: latency of a reduction in a switch, how many run at once,
    # and how many stages each chunk passes inside a node
    in_network_ps: int
    in_network_channels: int
    in_network_stages: int
    # networks, paths: transports, and ways between GPU and network interface
    networks: tuple[tuple[str, PathConstants], ...]
    paths: tuple[tuple[str, PathConstants], ...]
    # First version with an algorithm or protocol; ``messages``: small messages have another protocol than large ones
    since: tuple[tuple[str, Version], ...]
    quantities: tuple[Quantity, ...]

    def generation_of(self, gpu: str | None) -> GpuGeneration | None:
        """Return what depends on the GPUs of a name; None where the constants do not tell these."""
        return next((each for each in self.generations if gpu in each.gpus), None)

    def has(self, what: str, version: Version) -> bool:
        """Return whether a version of the library has something; no version stands for the newest.

        >>> from s2sim.libraries.constants import load_constants
        >>> load_constants("nccl").has("LL128", (2, 4)), load_constants("nccl").has("LL128", ())
        (False, True)
        """
        return not version or version >= dict(self.since).get(what, ())


def pop_header(tables: dict[str, Any], known: Collection[str], where: str) -> tuple[str, str]:
    """Take name and source off the tables of a file and return them; an error where others than known ones are left."""
    texts = {key: tables.pop(key, None) for key in ("name", "source")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise TopologyError(f"{where}: {key} is missing: write {key} = '...'")
    for key in tables:
        if key not in known:
            raise TopologyError(f"{where}: unknown table [{key}]{suggest_nearest(key, known)}")
    return str(texts["name"]), str(texts["source"])


def check_known_fields(fields: FieldReader, known: Collection[str]) -> None:
    """Raise `TopologyError` for a field that no file of its kind has."""
    for field in fields.quantities:
        if field not in known:
            raise TopologyError(f"{fields.origin}: unknown field {field!r}{suggest_nearest(field, sorted(known))}")


def flatten_tables(table: Mapping[str, object], prefix: str, where: str) -> list[tuple[str, Quantity]]:
    """Return the values of tables inside each other by their dotted names."""
    found: list[tuple[str, Quantity]] = []
    for key, value in table.items():
        if isinstance(value, dict) and "value" not in value:
            found += flatten_tables(value, f"{prefix}{key}.", where)
        else:
            found.append((prefix + key, read_quantity(value, prefix + key, where)))
    return found


def read_size(fields: FieldReader, field: str) -> float:
    """Return a size in bytes, infinite where none is given."""
    return parse_size_bytes(fields.quantities[field].value) if field in fields.quantities else float("inf")


def read_share(fields: FieldReader, field: str) -> float:
    """Return a share, more than nothing and at most 1."""
    value = fields.number(field)
    if value > 1:
        raise TopologyError(f"{fields.origin}: {field} = {value} is a share: write at most 1")
    return value


# Of libraries; other numbers with dots, of systems and compilers, stand beside them.
_VERSION = re.compile(r"(?<![\d.])[12]\.\d{1,4}(\.\d{1,4})*")

Version: TypeAlias = tuple[int, ...]
"""The numbers of a version, none where it is not known."""


def read_version(text: str) -> Version:
    """Return the first version of a library that people wrote in a text, none where there is none.

    >>> read_version("2.18 (HPC SDK 23.7)"), read_version("2.x (GIN era, >=2.28)"), read_version("NGC 25.04 container")
    ((2, 18), (2, 28), ())
    """
    found = _VERSION.search(text)
    return tuple(map(int, found[0].split("."))) if found else ()


def common_version(libraries: Collection[str]) -> Version:
    """Return the one version that texts such as ``NCCL 2.21.5`` name; none where they name none, or several.

    >>> common_version(["NCCL 2.21.5", "NCCL 2.21.5+cuda12.4"]), common_version(["NCCL 2.18", "NCCL 2.21"])
    ((2, 21, 5), ())
    """
    found = {read_version(text) for text in libraries}
    return found.pop() if len(found) == 1 else ()


_OF_PROTOCOLS = ("share", "limit", "network-limit", "network", "ways", "messages", "part")
_OF_SWITCHED = ("share", "share-over-hosts", "share-over-nodes")
_OF_SWITCHES = ("latency", "channels", "stages")
_TABLES = ("launch", "peer", "protocol", "since", "share", "generation", "in-network", "network", "path")
_OF_VERSIONS = ("tree", "in-network", "nvls-tree", "pat", "messages")


def read_constants(path: Path, own: ConstantOverrides = ()) -> LibraryConstants:
    """Return the constants of a library's file, some replaced by one's own; `TopologyError` says what is wrong."""
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
    known = {f"launch.{key}" for key in ("collective", "gpu", "channel")} | {"peer.inside", "peer.network"}
    known |= {f"share.{name}" for name in SHARES}
    shares = (f"{name}.{key}" for name in generations for key in _OF_SWITCHED)
    known |= {f"in-network.{key}" for key in (*_OF_SWITCHES, *shares)}
    known |= {f"protocol.{name}.{key}" for name in names["protocol"] for key in (*_OF_PROTOCOLS, *LINKS)}
    known |= {f"{of}.{name}.{key}" for of in ("network", "path") for name in names[of] for key in ("share", "latency")}
    known |= {f"network.{name}.{key}" for name in names["network"] for key in ("stream", "eager", "rendezvous")}
    channels = [
        f"{of}-{name}{nodes}" for of in ("tree", "ring") for name in names["protocol"] for nodes in ("", "-two-nodes")
    ]
    known |= {f"generation.{name}.{key}" for name in generations for key in ("channels", *channels)}
    known |= {f"since.{what}" for what in (*_OF_VERSIONS, *names["protocol"])}
    check_known_fields(fields, known)
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
    known = [(channel, f"generation.{name}.{channel}") for channel in channels]
    return GpuGeneration(
        name,
        gpus,
        SwitchReductionShares(*(read_share(fields, each) for each in switched))
        if switched[0] in fields.quantities
        else None,
        tuple((channel, fields.required_rate(field)) for channel, field in known if field in fields.quantities),
        fields.required_count(f"generation.{name}.channels"),
    )


def _merge_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables in which those above have the word, value for value."""
    both = dict(below)
    for key, value in above.items():
        tables = isinstance(value, dict) and "value" not in value and isinstance(below.get(key), dict)
        both[key] = _merge_tables(below[key], value) if tables else value
    return both


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
    """Return the shipped constants of a library by its name, with some of one's own in their place."""
    return read_constants(data_directory("libraries") / f"{library}.toml", own)
