"""Any graph of hosts and switches.

``shortest`` and ``ecmp`` take the fewest links between switches. Of n that lead nearer, ``shortest`` takes number d mod
n, where d is the target's interface, divided by n after each choice (on trees: d-mod-k), and ``ecmp`` draws one by a
hash of both ends. ``k-shortest`` draws one of the k shortest loop-free paths (Yen's, by networkx), as Jellyfish does
(Singla, Hong, Popa and Godfrey, "Jellyfish: networking data centers randomly", NSDI 2012, section 5). ``explicit``
takes the routes of the file.
"""

from dataclasses import dataclass, field
from itertools import count, islice, pairwise, permutations
from typing import Any, Self

import numpy as np

from s2sim.arrays import Floats, Ints, Mask
from s2sim.errors import TopologyError
from s2sim.topology.graph import Fabric, LinkPart, RouteStage, hash_choice, series_stage
from s2sim.topology.layout import Layout, Partition
from s2sim.topology.nodes import Nodes
from s2sim.topology.shape import ClusterShape, FabricGraph
from s2sim.units import format_number_of

_PATHS = 4  # Of k-shortest
_LEVELS = 4  # Hashes draw independently on this number of levels
_MOST_STEPS = 2**28  # Links times switches with nodes: routes of a gigabyte
# The longest of k-shortest paths between as many switches is looked for; of more that of the shortest alone.
_MOST_SPANNED = 65


