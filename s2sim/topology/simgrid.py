"""Platforms of SimGrid (XML): hosts, links and routes, in and out.

Read are host, router, link, route, flat cluster, and zone with Full, Floyd or Dijkstra routing, with zoneRoute
(https://simgrid.org/simgrid.dtd, versions 4 and 4.1). A link there has no ends, and routes say which links they cross:
in a graph all links are at one switch, which each host reaches by a cable as fast as the links that it is routed over.
"""

import re
from collections.abc import Iterator
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.errors import TopologyError, UnitError
from s2sim.files import parse_xml
from s2sim.topology.shape import FabricGraph
from s2sim.units import parse_rate_Bps, parse_time_ps

if TYPE_CHECKING:
    from s2sim.topology.cluster import Cluster

_MOST_WRITTEN = 128  # Ranks: 16,256 routes, 4 MB
_MOST_HOSTS, _MOST_SEARCHED = 512, 5_000_000
_READ = "hosts, routers, links, routes, flat clusters, and zones with Full, Floyd or Dijkstra routing are read"
_IGNORED = ("prop", "config", "disk", "storage", "storage_type", "mount", "trace", "trace_connect")
_BACK = {"UP": "DOWN", "DOWN": "UP"}


class _Platform:
    def __init__(self, root: Any, origin: str) -> None:
        self.origin = origin
        self.points: dict[str, bool] = {}  # Hosts and routers, and whether each is a host
        self.shared: dict[str, tuple[float, int]] = {}  # Links or directions of them: bytes per second, picoseconds
        self.fat: list[str] = []
        self.routes: dict[tuple[str, str], list[tuple[str, str]]] = {}  # Links, each with UP, DOWN or NONE
        zones = [each for each in root.iter() if each.tag in ("zone", "AS")]
        for zone in zones:
            if zone.get("routing", "") not in ("Full", "Floyd", "Dijkstra", "DijkstraCache"):
                raise self.refuse(f"zone {self.text(zone, 'id')} has another routing: {_READ}")
        for each in (each for zone in (root, *zones) for each in zone if each.tag not in ("zone", "AS")):
            self.take(each)
        self.full = [zone.get("routing") for zone in zones] == ["Full"] and all(self.points.values())

    def refuse(self, text: str) -> TopologyError:
        return TopologyError(f"{self.origin}: {' '.join(text.split())[:200]}")

    def text(self, element: Any, name: str) -> str:
        if not (found := str(element.get(name, "")).strip()):
            raise self.refuse(f"<{element.tag}> has no {name}")
        return found

    def take(self, element: Any) -> None:
        if element.tag in ("host", "router"):
            self.add_point(self.text(element, "id"), host=element.tag == "host")
        elif element.tag == "link":
            self.add_link(element, self.text(element, "id"), "bandwidth", "latency", "sharing_policy")
        elif element.tag in ("route", "zoneRoute", "ASroute"):
            ends = ("src", "dst") if element.tag == "route" else ("gw_src", "gw_dst")
            crossed = [(self.text(each, "id"), each.get("direction", "NONE")) for each in element.iter("link_ctn")]
            both = element.get("symmetrical", "YES").upper() == "YES"
            self.add_route(self.text(element, ends[0]), self.text(element, ends[1]), crossed, both=both)
        elif element.tag == "cluster" and element.get("topology", "FLAT").upper() == "FLAT":
            self.add_cluster(element)
        elif element.tag not in _IGNORED:
            raise self.refuse(f"<{element.tag}> {element.get('id', '')[:40]} is not read: {_READ}")

    def add_point(self, name: str, *, host: bool) -> None:
        if name in self.points or len(self.points) >= 2 * _MOST_HOSTS:
            raise self.refuse(f"{name[:40]} is there twice, or one of more than {_MOST_HOSTS} hosts")
        self.points[name] = host

    def add_link(self, element: Any, name: str, rate: str, latency: str, policy: str, usual: str = "SHARED") -> None:
        """Add a link by the names of its attributes; plain numbers are of bytes per second and of seconds."""
        values, unit = (self.text(element, rate), element.get(latency) or "0"), ("Bps", "s")
        texts = [value if value[-1].isalpha() else value + bare for value, bare in zip(values, unit, strict=True)]
        try:
            link = parse_rate_Bps(texts[0]), parse_time_ps(texts[1])
        except UnitError as error:
            raise self.refuse(f"link {name[:40]}: {error}") from None
        sharing = element.get(policy, usual).upper()
        if sharing not in ("SHARED", "SPLITDUPLEX", "FULLDUPLEX", "FATPIPE") or name in self.shared:
            raise self.refuse(f"link {name[:40]} is there twice, or not SHARED, SPLITDUPLEX or FATPIPE")
        self.fat += [name] * (sharing == "FATPIPE")
        self.shared |= {f"{name}_{way}": link for way in _BACK} if "DUPLEX" in sharing else {name: link}

    def add_route(self, source: str, target: str, crossed: list[tuple[str, str]], *, both: bool) -> None:
        if unknown := {source, target} - self.points.keys():
            raise self.refuse(
                f"{min(unknown)[:40]}, an end of a route from {source[:40]} to {target[:40]}, is not there"
            )
        if source != target:
            self.routes.setdefault((source, target), crossed)
            back = [(name, _BACK.get(way, way)) for name, way in reversed(crossed)]
            self.routes |= {(target, source): back} if both and (target, source) not in self.routes else {}

    def add_cluster(self, element: Any) -> None:
        """Add hosts, each with a link, and a router; a backbone is crossed once on each way."""
        name, prefix, suffix = self.text(element, "id"), element.get("prefix", ""), element.get("suffix", "")
        router = element.get("router_id") or f"{prefix}{name}_router{suffix}"
        self.add_point(router, host=False)
        begin = end = router
        if element.get("bb_bw"):
            self.add_link(element, f"{name}_backbone", "bb_bw", "bb_lat", "bb_sharing_policy")
            begin, end = f"{name} in", f"{name} out"
            for source, target, links in ((router, begin, 0), (begin, end, 1), (end, router, 0)):
                self.points |= {source: False, target: False}
                self.add_route(source, target, [(f"{name}_backbone", "NONE")] * links, both=False)
        for part in self.text(element, "radical").split(","):
            if (found := re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)) is None:
                raise self.refuse(f"radical {part[:40]!r} is not as 0-15")
            for number in range(int(found[1]), int(found[2] or found[1]) + 1):
                host, link = f"{prefix}{number}{suffix}", f"{name}_link_{number}"
                self.add_point(host, host=True)
                self.add_link(element, link, "bw", "lat", "sharing_policy", "SPLITDUPLEX")
                self.add_route(host, begin, [(link, "UP")], both=False)
                self.add_route(end, host, [(link, "DOWN")], both=False)

    def crossed(self, name: str, way: str) -> str:
        """Return what a link in a route shares with other routes: itself, or one direction of it."""
        if (found := name if name in self.shared else f"{name}_{way}") not in self.shared:
            raise self.refuse(f"link {name[:40]} of a route is not there, or split and crossed without UP or DOWN")
        return found

    def paths(self, hosts: list[str]) -> dict[tuple[str, str], list[str]]:
        """Return what is crossed between hosts: as written in one zone with Full routing, else on the shortest way."""
        routes = {ends: [self.crossed(*each) for each in links] for ends, links in self.routes.items()}
        if self.full:
            return routes
        if len(hosts) * len(routes) > _MOST_SEARCHED:
            raise self.refuse(f"{len(routes):,} routes between {len(hosts)} hosts and routers are too many to search")
        from networkx import DiGraph, single_source_dijkstra_path

        graph = DiGraph()
        graph.add_nodes_from(hosts)
        graph.add_weighted_edges_from((*ends, max(len(links), 1)) for ends, links in routes.items())
        found = ((host, single_source_dijkstra_path(graph, host)) for host in hosts)
        ways = {(host, other): way for host, every in found for other, way in every.items()}
        return {ends: [name for hop in pairwise(way) for name in routes[hop]] for ends, way in ways.items()}


