"""Reads a cluster description (TOML), applies overrides and checks that every field means something."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from s2sim.errors import S2SimWarning, TopologyError
from s2sim.text_files import is_toml_path, user_path
from s2sim.topology.files.fields import OF_KINDS, OVERRIDE, given_fields, named_link
from s2sim.topology.files.quantity import Fields
from s2sim.topology.files.read_node import read_groups
from s2sim.topology.kinds import FABRIC_KINDS, KINDS, ROUTINGS
from s2sim.topology.named_links import NamedLinks
from s2sim.topology.node_spec import LinkSpec
from s2sim.topology.shape import ClusterShape

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from s2sim.topology.files.quantity import Quantity
    from s2sim.topology.kinds.layout import Kind

# A hypercube of as many dimensions has more nodes than any cluster.
_MOST_DIMENSIONS = 32


def _levels(fields: Fields, name: str, kind: Kind) -> int:
    """Return how many levels of switches there are, and refuse fields that describe what the kind does not have."""
    asked = fields.count("fabric.levels")
    if asked is not None and asked not in kind.levels:
        allowed = " or ".join(map(str, kind.levels)) or "none"
        raise TopologyError(f"{fields.where}: fabric.levels = {asked} does not fit a {name}: it has {allowed}")
    levels = asked or next(iter(kind.levels), 0)
    for field in OF_KINDS:
        if field in fields.given and levels < kind.fields.get(field, levels + 1):
            shape = f"{name} of {levels} levels" if levels > 1 else name
            raise TopologyError(f"{fields.where}: {field} has no effect on a {shape}: leave it out")
    return levels


def _routing(fields: Fields, name: str, kind: Kind) -> str:
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


def _torus(fields: Fields) -> tuple[tuple[int, ...] | None, int | None]:
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


def _named_links(fields: Fields) -> tuple[NamedLinks, ...]:
    """Return what is given of links by their names, in order."""
    found: dict[str, NamedLinks] = {}
    for field in fields.given:
        if (about := named_link(field)) is None:
            continue
        name, part = about
        before = found.pop(name, NamedLinks(name, None, None))
        if part == "rate":
            found[name] = NamedLinks(name, fields.rate(field), before.latency_ps)
        else:
            found[name] = NamedLinks(name, before.rate_Bps, fields.latency(field))
    return tuple(found.values())


def _gpu(fields: Fields, path: Path) -> str | None:
    """Return the name or the path of the GPU; a path in the file is taken from where the file lies."""
    text = fields.text("gpu", "")
    if is_toml_path(text) and fields.given["gpu"].source != OVERRIDE:
        text = str(path.parent / user_path(text, TopologyError))
    return text or None


def read_shape(path: Path, overrides: Sequence[str] = ()) -> ClusterShape:
    """Return the shape that the file at ``path`` describes, with fields replaced by ``overrides``."""
    return shape_of(given_fields(path, overrides), path)


def shape_of(given: dict[str, Quantity], path: Path) -> ClusterShape:
    """Return the shape of fields by dotted name, as `given_fields` returns them; ``path`` names them in messages."""
    fields = Fields(given, path.name)
    groups = read_groups(fields)
    name = fields.text("fabric.kind", None, FABRIC_KINDS)
    kind = KINDS[name]
    levels = _levels(fields, name, kind)
    size, dimensions = _torus(fields)
    # Links between switches are as fast as the fastest interfaces where nothing else is said.
    link_rate_Bps = fields.rate("fabric.link.rate") or fields.rate("nic.rate")
    return ClusterShape(
        name=fields.text("name", path.stem),
        description=fields.text("description", ""),
        source=fields.text("source", ""),
        file=str(path),
        gpu=_gpu(fields, path),
        library=fields.text("library", "") or None,
        groups=groups,
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
        processors=fields.count("machine.processors"),
        packet_bytes=fields.bytes("machine.packet"),
        link=LinkSpec(
            link_rate_Bps or max(group.node.nic.rate_Bps for group in groups), fields.latency("fabric.link.latency")
        ),
        named_links=_named_links(fields),
        routing=_routing(fields, name, kind),
        quantities=tuple(given.values()),
    )
