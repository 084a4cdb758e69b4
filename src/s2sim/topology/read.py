"""Reads a cluster description (TOML), applies overrides and checks that every field means something."""

from __future__ import annotations

import tomllib
import warnings
from typing import TYPE_CHECKING, Any

from s2sim.errors import S2SimWarning, TopologyError, nearest
from s2sim.topology.kinds import FABRIC_KINDS, KINDS, ROUTINGS
from s2sim.topology.quantity import Quantity, count, rate_Bps, read_quantity, sides, text, time_ps
from s2sim.topology.shape import ClusterShape, LinkSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from s2sim.topology.kinds.layout import Kind

_TEXTS = ("name", "description", "source", "routing", "fabric.kind")
_SIZES = ("fabric.size",)
# Fields that say how a kind of fabric is built; each kind has some.
_OF_KINDS = tuple(dict.fromkeys(field for kind in KINDS.values() for field in kind.fields))
_COUNTS = (
    "node.gpus",
    "nic.count",
    "fabric.levels",
    *(field for field in _OF_KINDS if field not in _SIZES),
    "fabric.nodes",
)
_LINKS = ("nvlink", "pcie", "nic", "fabric.link")
FIELDS = (*_TEXTS, *_COUNTS, *_SIZES, *(f"{link}.{part}" for link in _LINKS for part in ("rate", "latency")))

# No cluster has more of anything; how many links fit is asked where they are counted.
_MOST_COUNT = 10**9
_LONGEST_TEXT = 40
# A hypercube of as many dimensions has more nodes than any cluster.
_MOST_DIMENSIONS = 32