def read_simgrid(text: str, origin: str) -> tuple[dict[str, Any], FabricGraph]:
    """Return the fields and the graph of a platform of SimGrid; `S2SimError` for what is damaged or not read."""
    platform = _Platform(parse_xml(text, origin, "platform", "SimGrid", TopologyError, dtd=True), origin)
    hosts = [name for name, host in platform.points.items() if host]
    if not 0 < len(hosts) <= _MOST_HOSTS:
        raise platform.refuse(f"it has {len(hosts)} hosts, and 1 to {_MOST_HOSTS} are read")
    paths, hub, numbers = platform.paths(hosts), len(hosts), dict[str, int]()
    ends: list[tuple[set[str], set[str]]] = [(set(), set()) for _ in hosts]
    routes = list[tuple[int, ...]]()
    for (one, source), (other, target) in product(enumerate(hosts), enumerate(hosts)):
        path = [] if one == other else paths.get((source, target))
        if path is None:
            raise platform.refuse(f"no route leads from {source[:40]} to {target[:40]}")
        routes.append(tuple(numbers.setdefault(name, len(numbers)) for name in path))
        ends[one][0].update(path[:1])
        ends[other][1].update(path[-1:])
    rates_Bps = {
        name: rate_Bps * (hub if name in platform.fat else 1) for name, (rate_Bps, _) in platform.shared.items()
    }
    totals = [[sum(rates_Bps[name] for name in names) or 1.0 for names in sides] for sides in ends]
    links = [(at, hub, sides[0], 0) for at, sides in enumerate(totals)]
    links += [(hub, at, sides[1], 0) for at, sides in enumerate(totals)]
    links += [(hub, hub, rates_Bps[name], platform.shared[name][1]) for name in numbers]
    graph = FabricGraph(origin, "", hub, (*hosts, "routes"), tuple(links), tuple(numbers), tuple(routes))
    return {"node.gpus": 1, "nic.rate": f"{max(map(max, totals))!r}B/s", "routing": "explicit"}, graph


