"""The fields of a cluster description: which there are, and how they are read from tables and overrides."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from s2sim.errors import TopologyError, check_known, suggest_nearest, unknown_name, warn
from s2sim.files import data_directory, read_toml
from s2sim.topology.kinds import KINDS
from s2sim.topology.quantity import MAX_TEXT, Quantity, read_quantity
from s2sim.topology.shape import PRICE_FIELDS, usual_path

HARDWARE_FILE = "hardware.toml"

GROUPS = {"fabrics": ".", "machines": "machines", "clusters": "clusters"}
"""Kinds of cluster descriptions, each with its folder in ``topologies/``."""


def shipped_topologies() -> dict[str, Path]:
    """Return the paths of all cluster descriptions by name, one kind of them after the other."""
    directory = data_directory("topologies")
    return {
        path.stem: path
        for folder in GROUPS.values()
        for path in sorted((directory / folder).glob("*.toml"), key=lambda path: path.stem)
        if path.name != HARDWARE_FILE
    }


def topology_group(name: str) -> str | None:
    """Return the kind of a shipped description, one of `GROUPS`; None for a name that is not shipped."""
    directory = data_directory("topologies")
    path = shipped_topologies().get(name)
    return next((group for group, folder in GROUPS.items() if path and path.parent == directory / folder), None)


SIZES = ("fabric.size",)
GRAPH_FILE = "fabric.file"
# Fields that say how a kind of fabric is built; each kind has some.
FIELDS_OF_KIND = tuple(dict.fromkeys(field for kind in KINDS.values() for field in kind.fields))
_NODE_TEXTS = ("nvlink.kind", "pcie.peer_to_peer", "nic.at", "nic.transport", "nic.path")
_NODE_COUNTS = (
    "node.gpus",
    "nic.count",
    "nic.queue_pairs",
    "nvlink.links_per_pair",
    "pcie.gpus_per_switch",
    "pcie.sockets",
    "nvlink.domain_nodes",
)
_NODE_LINKS = ("nvlink", "pcie", "pcie.uplink", "pcie.host", "pcie.memory", "pcie.socket", "nic")


def _link_fields(links: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{link}.{part}" for link in links for part in ("rate", "latency"))


NODE_FIELDS = (*_NODE_COUNTS, *_NODE_TEXTS, "nvlink.pairs", *_link_fields(_NODE_LINKS))
_COUNTS = (
    "fabric.levels",
    *(field for field in FIELDS_OF_KIND if field not in (*SIZES, GRAPH_FILE)),
    "fabric.nodes",
    "machine.processors",
    "price.years",
)
MACHINE_FIELDS = ("gpu", "library")
_TEXTS = ("name", "description", "source", *MACHINE_FIELDS, "routing", "fabric.kind", GRAPH_FILE)
FIELDS = (*_TEXTS, *NODE_FIELDS, *_COUNTS, *SIZES, *_link_fields(["fabric.link"]), "machine.packet", *PRICE_FIELDS)
# Of each of [[nodes]], which replaces [node].
_GROUP_FIELDS = ("count", *(field.removeprefix("node.") for field in NODE_FIELDS))
_NAMED_LINK_FIELDS = ("rate", "latency")
_EXTENDS = "extends"
# What a description says of itself alone.
_NOT_INHERITED = ("name", "description", "source")

OVERRIDE = "override"
"""Source of a value that is not in the file."""


def load_fields(path: Path, overrides: Sequence[str], tables: dict[str, Any] | None = None) -> dict[str, Quantity]:
    """Return the fields of a file by dotted name, replaced by ``overrides``; missing ones are inherited by ``extends``.

    Fields of the i-th of ``[[nodes]]`` are ``nodes.i.nic.rate``, those of ``[[links]]`` are ``link.NAME.rate``.
    ``tables`` are those of a file that is not of TOML.
    """
    where = path.name
    tables = read_toml(path, TopologyError) if tables is None else tables
    inherited = _inherited_fields(tables, path)
    groups, links = (tables.pop(key, []) for key in ("nodes", "links"))
    for key, array in (("nodes", groups), ("links", links)):
        if not isinstance(array, list) or not all(isinstance(table, dict) for table in array):
            raise TopologyError(f"{where}: {key} is an array of tables: write [[{key}]] above each")
    given = {field: read_quantity(raw, field, where) for field, raw in _flatten(tables, where)}
    for number, group in enumerate(groups):
        prefix = f"nodes.{number}."
        for field, raw in _flatten(group, where, known=_GROUP_FIELDS, shown=prefix):
            given[prefix + field] = read_quantity(raw, prefix + field, where)
    for number, table in enumerate(links):
        for quantity in _named_links(table, f"links.{number}", where):
            if quantity.field in given:
                raise TopologyError(f"{where}: {quantity.field.removeprefix('link.')} is given twice: leave one out")
            given[quantity.field] = quantity
    given = inherited | given
    groups_given = len({field.split(".")[1] for field in given if field.startswith("nodes.")})
    for override in overrides:
        field, equals, value = (part.strip() for part in override.partition("="))
        if not equals or not field or not value:
            raise TopologyError(f"{override!r} is not field=value: write for example nic.rate=100Gbps")
        is_count = plain_field(field, where, groups_given) in (*_NODE_COUNTS, *_COUNTS, "count")
        is_number = value.removeprefix("-").isdecimal() and len(value) <= MAX_TEXT
        given[field] = Quantity(field, int(value) if is_count and is_number else value, "user", OVERRIDE)
    return given | dict(_paths_of_other_transports(given))


def _paths_of_other_transports(given: Mapping[str, Quantity]) -> Iterator[tuple[str, Quantity]]:
    """Yield the ways to interfaces that an override makes sockets, of which the file states another transport's."""
    for field, each in given.items():
        path, usual = field.replace("transport", "path"), usual_path(str(each.value))
        stated = given.get(path, given.get("nic.path"))
        is_asked = field.endswith("nic.transport") and each.source == OVERRIDE
        if is_asked and stated and stated.source != OVERRIDE and usual not in ("switch", stated.value):
            warn(f"{field}={each.value} carries what is in host memory, so {path}={usual}: give that too for another")
            yield path, Quantity(path, usual, "user", OVERRIDE)


