"""Reads a cluster description (TOML), applies overrides and checks that every field means something."""

import os.path
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2sim.errors import TopologyError, unknown_name, warn
from s2sim.files import is_toml_path, own_tables, user_path
from s2sim.registry import Registry
from s2sim.topology.fields import FIELDS_OF_KIND, GRAPH_FILE, NODE_FIELDS, OVERRIDE, named_link, shipped_topologies
from s2sim.topology.graph_file import read_description
from s2sim.topology.hardware import HardwareEntry, shipped_part, shipped_tables
from s2sim.topology.kinds import FABRIC_KINDS, KINDS, ROUTINGS
from s2sim.topology.layout import FabricKind
from s2sim.topology.nvlink_mesh import mesh_routes
from s2sim.topology.quantity import FieldReader, Quantity
from s2sim.topology.shape import (
    MAX_MESHED,
    PATHS,
    TRANSPORTS,
    ClusterShape,
    FabricGraph,
    LinkSpec,
    NamedLinks,
    NodeSpec,
    read_price,
    usual_path,
)

if TYPE_CHECKING:
    from networkx import Graph

_COUNTS = (
    *("hosts_per_leaf", "uplinks_per_leaf", "leaves_per_pod", "uplinks_per_aggregation"),
    *("hosts_per_router", "routers_per_group", "global_links_per_router"),
)
# A hypercube of as many dimensions has more nodes than any cluster.
_MAX_DIMENSIONS, _MAX_PATHS = 32, 64


def read_groups(fields: FieldReader) -> tuple[NodeSpec, ...]:
    """Return the kinds of nodes: one, or those of ``[[nodes]]``."""
    numbers = sorted({int(field.split(".")[1]) for field in fields.quantities if field.startswith("nodes.")})
    if not numbers:
        return (_read_node(fields),)
    for field in NODE_FIELDS:
        own = [f"nodes.{number}.{field.removeprefix('node.')}" in fields.quantities for number in numbers]
        # The rate of the links between switches follows the interfaces.
        if field in fields.quantities and all(own) and (field != "nic.rate" or "fabric.link.rate" in fields.quantities):
            raise fields.error(
                f"{field} has no effect: all [[nodes]] give their own; leave it out, or set "
                f"nodes.0.{field.removeprefix('node.')}"
            )
    nodes = []
    for number in numbers:
        field = f"nodes.{number}.count"
        if field not in fields.quantities and number < numbers[-1]:
            raise fields.error(f"{field} is missing: only the last of [[nodes]] may go without")
        # Its own fields before those of the whole file.
        names = {name: f"nodes.{number}.{name.removeprefix('node.')}" for name in NODE_FIELDS}
        given = {name: fields.quantities[each] for name, each in names.items() if each in fields.quantities}
        nodes.append(_read_node(FieldReader(fields.quantities | given, fields.origin), fields.count(field)))
    if len({node.nics_per_gpu for node in nodes}) > 1:
        raise fields.error("nic.count gives a GPU several interfaces in some of [[nodes]] only: write as many for all")
    if len(nodes) > 1 and any(node.domain_nodes > 1 for node in nodes):
        raise fields.error("nvlink.domain_nodes joins nodes of one kind: leave it out, or [[nodes]]")
    return tuple(nodes)


def _optional_link(fields: FieldReader, table: str) -> LinkSpec | None:
    if not any(field.startswith(f"{table}.") for field in fields.quantities):
        return None
    return LinkSpec(fields.required_rate(f"{table}.rate"), fields.latency(f"{table}.latency"))