def to_simgrid(cluster: "Cluster") -> str:
    """Return a cluster as a platform of SimGrid: ranks are hosts, every link direction is a link, all routes are given.

    `TopologyError` for more than 128 ranks, and for messages that take several routes, of which SimGrid has none.
    """
    from xml.sax.saxutils import quoteattr  # Half a dozen modules of the network, whenever a topology is read

    ranks, shape = cluster.workers, cluster.shape
    if ranks > _MOST_WRITTEN:
        raise TopologyError(
            f"a platform has routes of at most {_MOST_WRITTEN} ranks, not {ranks}: take fewer --workers"
        )
    source, target = np.nonzero(~np.eye(ranks, dtype=np.bool_))
    routes = cluster.routes(source, target)
    if (routes.weights < 1).any():
        raise TopologyError(
            f"{shape.name} spreads a message over several links, which a route of SimGrid cannot: set another routing, "
            "or as many nic.count as GPUs"
        )
    fabric, nodes = cluster.fabric, cluster.layout.node_set
    places = zip(cluster.host_of_rank.tolist(), nodes.local_gpu(cluster.gpu_of_rank).tolist(), strict=True)
    hosts = [quoteattr(f"node{node}.gpu{gpu}") for node, gpu in places]
    ids = {link: quoteattr(fabric.link_names[link]) for link in np.unique(routes.links).tolist()}
    crossed = [f"<link_ctn id={ids[link]}/>" for link in routes.links.tolist()]

    def lines() -> Iterator[str]:
        yield '<?xml version="1.0"?>\n<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
        yield "<!-- By s2sim. Flows of equal latency share links as there with network/model:CM02, network/TCP-gamma:0,"
        yield "network/crosstraffic:0, network/weight-S:0, network/latency-factor:1 and network/bandwidth-factor:1; of"
        yield "others SimGrid gives the one of longer latency less. -->"
        yield f'<platform version="4.1">\n<zone id={quoteattr(shape.name)} routing="Full">'
        yield from (f'<host id={host} speed="1Gf"/>' for host in hosts)
        for link, name in ids.items():
            rate_Bps, latency_ps = float(fabric.rate_Bps[link]), int(fabric.latency_ps[link])
            yield f'<link id={name} bandwidth="{rate_Bps!r}Bps" latency="{latency_ps}ps"/>'
        for pair, (src, dst) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
            path = "".join(crossed[routes.offsets[pair] : routes.offsets[pair + 1]])
            yield f'<route src={hosts[src]} dst={hosts[dst]} symmetrical="NO">{path}</route>'
        yield "</zone>\n</platform>\n"

    return "\n".join(lines())
