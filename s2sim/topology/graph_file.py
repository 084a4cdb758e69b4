"""Graphs of hosts and switches: GraphML, node-link JSON, edge lists, networkx graphs, and files of other simulators."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations, pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.errors import TopologyError, suggest_nearest, warn
from s2sim.files import MAX_SHOWN_CHARACTERS, read_text, user_path
from s2sim.topology.fields import FIELDS, GRAPH_FILE, OVERRIDE, load_fields
from s2sim.topology.quantity import FieldReader, Quantity
from s2sim.topology.shape import FabricGraph
from s2sim.topology.simgrid import read_simgrid
from s2sim.units import parse_option, parse_rate_Bps, parse_time_ps

if TYPE_CHECKING:
    from networkx import Graph

    from s2sim.topology.cluster import Cluster

_ENDINGS = (".graphml", ".json", ".edges", ".csv", ".txt", ".xml", ".yml", ".yaml", ".topo")
FORMATS = {
    "simgrid-platform": re.compile(r"<platform\b"),
    "astra-network": re.compile(r"^npus_count[ \t]*:", re.MULTILINE),
    "ns3-topology": re.compile(r"\A\d+( \d+){2,4}( \w+)?[ \t]*\n[\d ]*(\n\d+ \d+ [\d.]+[kMG]?bps |\Z)"),
}
"""Networks of other simulators: by name what the first 4,096 characters of a file have in them."""
# Those after nic are inside nodes, which [node] describes.
_NODE_KINDS = ("host", "switch", "nic", "gpu", "pcie-switch", "host-bridge", "nvswitch")
# A unit may end the name of an attribute, whose value is a number then: rate_Gbps.
_EDGE_ATTRIBUTE = re.compile("(?:(rate|capacity)|latency)(?:_([A-Za-z]{1,6}))?")
_EXAMPLES = ("rate", "latency", "capacity", "rate_Bps", "rate_Gbps", "latency_ps", "latency_us")
# What comes of files that are not as networkx expects; entities in XML are a ValueError.
_DAMAGED = (ValueError, TypeError, LookupError, AttributeError, SyntaxError, RecursionError)
_MOST_HOSTS, _MOST_LINKS = 65_536, 500_000
_ASTRA = {
    "topology": ["Ring", "FullyConnected", "Switch"],
    "npus_count": ["2", "8", "4"],
    "bandwidth": ["200.0", "100.0", "50.0"],
    "latency": ["50.0", "500.0", "2000.0"],
}
# What is counted before it is read: a gigabyte of memory.
_MOST = {".graphml": ("<", 2_000_000), ".json": ("{", 400_000)}
_NAMES = ("id", "key", "label", "name")


def _read_graph(path: Path) -> Graph[Any]:
    """Return the graph of a file; `TopologyError` for one that is damaged, or states an edge twice."""
    import networkx as nx
    from defusedxml.ElementTree import fromstring

    text, parallel = read_text(path, noun="the graph", error=TopologyError), False
    mark, most = _MOST.get(path.suffix, ("\n", 250_000))
    if text.count(mark) > most:
        raise TopologyError(f"{path} is larger than any cluster: at most about 250,000 edges are read")
    try:
        if path.suffix == ".graphml":
            fromstring(text, forbid_dtd=True)
            graph = nx.parse_graphml(text)
            # Parallel edges have ids, which are texts.
            parallel = graph.is_multigraph() and all(isinstance(key, str) for *_, key in graph.edges(keys=True))
        elif path.suffix == ".json":
            value = json.loads(text)
            parallel, edges = bool(value.get("multigraph")), "links" if "links" in value else "edges"
            value |= {"multigraph": True, "graph": dict(value.get("graph", {}))}
            graph = nx.node_link_graph(value, edges=edges)
        elif FORMATS["astra-network"].search(text[:4096]) or FORMATS["ns3-topology"].match(text[:4096]):
            graph, parallel = (_read_ns3 if text.lstrip()[:1].isdigit() else _read_astra)(text), True
        else:
            graph = nx.MultiGraph()
            graph.add_edges_from(_edge_list(text))
    except (nx.NetworkXException, *_DAMAGED) as error:
        found = " ".join(f"{type(error).__name__} {error}".split())[:200]
        raise TopologyError(f"{path} is no graph that can be read: {found}") from None
    for one, other in graph.edges() if graph.is_multigraph() and not parallel else ():
        if graph.number_of_edges(one, other) > 1:
            raise TopologyError(
                f"{path}: edge {_shown(one, other)} is there twice: parallel ones have ids or multigraph"
            )
    return graph


def _read_ns3(text: str) -> Graph[Any]:
    """Return the graph of a file of links for ns-3: ASTRA-sim's, or SimAI's with GPUs of a server and NVSwitches."""
    # Its first line counts nodes, switches and links, for SimAI nodes, GPUs, NVSwitches, other switches and links; the
    # second has the numbers of all switches; of each link there are both ends, rate, latency and a rate of errors.
    from networkx import MultiGraph

    lines = [line.split() for line in text.splitlines() if line.strip()]
    vertices, *counts = (int(cell) for cell in lines[0][:5])
    (gpus, nvswitches), switches = counts[:2] if len(counts) == 4 else (1, 0), list(map(int, lines[1]))
    inside = {*switches[:nvswitches]}
    servers = (vertices - len(switches)) // gpus
    names = {number: f"server{number // gpus}" for number in range(servers * gpus)}
    names |= {number: f"switch{number}" for number in switches[nvswitches:]}
    if len(names) + nvswitches != vertices or len(lines) - 2 != counts[-1] or servers > _MOST_HOSTS:
        raise ValueError("its first line counts other nodes or links")
    graph = MultiGraph(**{"node.gpus": gpus})
    graph.add_nodes_from((name, {"kind": name[:6].replace("server", "host")}) for name in names.values())
    to_nvswitches: dict[int, list[tuple[str, str]]] = {}
    for one, other, rate, latency, *_ in lines[2:]:
        if {int(one), int(other)} & inside:
            to_nvswitches.setdefault(min(int(one), int(other)), []).append((rate, latency))
        else:
            graph.add_edge(names[int(one)], names[int(other)], rate=rate, latency=latency)
    if each := list(map(sorted, to_nvswitches.values())):
        if any(links != each[0] for links in each):
            raise ValueError("its GPUs have other links to NVSwitches than each other")
        total_Bps = sum(parse_rate_Bps(rate) for rate, _ in each[0])
        graph.graph |= {"nvlink.rate": f"{total_Bps!r}B/s", "nvlink.latency": each[0][0][1]}
    return graph


def _read_astra(text: str) -> Graph[Any]:
    """Return the graph of ASTRA-sim's analytical network (YAML): blocks, NPUs, GB/s and ns of each dimension."""
    # The first of several dimensions is a node, whose NPUs have an interface each; those of a node reach the next one
    # by one link as fast as theirs together. GB/s are of 2^30 bytes, as in its `bw_GBps_to_Bpns`.
    from networkx import MultiGraph

    def values(key: str, form: str) -> list[str]:
        found = re.search(rf"^{key}[ \t]*:[ \t]*\[([^\]\n]*)\]", text, re.MULTILINE)
        cells = [cell.strip(" \t\"'") for cell in found[1].split(",")] if found else []
        if not cells or not all(re.fullmatch(form, cell) for cell in cells):
            raise ValueError(f"{key} is no list as {key}: [ {', '.join(_ASTRA[key])} ]")
        return cells

    def joined(block: str, count: int) -> list[tuple[int, int]]:
        if block == "FullyConnected":
            return list(combinations(range(count), 2))
        return [*pairwise(range(count)), *[(0, count - 1)] * (count > 2)] if block == "Ring" else []

    numbers = [values(key, r"\d{1,9}(\.\d{0,20})?") for key in ("bandwidth", "latency")]
    counts = [int(cell) for cell in values("npus_count", r"\d{1,9}")]
    dimensions = list(zip(values("topology", "Ring|FullyConnected|Switch"), counts, *numbers, strict=True))
    meshed = max((count for block, count, *_ in dimensions if block == "FullyConnected"), default=0)
    if min(counts) < 2 or prod(counts) > _MOST_HOSTS or prod(counts) * meshed > _MOST_LINKS:
        raise ValueError(f"npus_count {counts} are under 2, or too many together")
    graph, gpus = MultiGraph(**{"node.gpus": 1}), 1
    if len(dimensions) > 1:
        block, gpus, rate, latency = dimensions.pop(0)
        graph.graph |= {"node.gpus": gpus, "nvlink.rate": f"{rate}GiB/s", "nvlink.latency": f"{latency}ns"}
        graph.graph |= {"nvlink.pairs": list(map(list, joined(block, gpus)))} if block != "Switch" else {}
        graph.graph |= {"nvlink.kind": "switch" if block == "Switch" else "mesh", "nic.count": gpus}
    alone, nodes, stride = [block for block, *_ in dimensions] == ["Switch"], prod(counts) // gpus, 1
    graph.add_nodes_from((f"npu{node}" for node in range(nodes)), kind="host")
    for at, (block, count, rate, latency) in enumerate(dimensions):
        link = {"rate": f"{float(rate) * (1 if alone else gpus)!r}GiB/s", "latency": f"{latency}ns"}
        for first in (node for node in range(nodes) if node // stride % count == 0):
            names = [f"npu{first + stride * place}" for place in range(count)]
            graph.add_edges_from(((names[one], names[other]) for one, other in joined(block, count)), **link)
            if block == "Switch":
                graph.add_node(f"switch{at}.{first}", kind="switch")
                graph.add_edges_from(((name, f"switch{at}.{first}") for name in names), **link)
        stride *= count
    total = sum(float(data["rate"].removesuffix("GiB/s")) for *_, data in graph.edges("npu0", data=True))
    graph.graph |= {"nic.rate": f"{total / (1 if alone else gpus)!r}GiB/s", "forwards": not alone}
    return graph


def _edge_list(text: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the edges of lines ``a b``, ``a b RATE`` or ``a b RATE LATENCY``, with blanks or commas between."""
    for number, line in enumerate(text.splitlines(), start=1):
        cells = line.partition("#")[0].replace(",", " ").split()
        if len(cells) not in (0, 2, 3, 4):
            raise ValueError(f"line {number} is not two nodes, rate and latency, such as a b 25Gbps 1us")
        if cells and cells[:2] != ["source", "target"]:
            yield cells[0], cells[1], dict(zip(("rate", "latency"), cells[2:], strict=False))


def _shown(*names: object) -> str:
    return " - ".join(str(name)[:MAX_SHOWN_CHARACTERS] for name in names)


def _read_link(attributes: Mapping[Any, Any], where: str) -> tuple[float | None, int | None]:
    found: dict[bool, Any] = {}
    for name, value in attributes.items():
        if name in _NAMES:
            continue
        if (match := _EDGE_ATTRIBUTE.fullmatch(str(name))) is None:
            known = suggest_nearest(_shown(name), _EXAMPLES)
            raise TopologyError(f"{where}: unknown attribute {_shown(name)!r}{known}")
        parse: Any = parse_rate_Bps if match[1] else parse_time_ps
        if bool(match[1]) in found:
            raise TopologyError(f"{where}: {name} is not all that says it: leave one out")
        found[bool(match[1])] = parse_option(f"{where}: {name}", parse, f"{value}{match[2]}" if match[2] else value)
    return found.get(True), found.get(False)


def _node_kinds(graph: Graph[Any], where: str) -> tuple[dict[Any, str], str]:
    """Return the kind of each node, and the rule by which those are hosts that do not say it."""
    stated = {node: attributes.get("kind") for node, attributes in graph.nodes(data=True)}
    for node, kind in stated.items():
        if kind is not None and kind not in _NODE_KINDS:
            known = suggest_nearest(_shown(kind), _NODE_KINDS)
            raise TopologyError(f"{where}: node {_shown(node)} has the kind {_shown(kind)!r}{known}")
    if idle := {str(name) for _, each in graph.nodes(data=True) for name in each} - {"kind", "host", *_NAMES}:
        shown = ", ".join(map(_shown, sorted(idle)[:5]))
        warn(f"{where}: attributes of nodes that are not read: {shown}", stacklevel=5)
    ends = {node for node in graph if len({*graph.succ[node], *graph.pred[node]}) == 1}
    if not ends and not any(stated.values()):
        return dict.fromkeys(graph, "host"), "all nodes"
    rule = "" if all(stated.values()) else "nodes with one neighbour"
    return {node: kind or ("host" if node in ends else "switch") for node, kind in stated.items()}, rule


def _fabric_of(graph: Graph[Any], where: str) -> FabricGraph:
    from networkx import MultiDiGraph

    graph = MultiDiGraph(graph)
    kinds, rule = _node_kinds(graph, where)
    hosts, switches = ([node for node, kind in kinds.items() if kind == each] for each in _NODE_KINDS[:2])
    if not hosts or len(set(map(str, graph))) < len(graph):
        raise TopologyError(f"{where}: names repeat" if hosts else f"{where} has no hosts: give nodes kind = 'host'")
    place = {node: number for number, node in enumerate([*hosts, *switches])}
    named = {str(host): place[host] for host in hosts}
    for node in (node for node, kind in kinds.items() if kind == "nic"):
        if (host := str(graph.nodes[node].get("host"))) not in named:
            raise TopologyError(f"{where}: nic {_shown(node)} has no host: write host = the name of one")
        place[node] = named[host]
    links = []
    for tail, head, stated in graph.edges(data=True):
        if tail == head:
            raise TopologyError(f"{where}: edge {_shown(tail, head)} joins a node to itself: leave it out")
        if tail in place and head in place and place[tail] != place[head]:
            links.append((place[tail], place[head], *_read_link(stated, f"{where}: edge {_shown(tail, head)}")))
    # An edge list has another order of nodes.
    links.sort(key=lambda link: link[0])
    names, forwards = tuple(map(str, [*hosts, *switches])), bool(graph.graph.get("forwards"))
    return FabricGraph(where, rule, len(hosts), names, tuple(links), forwards=forwards)


def _is_network(path: Path) -> bool:
    """Return whether a file without an ending is of another simulator, as SimAI's are."""
    text = "" if path.suffix or not path.is_file() else read_text(path, error=TopologyError)[:4096]
    return any(form.search(text) for form in FORMATS.values())


def _edges_of_a_host(fabric: FabricGraph, name: str) -> int:
    """Return the edges of the first host; `TopologyError` where it has several and another host has not as many."""
    edges = Counter(tail for tail, *_ in fabric.links)
    unlike = (host for host in range(fabric.hosts) if edges[host] != edges[0] > 1)
    if (other := next(unlike, None)) is not None:
        hosts = f"{fabric.vertices[0]} has {edges[0]} edges and host {fabric.vertices[other]} {edges[other]}"
        raise TopologyError(f"{name}: host {hosts}: give nic.count, or [[nodes]] of several kinds")
    return edges[0]


def read_description(
    source: Path | Graph[Any], overrides: Sequence[str]
) -> tuple[dict[str, Quantity], Path, FabricGraph | None]:
    """Return the fields of a description, its path, and the graph that it is, or names.

    The attributes of a graph itself are fields by their dotted names, before which those of a file that names it go.
    """
    path, given = source if isinstance(source, Path) else Path("graph"), dict[str, Quantity]()
    name = path.name
    if isinstance(source, Path) and path.suffix not in _ENDINGS and not _is_network(path):
        given = load_fields(path, overrides)
        if GRAPH_FILE not in given:
            return given, path, None
        name = FieldReader(given, name).text(GRAPH_FILE, None)
        # A path in the file is taken from where the file lies.
        source = (Path() if given[GRAPH_FILE].source == OVERRIDE else path.parent) / user_path(name, TopologyError)
        if source.suffix not in (*_ENDINGS, ""):
            raise TopologyError(f"{path.name}: {GRAPH_FILE} = {name!r} does not end in {', '.join(_ENDINGS)}")
    if isinstance(source, Path) and source.suffix == ".xml":
        stated, fabric = read_simgrid(read_text(source, noun="the platform", error=TopologyError), source.name)
    else:
        graph = _read_graph(source) if isinstance(source, Path) else source
        fabric = _fabric_of(graph, name)
        stated = {str(key): value for key, value in graph.graph.items() if key in FIELDS or "." in str(key)}
    with suppress(KeyError, TypeError, ValueError, RecursionError):
        # A list, which GraphML has not.
        stated["nvlink.pairs"] = json.loads(stated["nvlink.pairs"])
    given = load_fields(path, () if given else overrides, {"fabric.kind": "graph", **stated}) | given
    for at, field in ((2, "fabric.link.rate"), (3, "fabric.link.latency")):
        if field in given and fabric.links and all(link[at] is not None for link in fabric.links):
            raise TopologyError(f"{path.name}: {field} has no effect: all edges of {name} give their own; leave it out")
    at_host = [rate_Bps or 0.0 for tail, head, rate_Bps, _ in fabric.links if min(tail, head) < fabric.hosts]
    if at_host and all(link[2] for link in fabric.links):
        rate = f"{max(at_host)!r}B/s"
        given["fabric.link.rate"] = Quantity("fabric.link.rate", rate, "user", f"the fastest edge of a host in {name}")
    counted = {"nic.count", "nodes.0.gpus"} & {*given}
    if fabric.first_switch and not counted and (nics := _edges_of_a_host(fabric, name)) > 1:
        given["nic.count"] = Quantity("nic.count", nics, "user", f"the edges of a host in {name}")
    return given, path, fabric


def to_networkx(cluster: Cluster) -> Any:
    """Return the graph of a cluster; see `Cluster.to_networkx`."""
    from networkx import MultiDiGraph

    fabric, nodes, routing = cluster.fabric, cluster.layout.node_set, cluster.shape.routing
    if routing == "explicit":
        raise TopologyError(f"{cluster.shape.name} has routes of a platform, which no graph has: --simgrid writes them")
    given = {item.field: item.value for item in cluster.shape.quantities}
    own = {field: value for field, value in given.items() if not field.startswith(("fabric.", "link.", "routing"))}
    rate = {"nic.rate": given["fabric.link.rate"]} if "fabric.link.rate" in given else {}
    own = rate | own | ({"routing": routing} if routing in ("shortest", "ecmp", "k-shortest") else {})
    own = {field: json.dumps(value) if isinstance(value, list) else value for field, value in own.items()}
    graph, names = MultiDiGraph(**own | {"name": cluster.shape.name}), list[str]()
    place = np.arange(nodes.pcie_switches) - nodes.first_switch[nodes.node_of_switch]
    for kind, text, *numbers in (
        ("gpu", "node{}.gpu{}", nodes.node_of_gpu, nodes.local_gpu(np.arange(nodes.gpus))),
        ("host", "node{}", np.arange(nodes.count)),
        ("switch", "switch{}", np.arange(cluster.layout.switches)),
        ("pcie-switch", "node{}.pcie{}", nodes.node_of_switch, place),
        ("host-bridge", "node{}.host", nodes.bridge_nodes),
        ("nvswitch", "nvswitch{}", np.arange(nodes.domains * (nodes.specs[0].domain_nodes > 1))),
        ("nic", "node{}.nic{}", nodes.node_of_port, nodes.local_port(np.arange(nodes.ports))),
    ):
        found = [text.format(*each) for each in zip(*numbers, strict=True)]
        graph.add_nodes_from((name, {"kind": kind, "host": name.partition(".")[0]}) for name in found)
        names += found
    dead = np.zeros(len(fabric), np.bool_) if cluster.dead is None else cluster.dead
    for number in np.flatnonzero((fabric.tail != fabric.head) & ~dead).tolist():
        ends, name = [names[fabric.tail[number]], names[fabric.head[number]]], fabric.link_names[number]
        rate_Bps, latency_ps = float(fabric.rate_Bps[number]), int(fabric.latency_ps[number])
        if nic := re.fullmatch(r"(node(\d+)\.nic\d+)\.(out|in)", name):
            # Its latency inside the node is that of the interface, and the rest that of the cable.
            own_ps, outward = min(nodes.specs[nodes.spec[int(nic[2])]].nic.latency_ps, latency_ps), nic[3] == "out"
            first, then = (ends[0], nic[1]), [nic[1], ends[1]]
            inside, ends = (first, then) if outward else (then, [*first])
            graph.add_edge(*inside, f"{name}.inside", rate_Bps=rate_Bps, latency_ps=own_ps)
            latency_ps -= own_ps
        graph.add_edge(*ends, name, rate_Bps=rate_Bps, latency_ps=latency_ps)
    return graph


def to_graphml(cluster: Cluster) -> str:
    """Return the graph of a cluster as GraphML."""
    from networkx import generate_graphml

    return "\n".join(generate_graphml(to_networkx(cluster)))


def to_astra(cluster: Cluster) -> str:
    """Return a cluster as YAML of ASTRA-sim's analytical network; `TopologyError` for one that it has no blocks for."""
    shape, layout, node = cluster.shape, cluster.layout, cluster.shape.nodes[0]

    def hop(block: str, count: int, rank: int) -> tuple[str, int, float, float]:
        """Return a dimension in which rank 0 reaches another in one hop, or in two through a switch."""
        routes = cluster.routes(np.zeros(1, np.int64), np.array([rank]))
        rate_Bps = float(routes.narrowest(cluster.fabric.rate_Bps)[0])
        return block, count, rate_Bps / 2**30, int(routes.latency_ps[0]) / (2000 if block == "Switch" else 1000)

    dimensions: list[tuple[str, int, float, float]] = []
    written = len(shape.nodes) == 1 and not shape.named_links and cluster.placement == "linear"
    if node.gpus > 1 and cluster.workers > 1:
        lines = {number for *_, number in node.mesh or ()}
        whole = len(lines) == 1 and 2 * len(node.mesh or ()) == node.gpus * (node.gpus - 1)
        written = written and node.domain_nodes == 1 and (whole if node.mesh else node.nvlink is not None)
        dimensions.append(hop("FullyConnected" if node.mesh else "Switch", min(node.gpus, cluster.workers), 1))
    one_switch = shape.kind in ("fat-tree", "leaf-spine", "single-switch") and layout.switches == 1
    if layout.nodes > 1 and one_switch and node.nics >= node.gpus:
        dimensions.append(hop("Switch", layout.nodes, node.gpus))
    elif layout.nodes > 1 and shape.kind in ("ring", "torus") and node.gpus == 1:
        # The last side of a torus is that of consecutive nodes.
        dimensions += [hop("Ring", side, 1) for side in layout.counts().get("size", [layout.nodes])[::-1]]
    if not written or prod(count for _, count, *_ in dimensions) != cluster.workers or not dimensions:
        raise TopologyError(
            f"{shape.name} with {cluster.workers} workers is not of rings, switches and full meshes in dimensions, "
            "with an interface for each GPU, which is all that ASTRA-sim's network has: --graphml and --simgrid write "
            "any cluster"
        )
    rows = zip(_ASTRA, zip(*dimensions, strict=True), strict=True)
    lists = "".join(f"{key}: [ {', '.join(map(str, row))} ]\n" for key, row in rows)
    # A ring has no interfaces there, and here they are passed once however many links there are.
    farther = "# Rings' links hold both interfaces: ranks that are no neighbours are farther apart than in s2sim.\n"
    header = f"# {shape.name}, by s2sim: GB/s of 2^30 bytes, and ns, of a link.\n"
    return header + farther * any(block == "Ring" for block, *_ in dimensions) + lists