def _read_node(fields: FieldReader, count: int | None = None) -> NodeSpec:
    gpus = fields.required_count("node.gpus")
    nics = fields.count("nic.count") or 1
    nvlink, pcie = _optional_link(fields, "nvlink"), _optional_link(fields, "pcie")
    if gpus > 1 and nvlink is None and pcie is None:
        raise fields.error(f"node.gpus = {gpus} needs [nvlink] or [pcie] to join them: add one with a rate")
    if nics > gpus and nics % gpus:
        raise fields.error(
            f"nic.count = {nics} for node.gpus = {gpus}: all GPUs use as many interfaces, so write at most "
            f"{gpus} or a multiple of it"
        )
    mesh = _read_mesh(fields, gpus)
    if "pcie.peer_to_peer" in fields.quantities and nvlink is not None and mesh is None:
        raise fields.error("pcie.peer_to_peer has no effect beside an NVSwitch, which joins all GPUs: leave it out")
    domain_nodes = fields.count("nvlink.domain_nodes") or 1
    if domain_nodes > 1 and (nvlink is None or mesh is not None):
        raise fields.error(f"nvlink.domain_nodes = {domain_nodes} has no effect without NVSwitches: leave it out")
    per_switch, uplink, bridge = _read_pcie_tree(fields, gpus, pcie)
    peer_to_peer = fields.text("pcie.peer_to_peer", "yes", ("yes", "no")) == "yes"
    transport = fields.text("nic.transport", "", (*TRANSPORTS, ""))
    path = fields.text("nic.path", usual_path(transport), PATHS)
    sockets, socket, memory = _read_host(fields, gpus, pcie, bridge, staged=not peer_to_peer or path == "staged")
    if (nic_Bps := fields.rate("nic.rate") or fields.rate("fabric.link.rate")) is None:
        raise fields.error("nic.rate is missing: write for example nic.rate = '100Gbps'")
    node = NodeSpec(
        gpus=gpus,
        nvlink=nvlink,
        mesh=mesh,
        pcie=pcie,
        gpus_per_switch=per_switch,
        uplink=uplink,
        bridge=bridge,
        nics=nics,
        nic=LinkSpec(nic_Bps, fields.latency("nic.latency")),
        nics_at_host=fields.text("nic.at", "switch", ("switch", "host")) == "host",
        transport=transport or None,
        queue_pairs=fields.count("nic.queue_pairs") or 1,
        path=path,
        peer_to_peer=peer_to_peer,
        sockets=sockets,
        socket=socket,
        memory=memory,
        domain_nodes=domain_nodes,
        count=count,
    )
    if mesh is not None:
        try:
            mesh_routes(node, gpus)
        except TopologyError as error:
            raise fields.error(f"{error}") from error
    return node


def _read_mesh(fields: FieldReader, gpus: int) -> tuple[tuple[int, int, int], ...] | None:
    """Return the pairs of GPUs with the number of NVLinks between them; None for an NVSwitch."""
    if fields.text("nvlink.kind", "switch", ("switch", "mesh")) == "switch":
        for field in ("nvlink.pairs", "nvlink.links_per_pair"):
            if field in fields.quantities:
                raise fields.error(f"{field} has no effect on an NVSwitch: leave it out or set nvlink.kind = 'mesh'")
        return None
    if gpus > MAX_MESHED:
        raise fields.error(
            f"nvlink.kind = 'mesh' for node.gpus = {gpus}: NVLinks without a switch join at most {MAX_MESHED}"
        )
    if "nvlink.pairs" not in fields.quantities:
        links = fields.count("nvlink.links_per_pair") or 1
        return tuple((one, other, links) for one in range(gpus) for other in range(one + 1, gpus))
    if "nvlink.links_per_pair" in fields.quantities:
        raise fields.error(
            "nvlink.links_per_pair has no effect beside nvlink.pairs, in which a pair stands as "
            "often as it has links: leave one out"
        )
    quantity = fields.required("nvlink.pairs")
    value = quantity.value

    def is_pair(pair: Any) -> bool:
        is_two = isinstance(pair, list) and len(pair) == 2 and pair[0] != pair[1]
        return is_two and all(type(gpu) is int and 0 <= gpu < gpus for gpu in pair)

    if not isinstance(value, list) or not value or not all(map(is_pair, value)):
        raise fields.error(
            f"{quantity.field} = {str(value)[:40]} is not a list of pairs of GPUs from 0 to "
            f"{gpus - 1}: write for example [[0, 1], [1, 2]] in the file"
        )
    return tuple((*pair, number) for pair, number in sorted(Counter((min(pair), max(pair)) for pair in value).items()))