def load_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; `TopologyError` says what is wrong with it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise TopologyError(f"there is no file {path}") from error
    except IsADirectoryError as error:
        raise TopologyError(f"{path} is a directory: give a TOML file in it") from error
    except OSError as error:
        raise TopologyError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TopologyError(f"{path} cannot be read: it is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise TopologyError(f"{path} is not valid TOML: {error}") from error
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or brackets in brackets.
        raise TopologyError(f"{path} is not a description: it holds a number or a list beyond reason") from error


def _unknown_field(field: str, where: str) -> TopologyError:
    table = field.rpartition(".")[0]
    beside = [known for known in FIELDS if table and known.startswith(f"{table}.")]
    return TopologyError(f"{where}: unknown field {field!r}{nearest(field, beside or FIELDS)}")


def _flatten(table: Mapping[str, Any], where: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        field = prefix + key
        if field in FIELDS:
            yield field, value
        elif isinstance(value, dict) and any(known.startswith(f"{field}.") for known in FIELDS):
            yield from _flatten(value, where, f"{field}.")
        else:
            raise _unknown_field(field, where)


def _overridden(overrides: Sequence[str], where: str) -> Iterator[Quantity]:
    for override in overrides:
        field, equals, value = (part.strip() for part in override.partition("="))
        if not equals or not field or not value:
            raise TopologyError(f"{override!r} is not field=value: write for example nic.rate=100Gbps")
        if field not in FIELDS:
            raise _unknown_field(field, where)
        is_count = field in _COUNTS and value.removeprefix("-").isdecimal() and len(value) <= _LONGEST_TEXT
        yield Quantity(field, int(value) if is_count else value, "user", "override")


class _Fields:
    """The given fields by dotted name, read with errors that name file and field."""

    def __init__(self, given: dict[str, Quantity], where: str) -> None:
        self.given, self.where = given, where

    def text(self, field: str, default: str | None, choices: tuple[str, ...] = ()) -> str:
        if field not in self.given and default is not None:
            return default
        return text(self.required(field), self.where, choices)

    def count(self, field: str) -> int | None:
        return self.required_count(field) if field in self.given else None

    def required_count(self, field: str) -> int:
        quantity = self.required(field)
        shown = str(quantity.value)
        if len(shown) > _LONGEST_TEXT:
            raise TopologyError(
                f"{self.where}: {field} = {shown[:_LONGEST_TEXT]}... is out of range: at most {_MOST_COUNT}"
            )
        if (number := count(quantity, self.where)) > _MOST_COUNT:
            raise TopologyError(f"{self.where}: {field} = {number} is out of range: at most {_MOST_COUNT}")
        return number

    def size(self, field: str) -> tuple[int, ...] | None:
        return sides(self.given[field], self.where, _MOST_COUNT) if field in self.given else None

    def rate(self, field: str) -> float | None:
        return rate_Bps(self.given[field], self.where) if field in self.given else None

    def latency(self, field: str) -> int:
        return time_ps(self.given[field], self.where) if field in self.given else 0

    def required(self, field: str) -> Quantity:
        if field not in self.given:
            raise TopologyError(f"{self.where}: {field} is missing")
        return self.given[field]

    def optional_link(self, table: str) -> LinkSpec | None:
        if not any(field.startswith(f"{table}.") for field in self.given):
            return None
        return LinkSpec(rate_Bps(self.required(f"{table}.rate"), self.where), self.latency(f"{table}.latency"))

    def network_rates(self) -> tuple[float, float]:
        """Return the rates of an interface and of a link between switches; either stands for both."""
        nic, link = self.rate("nic.rate"), self.rate("fabric.link.rate")
        either = nic or link
        if either is None:
            raise TopologyError(f"{self.where}: nic.rate is missing: write for example nic.rate = '100Gbps'")
        return nic or either, link or either


def _levels(fields: _Fields, name: str, kind: Kind) -> int:
    """Return how many levels of switches there are, and refuse fields that describe what the kind does not have."""
    asked = fields.count("fabric.levels")
    if asked is not None and asked not in kind.levels:
        allowed = " or ".join(map(str, kind.levels)) or "none"
        raise TopologyError(f"{fields.where}: fabric.levels = {asked} does not fit a {name}: it has {allowed}")
    levels = asked or next(iter(kind.levels), 0)
    for field in _OF_KINDS:
        if field in fields.given and levels < kind.fields.get(field, levels + 1):
            shape = f"{name} of {levels} levels" if levels > 1 else name
            raise TopologyError(f"{fields.where}: {field} has no effect on a {shape}: leave it out")
    return levels


def _routing(fields: _Fields, name: str, kind: Kind) -> str:
    """Return the rule by which ways are chosen, one of those that the kind has."""
    if not kind.routings and "routing" in fields.given:
        warnings.warn(
            f"{fields.where}: routing has no effect on a {name}, where there is one way", S2SimWarning, stacklevel=4
        )
    routing = fields.text("routing", next(iter(kind.routings), ""), ROUTINGS)
    if kind.routings and routing not in kind.routings:
        raise TopologyError(
            f"{fields.where}: routing = {routing!r} does not exist on a {name}: it has {', '.join(kind.routings)}"
        )
    return routing


def _torus(fields: _Fields) -> tuple[tuple[int, ...] | None, int | None]:
    """Return the size of a torus, and how many dimensions one without size has."""
    dimensions = fields.count("fabric.dimensions")
    size = fields.size("fabric.size")
    if size is not None and dimensions is not None:
        raise TopologyError(
            f"{fields.where}: fabric.dimensions has no effect beside fabric.size, which has {len(size)}: leave one out"
        )
    if max(dimensions or 0, len(size or ())) > _MOST_DIMENSIONS:
        raise TopologyError(f"{fields.where}: a torus has at most {_MOST_DIMENSIONS} dimensions: ask for fewer")
    return size, dimensions


def read_shape(path: Path, overrides: Sequence[str] = ()) -> ClusterShape:
    """Return the shape that the file at ``path`` describes, with fields replaced by ``overrides`` (``"field=value"``).

    Raises
    ------
    TopologyError
        For a missing or broken file, an unknown, missing or contradictory field, or one that would have no effect.
    UnitError
        For a quantity without a unit or with the wrong one.
    """
    where = path.name
    given = {field: read_quantity(raw, field, where) for field, raw in _flatten(load_toml(path), where)}
    given |= {quantity.field: quantity for quantity in _overridden(overrides, where)}
    fields = _Fields(given, where)
    gpus = fields.required_count("node.gpus")
    nics = fields.count("nic.count") or 1
    nvlink, pcie = fields.optional_link("nvlink"), fields.optional_link("pcie")
    if gpus > 1 and nvlink is None and pcie is None:
        raise TopologyError(f"{where}: node.gpus = {gpus} needs [nvlink] or [pcie] to join them: add one with a rate")
    if nics > gpus:
        raise TopologyError(
            f"{where}: nic.count = {nics} for node.gpus = {gpus}: a GPU uses one interface, so write at most {gpus}"
        )
    name = fields.text("fabric.kind", None, FABRIC_KINDS)
    kind = KINDS[name]
    levels = _levels(fields, name, kind)
    size, dimensions = _torus(fields)
    nic_rate_Bps, link_rate_Bps = fields.network_rates()
    return ClusterShape(
        name=fields.text("name", path.stem),
        description=fields.text("description", ""),
        source=fields.text("source", ""),
        file=str(path),
        gpus_per_node=gpus,
        nvlink=nvlink,
        pcie=pcie,
        nics_per_node=nics,
        nic=LinkSpec(nic_rate_Bps, fields.latency("nic.latency")),
        kind=name,
        host_cable=kind.host_cable,
        levels=levels,
        hosts_per_leaf=fields.count("fabric.hosts_per_leaf"),
        uplinks_per_leaf=fields.count("fabric.uplinks_per_leaf"),
        leaves_per_pod=fields.count("fabric.leaves_per_pod"),
        uplinks_per_aggregation=fields.count("fabric.uplinks_per_aggregation"),
        size=size,
        dimensions=dimensions,
        hosts_per_router=fields.count("fabric.hosts_per_router"),
        routers_per_group=fields.count("fabric.routers_per_group"),
        global_links_per_router=fields.count("fabric.global_links_per_router"),
        max_nodes=fields.count("fabric.nodes"),
        link=LinkSpec(link_rate_Bps, fields.latency("fabric.link.latency")),
        routing=_routing(fields, name, kind),
        quantities=tuple(given.values()),
    )
