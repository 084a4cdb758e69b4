"""Platforms of SimGrid (XML): hosts, links and routes, in and out.

Read are host, router, link, route, flat cluster, and zone with Full, Floyd or Dijkstra routing, with zoneRoute
(https://simgrid.org/simgrid.dtd, versions 4 and 4.1). A link there has no ends, and routes say which links they cross:
in a graph all links are at one switch, which each host reaches by a cable as fast as the links that it is routed over.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
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
_MOST_HOSTS, _MOST_NESTED, _MOST_SEARCHED = 512, 16, 5_000_000
_READ = "hosts, routers, links, routes, flat clusters, and zones with Full, Floyd or Dijkstra routing are read"
_IGNORED = ("prop", "config", "disk", "storage", "storage_type", "mount", "trace", "trace_connect")
_BACK = {"UP": "DOWN", "DOWN": "UP"}


@dataclass(frozen=True, slots=True)
class _Zone:
    """Routes between its own points and the zones in it: the points at both ends, and links with UP, DOWN or NONE."""

    full: bool  # Whether all routes are written, as no point forwards
    routes: dict[tuple[str, str], tuple[str, str, list[tuple[str, str]]]] = field(default_factory=dict)
    found: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def way(self, source: str, target: str) -> list[str] | None:
        """Return the points and zones of the route, or of the shortest way, from one to another."""
        if self.full:
            return [source, target] if (source, target) in self.routes else None
        if source not in self.found:
            from networkx import DiGraph, single_source_dijkstra_path

            graph = DiGraph()
            graph.add_node(source)
            graph.add_weighted_edges_from((*ends, max(len(links), 1)) for ends, (*_, links) in self.routes.items())
            self.found[source] = single_source_dijkstra_path(graph, source)
        return self.found[source].get(target)


class _Platform:
    def __init__(self, root: Any, origin: str) -> None:
        self.origin = origin
        self.points: dict[str, bool] = {}  # Hosts and routers, and whether each is a host
        self.zones: dict[str, _Zone] = {}
        self.within: dict[str, tuple[str, ...]] = {}  # The zones that a point or a zone is in, and itself
        self.shared: dict[str, tuple[float, int]] = {}  # Links or directions of them: bytes per second, picoseconds
        self.fat: list[str] = []
        self.add_zone(root, ("",), full=False)

    def add_zone(self, element: Any, within: tuple[str, ...], *, full: bool) -> None:
        if within[-1] in self.within or len(within) > _MOST_NESTED:
            raise self.refuse(f"zone {within[-1][:40]} is there twice, or in more than {_MOST_NESTED} others")
        self.within[within[-1]], self.zones[within[-1]] = within, _Zone(full)
        for each in element:
            if each.tag not in ("zone", "AS"):
                self.take(each, within)
            elif (routing := each.get("routing", "")) in ("Full", "Floyd", "Dijkstra", "DijkstraCache"):
                self.add_zone(each, (*within, self.text(each, "id")), full=routing == "Full")
            else:
                raise self.refuse(f"zone {self.text(each, 'id')} has another routing: {_READ}")

    def refuse(self, text: str) -> TopologyError:
        return TopologyError(f"{self.origin}: {' '.join(text.split())[:200]}")

    def text(self, element: Any, name: str) -> str:
        if not (found := str(element.get(name, "")).strip()):
            raise self.refuse(f"<{element.tag}> has no {name}")
        return found

    def take(self, element: Any, within: tuple[str, ...]) -> None:
        if element.tag in ("host", "router"):
            self.add_point((*within, self.text(element, "id")), host=element.tag == "host")
        elif element.tag == "link":
            self.add_link(element, self.text(element, "id"), "bandwidth", "latency", "sharing_policy")
        elif element.tag in ("route", "zoneRoute", "ASroute"):
            ends = ("src", "dst") if element.tag == "route" else ("gw_src", "gw_dst")
            crossed = [(self.text(each, "id"), each.get("direction", "NONE")) for each in element.iter("link_ctn")]
            both = element.get("symmetrical", "YES").upper() == "YES"
            self.add_route(within, *(self.text(element, name) for name in ends), crossed=crossed, both=both)
        elif element.tag == "cluster" and element.get("topology", "FLAT").upper() == "FLAT":
            self.add_cluster(element, within)
        elif element.tag not in _IGNORED:
            raise self.refuse(f"<{element.tag}> {element.get('id', '')[:40]} is not read: {_READ}")

    def add_point(self, within: tuple[str, ...], *, host: bool) -> None:
        if within[-1] in self.within or len(self.points) >= 2 * _MOST_HOSTS:
            raise self.refuse(f"{within[-1][:40]} is there twice, or one of more than {_MOST_HOSTS} hosts")
        self.points[within[-1]], self.within[within[-1]] = host, within

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

    def add_route(
        self, within: tuple[str, ...], begin: str, end: str, *, crossed: list[tuple[str, str]], both: bool
    ) -> None:
        """Add a route of a zone, between two points of it, or of zones in it."""
        for point in (begin, end):
            if point not in self.points or self.within[point][: len(within)] != within:
                raise self.refuse(
                    f"{point[:40]}, an end of a route from {begin[:40]} to {end[:40]}, is not in its zone"
                )
        source, target = (self.within[point][len(within)] for point in (begin, end))
        routes = self.zones[within[-1]].routes
        if source != target:
            routes.setdefault((source, target), (begin, end, crossed))
            back = [(name, _BACK.get(way, way)) for name, way in reversed(crossed)]
            routes |= {(target, source): (end, begin, back)} if both and (target, source) not in routes else {}

    def add_cluster(self, element: Any, around: tuple[str, ...]) -> None:
        """Add hosts, each with a link, and a router; a backbone is crossed once on each way, a limiter on both."""
        name, prefix, suffix = self.text(element, "id"), element.get("prefix", ""), element.get("suffix", "")
        within, router = (*around, name), element.get("router_id") or f"{prefix}{name}_router{suffix}"
        self.add_zone((), within, full=False)
        self.add_point((*within, router), host=False)
        begin = end = router
        if element.get("bb_bw"):
            self.add_link(element, f"{name}_backbone", "bb_bw", "bb_lat", "bb_sharing_policy")
            begin, end = f"{name} in", f"{name} out"
            self.add_point((*within, begin), host=False)
            self.add_point((*within, end), host=False)
            for source, target, links in ((router, begin, 0), (begin, end, 1), (end, router, 0)):
                crossed = [(f"{name}_backbone", "NONE")] * links
                self.add_route(within, source, target, crossed=crossed, both=False)
        for part in self.text(element, "radical").split(","):
            if (found := re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)) is None:
                raise self.refuse(f"radical {part[:40]!r} is not as 0-15")
            for number in range(int(found[1]), int(found[2] or found[1]) + 1):
                host, link, limiter = f"{prefix}{number}{suffix}", f"{name}_link_{number}", f"{name}_limiter_{number}"
                self.add_point((*within, host), host=True)
                self.add_link(element, link, "bw", "lat", "sharing_policy", "SPLITDUPLEX")
                if element.get("limiter_link"):
                    self.add_link(element, limiter, "limiter_link", "", "")
                limited = [(limiter, "NONE")] if limiter in self.shared else []
                self.add_route(within, host, begin, crossed=[*limited, (link, "UP")], both=False)
                self.add_route(within, end, host, crossed=[(link, "DOWN"), *limited], both=False)

    def crossed(self, name: str, way: str) -> str:
        """Return what a link in a route shares with other routes: itself, or one direction of it."""
        if (found := name if name in self.shared else f"{name}_{way}") not in self.shared:
            raise self.refuse(f"link {name[:40]} of a route is not there, or split and crossed without UP or DOWN")
        return found

    def path(self, source: str, target: str) -> list[str]:
        """Return what is crossed: the way in the innermost zone that has both, and those to ends of its routes."""
        if source == target:
            return []
        pairs = zip(self.within[source], self.within[target], strict=False)
        level, ends = next((level, pair) for level, pair in enumerate(pairs) if pair[0] != pair[1])
        zone = self.zones[self.within[source][level - 1]]
        if (way := zone.way(*ends)) is None:
            raise self.refuse(f"no route leads from {source[:40]} to {target[:40]}")
        found, at = list[str](), source
        for hop in pairwise(way):
            begin, end, links = zone.routes[hop]
            found += [*self.path(at, begin), *(self.crossed(*each) for each in links)]
            at = end
        return found + self.path(at, target)


def read_simgrid(text: str, origin: str) -> tuple[dict[str, Any], FabricGraph]:
    """Return the fields and the graph of a platform of SimGrid; `S2SimError` for what is damaged or not read."""
    platform = _Platform(parse_xml(text, origin, "platform", "SimGrid", TopologyError, dtd=True), origin)
    hosts = [name for name, host in platform.points.items() if host]
    if not 0 < len(hosts) <= _MOST_HOSTS:
        raise platform.refuse(f"it has {len(hosts)} hosts, and 1 to {_MOST_HOSTS} are read")
    if len(hosts) * sum(len(zone.routes) for zone in platform.zones.values() if not zone.full) > _MOST_SEARCHED:
        raise platform.refuse(f"it has {len(hosts)} hosts and too many routes to search")
    hub, numbers = len(hosts), dict[str, int]()
    ends: list[tuple[set[str], set[str]]] = [(set(), set()) for _ in hosts]
    routes = list[tuple[int, ...]]()
    for (one, source), (other, target) in product(enumerate(hosts), enumerate(hosts)):
        path = platform.path(source, target)
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
