"""Reads the constants of a library from its file."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from s2sim.collectives.libraries.constants import LINKS, SHARES, Constants, Generation, Protocol, Switched, Way
from s2sim.collectives.libraries.fields import check_known, flat_fields, share_of, size_of, take_head
from s2sim.collectives.libraries.version import read_version
from s2sim.data import data_directory
from s2sim.errors import TopologyError
from s2sim.text_files import read_toml
from s2sim.topology.files.quantity import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from s2sim.collectives.libraries.constants import Own
    from s2sim.collectives.libraries.version import Version

_OF_PROTOCOLS = ("share", "limit", "network-limit", "network", "ways", "messages", "part")
_OF_SWITCHED = ("share", "share-over-hosts", "share-over-nodes")
_OF_SWITCHES = ("latency", "channels", "stages")
_TABLES = ("launch", "peer", "protocol", "since", "share", "generation", "in-network", "network", "path")
_OF_VERSIONS = ("tree", "in-network", "nvls-tree", "pat", "messages")


def read_constants(path: Path, own: Own = ()) -> Constants:
    """Return the constants of a library's file, some replaced by one's own; `TopologyError` says what is wrong."""
    tables = read_toml(path, TopologyError)
    where = path.name
    base = tables.pop("base", None)
    if base is not None:
        tables = _over(read_toml(data_directory("libraries") / f"{base}.toml", TopologyError), tables)
    _replace(tables, own, where)
    name, source = take_head(tables, _TABLES, where)
    generations = {
        name: _names(table, f"generation.{name}.gpus", where) for name, table in tables.get("generation", {}).items()
    }
    fields = Fields(dict(flat_fields(tables, "", where)), where)
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
    check_known(fields, known)
    protocols = tuple(
        Protocol(
            name,
            share_of(fields, f"protocol.{name}.share"),
            fields.rate(f"protocol.{name}.limit") or float("inf"),
            fields.rate(f"protocol.{name}.network-limit") or float("inf"),
            tuple((link, fields.latency(f"protocol.{name}.{link}")) for link in LINKS),
            fields.latency(f"protocol.{name}.network"),
            fields.text(f"protocol.{name}.ways", "all", ("all", "direct")) == "direct",
            size_of(fields, f"protocol.{name}.messages"),
            size_of(fields, f"protocol.{name}.part"),
        )
        for name in names["protocol"]
    )
    networks, paths = (
        tuple(
            (
                name,
                Way(
                    share_of(fields, f"{table}.{name}.share"),
                    fields.latency(f"{table}.{name}.latency"),
                    fields.rate(f"{table}.{name}.stream") or float("inf"),
                    size_of(fields, f"{table}.{name}.eager"),
                    fields.latency(f"{table}.{name}.rendezvous"),
                ),
            )
            for name in names[table]
        )
        for table in ("network", "path")
    )
    return Constants(
        name=name,
        source=source,
        launch_ps=fields.latency("launch.collective"),
        launch_gpu_ps=fields.latency("launch.gpu"),
        launch_channel_ps=fields.latency("launch.channel"),
        peer_inside_ps=fields.latency("peer.inside"),
        peer_between_ps=fields.latency("peer.network"),
        protocols=protocols,
        shares=tuple((name, share_of(fields, f"share.{name}")) for name in SHARES),
        generations=tuple(_generation(name, gpus, channels, fields) for name, gpus in generations.items()),
        in_network_ps=fields.latency("in-network.latency"),
        in_network_channels=fields.required_count("in-network.channels"),
        in_network_stages=fields.required_count("in-network.stages"),
        networks=networks,
        paths=paths,
        since=tuple(
            (field.removeprefix("since."), _version(fields, field))
            for field in fields.given
            if field.startswith("since.")
        ),
        quantities=tuple(fields.given.values()),
    )


def _generation(name: str, gpus: tuple[str, ...], channels: Sequence[str], fields: Fields) -> Generation:
    switched = [f"in-network.{name}.{key}" for key in _OF_SWITCHED]
    known = [(channel, f"generation.{name}.{channel}") for channel in channels]
    return Generation(
        name,
        gpus,
        Switched(*(share_of(fields, each) for each in switched)) if switched[0] in fields.given else None,
        tuple((channel, fields.required_rate(field)) for channel, field in known if field in fields.given),
        fields.required_count(f"generation.{name}.channels"),
    )


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables in which those above have the word, value for value."""
    both = dict(below)
    for key, value in above.items():
        tables = isinstance(value, dict) and "value" not in value and isinstance(below.get(key), dict)
        both[key] = _over(below[key], value) if tables else value
    return both


def _names(table: dict[str, object], field: str, where: str) -> tuple[str, ...]:
    names = table.pop("gpus", None)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TopologyError(f"{where}: {field} is a list of names: write for example ['h100']")
    return tuple(names)


def _replace(tables: dict[str, Any], own: Own, where: str) -> None:
    for field, value in own:
        *outer, name = field.split(".")
        table: Any = tables
        for each in outer:
            table = table.get(each) if isinstance(table, dict) else None
        if not isinstance(table, dict) or name not in table:
            raise TopologyError(f"{where} has no constant {field!r}")
        table[name] = {"value": value, "kind": "measured", "source": "fitted to measurements of one's own"}


def _version(fields: Fields, field: str) -> Version:
    version = read_version(fields.text(field, None))
    if not version:
        raise TopologyError(f"{fields.where}: {field} is no version: write for example '2.18'")
    return version


@cache
def load_constants(library: str, own: Own = ()) -> Constants:
    """Return the shipped constants of a library by its name, with some of one's own in their place."""
    return read_constants(data_directory("libraries") / f"{library}.toml", own)
