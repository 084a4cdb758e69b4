"""Routes of transfers: out of a node, through the fabric by its kind, into the other node.

Between nodes transfers are spread evenly over all interfaces of a GPU. Inside a node or NVLink domain they take the
NVSwitch or a mesh of NVLinks, else PCIe: up to the lowest common switch, or to the host without peer-to-peer access.
"""

from dataclasses import dataclass, replace

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.errors import TopologyError
from s2sim.topology import graph
from s2sim.topology.layout import Layout
from s2sim.topology.nodes import positions_of

_LEVELS = 4  # Hashes draw independently on this number of levels


def reroute(router: "Router", routes: graph.Routes, dead: Mask, *, pairs: tuple[Ints, Ints], why: str) -> graph.Routes:
    """Return the routes with a detour for each that crosses a link in ``dead``, bool of shape (links,).

    A detour has the fewest remaining links between switches, chosen by a hash at every switch (sprayed transfers are
    split evenly); links inside nodes and interfaces have no substitute. Latency changes by the difference. ``pairs``
    are the ranks of each route, for messages.
    """
    hit = np.flatnonzero(routes.crossing(dead))
    if not len(hit):
        return routes
    if router.layout.shape.routing == "explicit":
        raise TopologyError(f"routes of a platform have no detours after {why}: let links be slow instead (slow-link)")
    between = router.layout.switch_links(router.fabric)
    lengths, latency_ps = np.diff(routes.offsets), routes.latency_ps.copy()
    ways = []
    for index in hit.tolist():
        part = slice(routes.offsets[index], routes.offsets[index + 1])
        way = _find_detour(router, routes.links[part], routes.weights[part], dead, between)
        if way is None:
            raise TopologyError(
                f"rank {pairs[0][index]} cannot reach rank {pairs[1][index]} after {why}: no other way is left; let "
                "less fail, or give the cluster more links"
            )
        ways.append(way)
        lengths[index] = len(way[0])
        latency_ps[index] = max(latency_ps[index] + way[2], 0)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    links, weights = np.empty(offsets[-1], np.int64), np.empty(offsets[-1])
    kept = np.setdiff1d(np.arange(len(lengths)), hit)
    new, old = (graph.gather_slices(starts[kept], lengths[kept]) for starts in (offsets, routes.offsets))
    links[new], weights[new] = routes.links[old], routes.weights[old]
    for index, way in zip(hit.tolist(), ways, strict=True):
        part = slice(offsets[index], offsets[index + 1])
        links[part], weights[part], _ = way
    return graph.Routes(offsets, links, weights, latency_ps, routes.limit_Bps)