def _read_pcie_tree(
    fields: FieldReader, gpus: int, pcie: LinkSpec | None
) -> tuple[int | None, LinkSpec | None, LinkSpec | None]:
    """Return the GPUs below a PCIe switch, its uplink, and the host bridge."""
    if "pcie.gpus_per_switch" not in fields.quantities:
        for field in ("pcie.uplink.rate", "pcie.uplink.latency", "pcie.host.rate", "pcie.host.latency", "nic.at"):
            if field in fields.quantities:
                raise fields.error(
                    f"{field} has no effect without PCIe switches: set pcie.gpus_per_switch too, or leave it out"
                )
        return None, None, None
    assert pcie is not None  # The field above is one of [pcie].
    quantity = fields.required("pcie.gpus_per_switch")
    if (per_switch := fields.required_count("pcie.gpus_per_switch")) > gpus:
        raise fields.error(f"{quantity.field} = {per_switch} for node.gpus = {gpus}: write at most {gpus}")
    uplink = LinkSpec(fields.rate("pcie.uplink.rate") or pcie.rate_Bps, fields.latency("pcie.uplink.latency"))
    return per_switch, uplink, _optional_link(fields, "pcie.host")


def _read_host(
    fields: FieldReader, gpus: int, pcie: LinkSpec | None, bridge: LinkSpec | None, *, staged: bool
) -> tuple[int, LinkSpec | None, LinkSpec | None]:
    """Return the sockets of the host, the link between them, and the memory of each."""
    sockets = fields.count("pcie.sockets") or 1
    socket, memory = _optional_link(fields, "pcie.socket"), _optional_link(fields, "pcie.memory")
    if memory is not None and not staged:
        raise fields.error(
            "pcie.memory has no effect where nothing passes host memory: set pcie.peer_to_peer = 'no' or "
            "nic.path = 'staged' too, or leave it out"
        )
    if socket is not None and sockets == 1:
        raise fields.error("pcie.socket has no effect on one socket: set pcie.sockets = 2, or leave it out")
    if "pcie.sockets" not in fields.quantities:
        return 1, None, memory
    if pcie is None or (socket is None and memory is None):
        raise fields.error(
            f"pcie.sockets = {sockets} has no effect without pcie.socket.rate or pcie.memory.rate: add one"
        )
    if sockets > gpus:
        raise fields.error(f"pcie.sockets = {sockets} for node.gpus = {gpus}: write at most {gpus}")
    if bridge is not None and sockets > 1:
        raise fields.error(
            f"pcie.host is the bridge of one socket, and pcie.sockets = {sockets}: leave one of them out"
        )
    return sockets, socket, memory


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
    found: dict[str, dict[str, Any]] = {}
    for field in fields.quantities:
        if about := named_link(field):
            name, part = about
            # The last to be named comes last.
            found[name] = {**found.pop(name, {}), part: fields.rate(field) if part == "rate" else fields.latency(field)}
    return tuple(NamedLinks(name, each.get("rate"), each.get("latency")) for name, each in found.items())


