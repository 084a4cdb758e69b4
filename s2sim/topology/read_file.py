"""Reads a cluster description (TOML), applies overrides and checks that every field means something."""

from __future__ import annotations

import os.path
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from s2sim.errors import S2SimWarning, TopologyError, unknown_name
from s2sim.files import is_toml_path, user_path
from s2sim.registry import Registry
from s2sim.topology.fields import FIELDS_OF_KIND, OVERRIDE, load_fields, named_link, shipped_topologies
from s2sim.topology.hardware import HardwareEntry, shipped_part, shipped_tables
from s2sim.topology.kinds import FABRIC_KINDS, KINDS, ROUTINGS
from s2sim.topology.layout import FabricKind
from s2sim.topology.quantity import FieldReader, Quantity
from s2sim.topology.read_node import read_groups
from s2sim.topology.shape import ClusterShape, LinkSpec, NamedLinks, read_price

_COUNTS = (
    *("hosts_per_leaf", "uplinks_per_leaf", "leaves_per_pod", "uplinks_per_aggregation"),
    *("hosts_per_router", "routers_per_group", "global_links_per_router"),
)
# A hypercube of as many dimensions has more nodes than any cluster.
_MAX_DIMENSIONS = 32


def _levels(fields: FieldReader, name: str, kind: FabricKind) -> int:
    """Return the number of switch levels; refuse fields of other kinds."""
    asked = fields.count("fabric.levels")
    if asked is not None and asked not in kind.levels:
        allowed = " or ".join(map(str, kind.levels)) or "none"
        raise fields.error(f"fabric.levels = {asked} does not fit a {name}: it has {allowed}")
    levels = asked or next(iter(kind.levels), 0)
    for field in FIELDS_OF_KIND:
        if field in fields.quantities and levels < kind.fields.get(field, levels + 1):
            shape = f"{name} of {levels} levels" if levels > 1 else name
            raise fields.error(f"{field} has no effect on a {shape}: leave it out")
    return levels


def _named_links(fields: FieldReader) -> tuple[NamedLinks, ...]:
    """Return the links with a rate or latency by name, in order."""
    found: dict[str, dict[str, Any]] = {}
    for field in fields.quantities:
        if about := named_link(field):
            name, part = about
            value = fields.rate(field) if part == "rate" else fields.latency(field)
            # The last to be named comes last.
            found[name] = {**found.pop(name, {}), part: value}
    return tuple(NamedLinks(name, each.get("rate"), each.get("latency")) for name, each in found.items())


def parse_shape(given: dict[str, Quantity], path: Path) -> ClusterShape:
    """Return the shape of fields by dotted name, as `load_fields` returns them; ``path`` names them in messages."""
    fields = FieldReader(given, path.name)
    groups = read_groups(fields)
    name = fields.text("fabric.kind", None, FABRIC_KINDS)
    kind = KINDS[name]
    levels = _levels(fields, name, kind)
    dimensions, size = fields.count("fabric.dimensions"), fields.size("fabric.size")
    if size is not None and dimensions is not None:
        raise fields.error(f"fabric.dimensions has no effect beside fabric.size, which has {len(size)}: leave one out")
    if max(dimensions or 0, len(size or ())) > _MAX_DIMENSIONS:
        raise fields.error(f"a torus has at most {_MAX_DIMENSIONS} dimensions: ask for fewer")
    gpu = fields.text("gpu", "")
    if is_toml_path(gpu) and fields.quantities["gpu"].source != OVERRIDE:
        # A path in the file is taken from where the file lies.
        gpu = str(path.parent / user_path(gpu, TopologyError))
    if not kind.routings and "routing" in given:
        warnings.warn(
            f"{fields.origin}: routing has no effect on a {name}, where there is one way", S2SimWarning, stacklevel=3
        )
    routing = fields.text("routing", next(iter(kind.routings), ""), ROUTINGS)
    if kind.routings and routing not in kind.routings:
        raise fields.error(f"routing = {routing!r} does not exist on a {name}: it has {', '.join(kind.routings)}")
    counts: dict[str, Any] = {name: fields.count(f"fabric.{name}") for name in _COUNTS}
    # Links between switches are as fast as the fastest interfaces where nothing else is said.
    link_rate_Bps = fields.rate("fabric.link.rate") or fields.rate("nic.rate")

    return ClusterShape(
        name=fields.text("name", path.stem),
        description=fields.text("description", ""),
        source=fields.text("source", ""),
        file=str(path),
        gpu=gpu or None,
        library=fields.text("library", "") or None,
        groups=groups,
        kind=name,
        host_cable=kind.host_cable,
        levels=levels,
        size=size,
        dimensions=dimensions,
        max_nodes=fields.count("fabric.nodes"),
        processors=fields.count("machine.processors"),
        packet_bytes=fields.bytes("machine.packet"),
        link=LinkSpec(
            link_rate_Bps or max(group.node.nic.rate_Bps for group in groups), fields.latency("fabric.link.latency")
        ),
        named_links=_named_links(fields),
        routing=routing,
        price=read_price(fields),
        quantities=tuple(given.values()),
        **counts,
    )