def _inherited_fields(tables: dict[str, Any], path: Path) -> dict[str, Quantity]:
    if (name := tables.pop(_EXTENDS, None)) is None:
        return {}
    if not isinstance(name, str):
        raise TopologyError(
            f"{path.name}: {_EXTENDS} = {name!r} is not a text: write the name of a topology that ships"
        )
    if name not in (shipped := shipped_topologies()):
        raise unknown_name("topology", name, shipped)
    # Nodes of unlike kinds are described together.
    own_groups = "nodes" in tables
    return {
        field: quantity
        for field, quantity in load_fields(shipped[name], ()).items()
        if field not in _NOT_INHERITED and not (own_groups and field.startswith("nodes."))
    }


def _named_links(table: dict[str, Any], shown: str, where: str) -> Iterator[Quantity]:
    for key in table:
        check_known(key, ("name", *_NAMED_LINK_FIELDS), f"{where}: unknown field '{shown}.{key}'", TopologyError)
    name = table.get("name")
    if not isinstance(name, str) or not name.strip():
        raise TopologyError(f"{where}: {shown} has no name: write for example name = 'leaf0.up*'")
    if len(table) == 1:
        raise TopologyError(f"{where}: the links {name!r} have neither rate nor latency: write one")
    for key in _NAMED_LINK_FIELDS:
        if key in table:
            yield read_quantity(table[key], f"link.{name}.{key}", where)


def named_link(field: str) -> tuple[str, str] | None:
    """Return the links and what of them a field is about; None for any other field.

    >>> named_link("link.leaf0.up*.rate")
    ('leaf0.up*', 'rate')
    """
    name, _, part = field.removeprefix("link.").rpartition(".")
    return (name, part) if field.startswith("link.") and name and part in _NAMED_LINK_FIELDS else None


def _unknown_field(field: str, where: str, known: Sequence[str] = FIELDS, shown: str = "") -> TopologyError:
    table = field.rpartition(".")[0]
    beside = [name for name in known if table and name.startswith(f"{table}.")]
    return TopologyError(f"{where}: unknown field {shown + field!r}{suggest_nearest(field, beside or known)}")


def _flatten(
    table: Mapping[str, Any], where: str, prefix: str = "", known: Sequence[str] = FIELDS, shown: str = ""
) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        field = prefix + key
        if field in known:
            yield field, value
        elif isinstance(value, dict) and any(name.startswith(f"{field}.") for name in known):
            yield from _flatten(value, where, f"{field}.", known, shown)
        else:
            raise _unknown_field(field, where, known, shown)


def plain_field(field: str, where: str, groups: int = 10**MAX_TEXT) -> str:
    """Return the field without the group of nodes that it is about; refuse one that does not exist."""
    if named_link(field) is not None:
        return field
    number, _, rest = field.removeprefix("nodes.").partition(".")
    if not field.startswith("nodes.") or not number.isdecimal():
        if field not in FIELDS:
            raise _unknown_field(field, where)
        return field
    if rest not in _GROUP_FIELDS:
        raise _unknown_field(rest, where, _GROUP_FIELDS, f"nodes.{number}.")
    if len(number) > MAX_TEXT or int(number) >= groups:
        raise TopologyError(f"{where}: {field} was asked for, there are {groups} [[nodes]], counted from 0")
    return "node.gpus" if rest == "gpus" else rest