def parse_shape(given: dict[str, Quantity], path: Path, graph: FabricGraph | None = None) -> ClusterShape:
    """Return the shape of fields by dotted name, as `load_fields` returns them; ``path`` names them in messages."""
    fields = FieldReader(given, path.name)
    nodes = read_groups(fields)
    name = fields.text("fabric.kind", None, FABRIC_KINDS)
    kind = KINDS[name]
    levels = _levels(fields, name, kind)
    if name == "graph" and graph is None:
        raise fields.error(f"{GRAPH_FILE} is missing: name the file of the graph, such as 'net.graphml'")
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
        warn(f"{fields.origin}: routing has no effect on a {name}, where there is one way", stacklevel=3)
    paths = fields.count("fabric.paths")
    routing = fields.text("routing", next(iter(kind.routings), ""), ROUTINGS)
    if kind.routings and routing not in kind.routings:
        raise fields.error(f"routing = {routing!r} does not exist on a {name}: it has {', '.join(kind.routings)}")
    if (routing == "explicit") != bool(graph and graph.routes):
        raise fields.error("routing = 'explicit' is that of platforms of SimGrid, which have no other")
    if paths is not None and (routing != "k-shortest" or paths > _MAX_PATHS):
        raise fields.error(f"fabric.paths has no effect without routing = 'k-shortest', which takes up to {_MAX_PATHS}")
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
        nodes=nodes,
        kind=name,
        host_cable=kind.host_cable and (graph is None or graph.first_switch > 0),
        levels=levels,
        size=size,
        dimensions=dimensions,
        graph=graph,
        paths=paths,
        max_nodes=fields.count("fabric.nodes"),
        processors=fields.count("machine.processors"),
        packet_bytes=fields.bytes("machine.packet"),
        link=LinkSpec(link_rate_Bps or max(node.nic.rate_Bps for node in nodes), fields.latency("fabric.link.latency")),
        named_links=_named_links(fields),
        routing=routing,
        price=read_price(fields),
        quantities=tuple(given.values()),
        **counts,
    )


# An installed package adds its own: an entry point of this group names the path of a TOML file.
_PLUGINS = Registry("topology", "s2sim.topologies", {})


def load_shape(name_or_path: "str | Path | Graph[Any]", overrides: Sequence[str] = ()) -> ClusterShape:
    """Return the shape of a shipped topology (a name) or of the user's own file (a text with a slash, or in ``.toml``).

    ``overrides`` are ``"field=value"`` each, for example ``"nic.rate=100Gbps"``; later ones win. A networkx graph, or
    the file of one, is a fabric; its own attributes are fields by their dotted names.
    """
    path: Path | Graph[Any]
    if not isinstance(name_or_path, str):
        path = name_or_path
    elif is_toml_path(name_or_path) or name_or_path.endswith((".graphml", ".edges")):
        path = user_path(name_or_path, TopologyError)
    elif (shipped := shipped_topologies()) and name_or_path in shipped:
        path = shipped[name_or_path]
    elif name_or_path in _PLUGINS.names():
        path = Path(_PLUGINS.get(name_or_path))
    elif os.path.lexists(name_or_path):
        # A name wins over a file in the working directory.
        how = "give a TOML file as ./FILE"
        if not name_or_path.endswith(".toml"):
            how += f", such as s2sim import {name_or_path} --out FILE.toml writes of a machine's own"
        raise TopologyError(f"{name_or_path} is a path and not a name: {how}")
    else:
        raise unknown_name("topology", name_or_path, [*shipped, *_PLUGINS.names()])
    return parse_shape(*read_description(path, overrides))


def list_topologies() -> list[tuple[str, str, str]]:
    """Return (name, one-line summary, source) of every named topology, shipped ones first."""
    shapes = {name: load_shape(name) for name in (*shipped_topologies(), *_PLUGINS.names())}
    return [(name, shape.description, shape.source) for name, shape in shapes.items()]


PARTS = own_tables(__file__, "parts.toml")
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
    """Return one part of the catalogue, of a kind in ``parts.toml``; `UnknownNameError` names the nearest."""
    return shipped_part(PARTS[kind]["section"], name, PARTS[kind]["noun"])


def list_parts(kind: str) -> list[tuple[str, str, str]]:
    """Return (name, one-line summary with units, source) of every part of a kind in ``parts.toml``."""
    names = shipped_tables().names(PARTS[kind]["section"])
    return [(part.name, summarise_part(part), part.source) for part in (find_part(kind, name) for name in names)]


def summarise_part(part: HardwareEntry) -> str:
    """Return the description of a part, with its most important values."""
    (forms,) = (each["shown"] for each in PARTS.values() if each["section"] == part.section)
    known = [field for field in forms if part.value(field) is not None]
    shown = [forms[field].format(value_text(part.value(field))) for field in known]
    return f"{part.description}: {', '.join(shown)}"