@dataclass(frozen=True, slots=True)
class GraphLayout(Layout):
    """The graph of a file: its first hosts are the nodes. Where hosts forward, each has a stop."""

    graph: FabricGraph
    between: Ints  # Numbers of the links between switches, or stops
    tail: Ints  # Of these
    head: Ints
    of_port: Ints  # The switch of each interface, or the stop of its node
    cable: Ints  # Numbers of the links of each interface out and in, shape (2, ports)
    found: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)  # Routes so far

    @classmethod
    def most_nodes(cls, shape: ClusterShape) -> tuple[int, str] | None:
        return None if shape.graph is None else (shape.graph.hosts, f"the number of hosts in {shape.graph.name}")

    @classmethod
    def fit(cls, shape: ClusterShape, nodes: Nodes) -> Self:
        """Return the graph with nodes at its first hosts."""
        assert shape.graph is not None  # Read with the file
        graph, first, node, nics = shape.graph, shape.graph.first_switch, nodes.node_of_port, np.diff(nodes.first_port)
        tail, head = np.array([link[:2] for link in graph.links], np.int64).reshape(-1, 2).T
        # The links of each host that does not forward, in the order of their switches.
        out, back = (np.lexsort(ends)[: np.count_nonzero(ends[1] < first)] for ends in ((head, tail), (tail, head)))
        given, given_back = (np.bincount(host, minlength=graph.hosts) for host in (tail[out], head[back]))
        needed = np.concatenate([nics, given[nodes.count :]])
        wrong = (given != given_back) | ((given != 1) & (given != needed))
        for host in np.flatnonzero(wrong)[:1] if first else ():
            raise TopologyError(
                f"{graph.name}: host {graph.vertices[host]} has {given[host]} links to switches, {given_back[host]} "
                f"back, for nic.count = {needed[host]}: write one for each interface, or one, of which each has its own"
            )
        place = (np.cumsum(given) - given)[node] + nodes.local_port(np.arange(nodes.ports)) % np.maximum(given[node], 1)
        cable = np.stack([out, back])[:, place] if first else np.zeros((2, 0), np.int64)
        if (head[cable[0]] != tail[cable[1]]).any():
            raise TopologyError(f"{graph.name}: some links from hosts to switches do not lead back")
        between, of_port = np.flatnonzero(np.minimum(tail, head) >= first), head[cable[0]] - first if first else node
        ends = tail[between] - first, head[between] - first
        return cls(shape, nodes, nodes.count, 1, graph, between, *ends, of_port, cable)

    @property
    def switches(self) -> int:
        """Switches, and stops of hosts that forward."""
        return len(self.graph.vertices) - self.graph.first_switch

    @property
    def leaf_of_node(self) -> Ints:
        """The switch of each node's first interface, numbered without gaps."""
        leaf: Ints = np.unique(self.of_port[self.node_set.first_port[:-1]], return_inverse=True)[1]
        return leaf if self.shape.host_cable else np.zeros(self.nodes, np.int64)

    @property
    def draws(self) -> bool:
        """Whether routes are drawn and the graph is no tree."""
        return self.shape.routing in ("ecmp", "k-shortest") and len(self.tail) > 2 * (self.switches - 1)

    def cables(self, way: str) -> tuple[float | Floats, int | Ints]:
        return self._numbers(self.cable[int(way == "in")]) if self.shape.host_cable else (np.inf, 0)

    def _numbers(self, numbers: Ints) -> tuple[Floats, Ints]:
        links, link = [self.graph.links[number] for number in numbers], self.shape.link
        rates = [link.rate_Bps if rate_Bps is None else rate_Bps for *_, rate_Bps, _ in links]
        latencies = [link.latency_ps if latency_ps is None else latency_ps for *_, latency_ps in links]
        return np.array(rates, np.float64), np.array(latencies, np.int64)

    def switch_of_port(self, port: Ints) -> Ints:
        return self.of_port[port]

    def parts(self) -> list[LinkPart]:
        """Return the links between switches, named ``a->b``; of parallel ones the second is ``a->b.1``."""
        names = dict(zip(self.graph.link_names, self.between.tolist(), strict=False))
        for number in self.between.tolist() if not names else ():
            text = "->".join(self.graph.vertices[end] for end in self.graph.links[number][:2])
            names[next(name for at in count() if (name := f"{text}.{at}" if at else text) not in names)] = number
        ends, texts = (self.first_switch + self.tail, self.first_switch + self.head), list(names)
        numbers = self._numbers(self.between)
        return [LinkPart("graph", "graph", *numbers, "{}", lambda at: texts[at : at + 1], len(texts), lambda _: ends)]

    def stages(self, fabric: Fabric, source: Ints, target: Ints, outside: Mask, seed: int) -> list[RouteStage]:
        at, end = self.of_port[source], np.where(outside, self.of_port[target], self.of_port[source])
        explicit, node = self.shape.routing == "explicit", self.node_set.node_of_port
        left, rest, level = np.flatnonzero(outside if explicit else at != end), target.copy(), 0
        links, pairs, by_path = [left[:0]], [left[:0]], self.shape.routing == "k-shortest"
        for pair in left.tolist() if explicit else ():
            row = node[source[pair]] * self.graph.hosts + node[target[pair]]
            links.append(np.array(self.graph.routes[row], np.int64))
            pairs.append(np.full(len(links[-1]), pair))
        for pair in left.tolist() if by_path else ():
            paths = self._paths(int(at[pair]), int(end[pair]))
            path = paths[int(hash_choice(source[[pair]], target[[pair]], seed, 1, len(paths))[0])]
            # Of parallel links one for each target.
            links.append(np.array([hop[target[pair] % len(hop)] for hop in path]))
            pairs.append(np.full(len(path), pair))
        while len(left) and not by_path and not explicit:
            (row, _, first, nearer), level = self._next_links(), level + 1
            key = row[end[left]] * self.switches + at[left]
            number = first[key + 1] - first[key]
            if self.shape.routing == "ecmp":
                choice = hash_choice(source[left], target[left], seed, level % _LEVELS, number)
            else:
                rest[left], choice = np.divmod(rest[left], number)
            links.append(nearer[first[key] + choice])
            pairs.append(left)
            at[left] = self.head[links[-1]]
            left = left[at[left] != end[left]]
        pair_of_link = np.concatenate(pairs)
        in_order = np.concatenate(links)[np.argsort(pair_of_link, kind="stable")]
        counts = np.bincount(pair_of_link, minlength=len(at)).astype(np.int64)
        return [series_stage(fabric, fabric.blocks["graph"].start + in_order, counts)]

    def _next_links(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the links that lead nearer to the switches of interfaces, ``links[first[key] : first[key + 1]]``."""
        # ``key`` is ``row[target] * switches + switch``. Returns row, distances of shape (rows, switches), first,
        # links.
        if not self.found:
            # networkx takes ten times as long for so many.
            from scipy.sparse import csr_matrix
            from scipy.sparse.csgraph import dijkstra

            targets, size, steps = np.unique(self.of_port), self.switches, len(self.tail)
            if len(targets) * steps > _MOST_STEPS:
                raise TopologyError(
                    f"{self.graph.name}: {steps} links to {len(targets)} switches are too many to route"
                )
            back = csr_matrix((np.ones(steps), (self.head, self.tail)), (size, size))
            hops = dijkstra(back, indices=targets, unweighted=True)
            for pair in np.argwhere(np.isinf(hops[:, targets])).tolist()[:1]:
                ports = [np.flatnonzero(self.of_port == targets[at])[:1] for at in pair]
                into, out = (
                    f"interface {self.node_set.local_port(port)[0]} of host "
                    f"{self.graph.vertices[self.node_set.node_of_port[port][0]]}"
                    for port in ports
                )
                raise TopologyError(
                    f"{self.graph.name}: no path leads from {out} to {into}: planes that no switch joins are not read"
                )
            distance = np.where(np.isinf(hops), -2, hops).astype(np.int64)
            order = np.argsort(self.tail, kind="stable")
            tail, head = self.tail[order], self.head[order]
            nearer = [np.flatnonzero((to[head] >= 0) & (to[head] + 1 == to[tail])) for to in distance]
            counts = np.concatenate([[0], *(np.bincount(tail[links], minlength=size) for links in nearer)])
            row = np.searchsorted(targets, np.arange(size))
            self.found[None] = row, distance, np.cumsum(counts), order[np.concatenate(nearer)]
        found: tuple[Ints, Ints, Ints, Ints] = self.found[None]
        return found

    def _paths(self, start: int, end: int) -> list[list[list[int]]]:
        """Return the k shortest paths between two switches: the links side by side of each hop."""
        from networkx import DiGraph, shortest_simple_paths

        self._next_links()
        if DiGraph not in self.found:
            graph = self.found[DiGraph] = DiGraph(zip(self.tail.tolist(), self.head.tolist(), strict=True))
            for number, hop in enumerate(zip(self.tail.tolist(), self.head.tolist(), strict=True)):
                graph.edges[hop].setdefault("links", []).append(number)
        if (start, end) not in self.found:
            edges = self.found[DiGraph].edges
            paths = islice(shortest_simple_paths(self.found[DiGraph], start, end), self.shape.paths or _PATHS)
            self.found[start, end] = [[edges[hop]["links"] for hop in pairwise(path)] for path in paths]
        ways: list[list[list[int]]] = self.found[start, end]
        return ways

    def hops(self) -> tuple[int, int]:
        if self.shape.routing == "explicit":
            ways = (one * self.graph.hosts + other for one, other in permutations(range(self.nodes), 2))
            lengths = [len(self.graph.routes[way]) for way in ways]
            return min(lengths), max(lengths)
        of_nodes = np.unique(np.stack([self.of_port, self.node_set.node_of_port]), axis=1)[0]
        used = np.unique(of_nodes)
        lengths = self._next_links()[1][:, used][~np.eye(len(used), dtype=np.bool_)].tolist()
        if self.shape.routing == "k-shortest" and len(used) <= _MOST_SPANNED:
            pairs = ((one, other) for one in used.tolist() for other in used.tolist() if one != other)
            lengths += [len(path) for pair in pairs for path in self._paths(*pair)]
        lengths += [0] * (len(used) < len(of_nodes))
        return min(lengths), max(lengths)

    def partitions(self) -> list[Partition]:
        """Return the leaves, where all interfaces of a node have the same."""
        leaf, group = self.leaf_of_node, np.full(self.switches, -1, np.int64)
        group[self.of_port] = leaf_of_port = leaf[self.node_set.node_of_port]
        one_each = len(set(zip(self.of_port.tolist(), leaf_of_port.tolist(), strict=True))) == leaf.max() + 1
        return [Partition("leaf", leaf, group)] if self.shape.host_cable and one_each else []

    def halves(self) -> list[Mask]:
        """Return the switches of the first half of the nodes."""
        return [np.isin(np.arange(self.switches), self.of_port[self.node_set.node_of_port < self.nodes // 2])]

    def describe(self, oversubscription: float | None) -> list[str]:
        graph, paths = self.graph, f" over {self.shape.paths or _PATHS} paths" * (self.shape.routing == "k-shortest")
        hosts, switches = format_number_of(graph.hosts, "host"), len(graph.vertices) - graph.hosts
        rule = f" ({graph.description})" * bool(graph.description)
        return [f"graph of {hosts}{rule} and {switches or 'no'} switches", f"{self.shape.routing} routing{paths}"]