def _find_detour(
    router: "Router", links: Ints, weights: Floats, dead: Mask, between: Mask
) -> tuple[Ints, Floats, int] | None:
    """Return another route's links, the share of the transfer on each, and the added latency; None without any."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import dijkstra

    fabric = router.fabric
    ends = ~between[links]
    follows = fabric.head[links[:-1]] == fabric.tail[links[1:]]
    # Those at both ends of a route, in its nodes, are consecutive, as they are not on a tree.
    if not (follows | ~ends[:-1] | ~ends[1:]).all():
        raise TopologyError(
            "a link has failed where a GPU spreads messages over several interfaces, of which no other ways are looked "
            "for: let it carry less instead (slow-link), or write as many nic.count as GPUs, with the rates together"
            if router.layout.node_set.ports_per_gpu > 1
            else "a link has failed on the tree over which switches reduce, and that tree has no other way: let "
            "another link fail, or ask for an algorithm that leaves switches out"
        )
    if dead[links[ends]].any():
        return None
    first, last = np.flatnonzero(~ends)[[0, -1]]
    source, target = int(fabric.tail[links[first]]), int(fabric.head[links[last]])
    usable = np.flatnonzero(between & ~dead)
    tail, head = fabric.tail[usable], fabric.head[usable]
    size = int(max(fabric.tail.max(), fabric.head.max())) + 1
    hops = dijkstra(csr_matrix((np.ones(len(usable)), (head, tail)), (size, size)), indices=target, unweighted=True)
    if not np.isfinite(hops[source]):
        return None
    # The links that lead nearer.
    ahead = usable[np.isfinite(hops[tail]) & (hops[head] == hops[tail] - 1)]
    # Drawn by sender and receiver, so that pairs of the same switches spread.
    drawn_by = None if (weights < 1).any() else (int(links[0]), int(links[-1]))
    walked, shares, latency_ps = _walk(router, ahead, source, int(hops[source]), drawn_by)
    # The shares give the number of parallel links between two switches.
    before_ps = round(float((fabric.latency_ps[links[~ends]] * weights[~ends]).sum()))
    return (
        np.concatenate([links[:first], walked, links[last + 1 :]]),
        np.concatenate([weights[:first], shares, weights[last + 1 :]]),
        latency_ps - before_ps,
    )


def _walk(
    router: "Router", ahead: Ints, source: int, hops: int, drawn_by: tuple[int, int] | None
) -> tuple[Ints, Floats, int]:
    """Return the links of a route from a vertex, the share on each, and the latency of the slowest path."""
    # Every vertex splits evenly over the links that lead nearer, or draws one of them by two numbers.
    fabric = router.fabric
    links: list[int] = []
    weights: list[float] = []
    latency_ps = 0
    shares = {source: 1.0}
    for distance in range(hops, 0, -1):
        following: dict[int, float] = {}
        slowest_ps = 0
        for vertex, share in shares.items():
            out = ahead[fabric.tail[ahead] == vertex]
            if drawn_by is not None:
                first, last = (np.array([number]) for number in drawn_by)
                out = out[graph.hash_choice(first, last, router.seed, distance % _LEVELS, len(out))]
            for link in out.tolist():
                links.append(link)
                weights.append(share / len(out))
                head = int(fabric.head[link])
                following[head] = following.get(head, 0.0) + share / len(out)
            slowest_ps = max(slowest_ps, int(fabric.latency_ps[out].max()))
        latency_ps += slowest_ps
        shares = following
    return np.array(links, np.int64), np.array(weights), latency_ps


@dataclass(frozen=True, slots=True, eq=False)
class _HostStaging:
    """What transfers do at a host, all arrays of shape (m,)."""

    start: Ints  # Socket at which each arrives
    end: Ints  # Socket from which each leaves
    writes: Mask  # Whether a GPU writes it to the memory of the first socket
    reads: Mask  # Whether a GPU reads it from the memory of the second
    crosses: Mask  # Whether it passes from socket to socket

    def back(self) -> "_HostStaging":
        return _HostStaging(self.end, self.start, self.reads, self.writes, self.crosses)


@dataclass(frozen=True, slots=True)
class Router:
    """Finds the stages of routes; ``seed`` is that of the hash."""

    layout: Layout
    fabric: graph.Fabric
    seed: int

    def stages(self, source: Ints, target: Ints) -> list[graph.RouteStage]:
        """Return the stages between GPUs in order; GPUs are int64 of shape (m,), different in each pair."""
        nodes = self.layout.node_set
        inside = nodes.domain_of_gpu[source] == nodes.domain_of_gpu[target]
        outside = ~inside
        over_switch = inside & (nodes.nvlink_of_gpu[source] >= 0)
        meshed, over_mesh = self._mesh(source, target, inside)
        up = inside & ~over_switch & ~over_mesh
        staged = up & nodes.staged[nodes.node_of_gpu[source]]
        apart = up & (nodes.socket_of_gpu[source] != nodes.socket_of_gpu[target])
        source_port, target_port = nodes.port_of_gpu[source], nodes.port_of_gpu[target]
        out, into = self._at_interfaces(source, outside), self._at_interfaces(target, outside)
        return [
            *self._port("nvlink", "out", nodes.nvlink_of_gpu[source], over_switch),
            *meshed,
            *self._port("pcie", "out", nodes.pcie_of_gpu[source], up | (outside & (nodes.pcie_of_gpu[source] >= 0))),
            *self._tree(
                nodes.switch_of_gpu[source],
                np.where(inside, nodes.switch_of_gpu[target], nodes.switch_of_port[source_port]),
                up | outside,
                _HostStaging(
                    nodes.socket_of_gpu[source],
                    np.where(inside, nodes.socket_of_gpu[target], out.start),
                    staged | out.writes,
                    staged,
                    apart | out.crosses,
                ),
            ),
            # In parallel over all interfaces that each has.
            *graph.parallel_stages(
                [
                    [
                        graph.parallel_stage(self.fabric, "nic.out", source_port + lane, outside),
                        *self.layout.stages(self.fabric, source_port + lane, target_port + lane, outside, self.seed),
                        graph.parallel_stage(self.fabric, "nic.in", target_port + lane, outside),
                    ]
                    for lane in range(nodes.ports_per_gpu)
                ]
            ),
            *self._tree(nodes.switch_of_port[target_port], nodes.switch_of_gpu[target], outside, into.back()),
            *self._port("pcie", "in", nodes.pcie_of_gpu[target], up | (outside & (nodes.pcie_of_gpu[target] >= 0))),
            *self._port("nvlink", "in", nodes.nvlink_of_gpu[target], over_switch),
        ]

    def over_nvlink(self, source: Ints, target: Ints) -> Mask:
        """Return a mask of the routes between GPUs that cross NVSwitches or links of a mesh alone, shape (m,)."""
        nodes = self.layout.node_set
        inside = nodes.domain_of_gpu[source] == nodes.domain_of_gpu[target]
        over: Mask = inside & (nodes.nvlink_of_gpu[source] >= 0)
        if nodes.meshes.variants and not over.all():
            over |= self._mesh(source, target, inside)[1]
        return over

    def to_ports(self, gpu: Ints, *, back: bool = False) -> list[graph.RouteStage]:
        """Return the stages from GPUs to the fabric, over PCIe and through their network interfaces, or ``back``."""
        nodes, port, way = self.layout.node_set, self.layout.node_set.port_of_gpu[gpu], "in" if back else "out"
        every, ends = np.ones(len(gpu), np.bool_), (nodes.switch_of_gpu[gpu], nodes.switch_of_port[port])
        at_host = self._at_interfaces(gpu, every)
        parts = [
            self._port("pcie", way, nodes.pcie_of_gpu[gpu], nodes.pcie_of_gpu[gpu] >= 0),
            self._tree(*ends[::-1], every, at_host.back()) if back else self._tree(*ends, every, at_host),
            [graph.parallel_stage(self.fabric, f"nic.{way}", port, every)],
        ]
        return [stage for part in (reversed(parts) if back else parts) for stage in part]

    def _at_interfaces(self, gpu: Ints, outside: Mask) -> _HostStaging:
        nodes = self.layout.node_set
        node, socket = nodes.node_of_gpu[gpu], nodes.socket_of_gpu[gpu]
        first, after = nodes.first_socket[node], nodes.first_socket[node + 1]
        stored = nodes.having(lambda spec: spec.path == "staged" and spec.memory is not None)[node]
        far = nodes.having(lambda spec: spec.path == "other-socket" and spec.socket is not None)[node]
        other = np.where(far, first + (socket - first + 1) % (after - first), socket)
        return _HostStaging(socket, other, outside & stored, np.zeros(len(gpu), np.bool_), outside & far)

    def _port(self, name: str, way: str, link: Ints, mask: Mask) -> list[graph.RouteStage]:
        key = f"{name}.{way}"
        return [graph.parallel_stage(self.fabric, key, link, mask)] if key in self.fabric.blocks else []

    def _mesh(self, source: Ints, target: Ints, inside: Mask) -> tuple[list[graph.RouteStage], Mask]:
        """Return the links between GPUs of one node, and which transfers take them."""
        if not self.layout.node_set.meshes.variants:
            return [], np.zeros(len(source), np.bool_)
        nodes, first = self.layout.node_set, self.fabric.blocks["nvlink.mesh"].start
        node = nodes.node_of_gpu[source]
        # GPUs of two nodes have no route here: any numbers will do.
        links = nodes.meshes.links(node, nodes.local_gpu(source), nodes.local_gpu(np.where(inside, target, source)))
        stages = [
            graph.series_stage(self.fabric, first + link[link >= 0], (link >= 0).astype(np.int64)) for link in links
        ]
        return stages, np.any([link >= 0 for link in links], axis=0) if links else np.zeros(len(source), np.bool_)

    def _tree(self, source: Ints, target: Ints, mask: Mask, at_host: _HostStaging) -> list[graph.RouteStage]:
        """Return the stages between two PCIe switches of a node, or between one and the host bridge (-1)."""
        # Traffic through host memory passes the bridge even if both ends are below one switch.
        nodes = self.layout.node_set
        passed = self._memories(at_host)
        if not nodes.pcie_switches:
            return passed
        through = mask & ((source != target) | at_host.writes | at_host.reads)
        rises, falls = through & (source >= 0), through & (target >= 0)
        up = [graph.parallel_stage(self.fabric, "uplink.out", source, rises)]
        down = [graph.parallel_stage(self.fabric, "uplink.in", target, falls)]
        if "host.out" in self.fabric.blocks:
            bridge = positions_of(nodes.bridge_nodes, nodes.count)[nodes.node_of_switch]
            source_bridge, target_bridge = bridge[source], bridge[target]
            up.append(graph.parallel_stage(self.fabric, "host.out", source_bridge, rises & (source_bridge >= 0)))
            down.insert(0, graph.parallel_stage(self.fabric, "host.in", target_bridge, falls & (target_bridge >= 0)))
        return [*up, *passed, *down]

    def _memories(self, at_host: _HostStaging) -> list[graph.RouteStage]:
        nodes, found = self.layout.node_set, []
        if len(nodes.memory_sockets):
            number = positions_of(nodes.memory_sockets, len(nodes.node_of_socket))
            start, end = number[at_host.start], number[at_host.end]
            writes, reads = at_host.writes & (start >= 0), at_host.reads & (end >= 0)
            both = writes & reads & (start == end)
            found += [
                replace(graph.parallel_stage(self.fabric, "memory", start, both), weight=2.0),
                graph.parallel_stage(self.fabric, "memory", start, writes & ~both),
                graph.parallel_stage(self.fabric, "memory", end, reads & ~both),
            ]
        if len(nodes.linked_sockets):
            link = positions_of(nodes.linked_sockets, len(nodes.node_of_socket))[at_host.start]
            found.insert(
                2 if found else 0, graph.parallel_stage(self.fabric, "socket", link, at_host.crosses & (link >= 0))
            )
        return found