# An installed package adds its own: an entry point of this group names the path of a TOML file.
_PLUGINS = Registry("topology", "s2sim.topologies", {})


def load_shape(name_or_path: str | Path, overrides: Sequence[str] = ()) -> ClusterShape:
    """Return the shape of a shipped topology (a name) or of the user's own file (a text with a slash, or in ``.toml``).

    ``overrides`` are ``"field=value"`` each, for example ``"nic.rate=100Gbps"``; later ones win.
    """
    if isinstance(name_or_path, Path):
        path = name_or_path
    elif is_toml_path(name_or_path):
        path = user_path(name_or_path, TopologyError)
    elif (shipped := shipped_topologies()) and name_or_path in shipped:
        path = shipped[name_or_path]
    elif name_or_path in _PLUGINS.names():
        path = Path(_PLUGINS.get(name_or_path))
    elif os.path.lexists(name_or_path):
        # A name wins over a file in the working directory.
        raise TopologyError(f"{name_or_path} is a path and not a name: give a TOML file as ./FILE")
    else:
        raise unknown_name("topology", name_or_path, [*shipped, *_PLUGINS.names()])
    return parse_shape(load_fields(path, overrides), path)


def list_topologies() -> list[tuple[str, str, str]]:
    """Return (name, one-line summary, source) of every named topology, shipped ones first."""
    shapes = {name: load_shape(name) for name in (*shipped_topologies(), *_PLUGINS.names())}
    return [(name, shape.description, shape.source) for name, shape in shapes.items()]


PARTS = {
    "gpus": ("gpu", "GPU"),
    "nics": ("nic", "network interface"),
    "switches": ("switch", "switch"),
    "transports": ("transport", "transport"),
}
"""Lists of parts: the section of the catalogue, and what one of them is called."""

# The fields in a line of a list.
_SHOWN = {
    "gpu": {
        "memory": "{}",
        "memory_bandwidth": "{} of memory bandwidth",
        "fp32_flops": "fp32 {}",
        "fp16_flops": "fp16 {}",
        "links": "{} links",
        "pcie": "PCIe {}",
    },
    "nic": {"rate": "{}", "pcie": "PCIe {}", "latency": "{} of latency"},
    "switch": {"ports": "{} ports", "rate": "{} each", "latency": "{} from port to port"},
    "transport": {"header": "{} beside", "payload": "{} of payload", "gpu_memory": "GPU memory reached: {}"},
}
_UNIT = re.compile(r"(?<=\d)(?=[A-Za-z])")


def value_text(value: object) -> str:
    """Return a value of the catalogue for reading.

    >>> value_text("1555GB/s"), value_text("gen4"), value_text(["4 mesh", "8 switch"])
    ('1555 GB/s', 'gen4', '4 mesh, 8 switch')
    """
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return _UNIT.sub(" ", value, count=1) if isinstance(value, str) and value[:1].isdigit() else str(value)


def find_part(kind: str, name: str) -> HardwareEntry:
    """Return one part of the catalogue; ``kind`` is a key of `PARTS`, and `UnknownNameError` names the nearest."""
    section, noun = PARTS[kind]
    return shipped_part(section, name, noun)


def list_parts(kind: str) -> list[tuple[str, str, str]]:
    """Return (name, one-line summary with units, source) of every part of a kind, a key of `PARTS`."""
    names = shipped_tables().names(PARTS[kind][0])
    return [(part.name, summarise_part(part), part.source) for part in (find_part(kind, name) for name in names)]


def summarise_part(part: HardwareEntry) -> str:
    """Return the description of a part, with its most important values."""
    shown = [
        text.format(value_text(part.value(field)))
        for field, text in _SHOWN[part.section].items()
        if part.value(field) is not None
    ]
    return f"{part.description}: {', '.join(shown)}"
