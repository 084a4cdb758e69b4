"""Fabrics that are given as graphs: files, routes by networkx as the oracle, and what is refused."""

import json
import pickle
from itertools import islice, pairwise

import networkx as nx
import numpy as np
import pytest

from s2sim import run_collective
from s2sim.errors import S2SimError, S2SimWarning, TopologyError, UnitError
from s2sim.experiment.scenario.content_hash import hashable_content
from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import describe_cluster, summary_line
from s2sim.topology.read_file import load_shape

CABLE = {"rate": "100Gbps", "latency": "150ns"}
NODE = ["node.gpus=1", "nic.latency=350ns"]


def tree(leaves=4, hosts=4, spines=4, **attributes):
    """Return a graph of two levels; ``attributes`` are those of its edges."""
    graph = nx.Graph()
    graph.add_nodes_from(f"h{host}" for host in range(leaves * hosts))
    graph.add_edges_from((f"h{host}", f"leaf{host // hosts}") for host in range(leaves * hosts))
    graph.add_edges_from((f"leaf{leaf}", f"spine{spine}") for leaf in range(leaves) for spine in range(spines))
    graph.add_edges_from([(*edge, attributes or CABLE) for edge in graph.edges])
    return graph


def pods():
    """Return a fat tree of three levels: 2 pods of 2 leaves with 2 hosts, 2 uplinks each."""
    graph = nx.Graph()
    for host in range(8):
        graph.add_edge(f"h{host}", f"leaf{host // 2}", **CABLE)
    for leaf in range(4):
        graph.add_edges_from((f"leaf{leaf}", f"a{leaf // 2}.{up}", CABLE) for up in range(2))
    for above in range(4):
        graph.add_edges_from((f"a{above // 2}.{above % 2}", f"core{above % 2}.{up}", CABLE) for up in range(2))
    return graph


def ring(hosts):
    graph = nx.cycle_graph(hosts)
    graph.add_edges_from([(*edge, CABLE) for edge in graph.edges])
    return graph


def cluster_of(graph, workers, *fields, **options):
    return build_cluster(load_shape(graph, [*NODE, *fields]), workers, **options)


PODS = 'kind = "fat-tree"\nlevels = 3\nhosts_per_leaf = 2\nuplinks_per_leaf = 2\nleaves_per_pod = 2'
BUILT_IN = {
    "tree": (tree(), 'kind = "fat-tree"\nhosts_per_leaf = 4\nuplinks_per_leaf = 4', 16),
    "leaf-spine": (tree(spines=2), 'kind = "leaf-spine"\nhosts_per_leaf = 4\nuplinks_per_leaf = 2', 16),
    "three levels": (pods(), f"{PODS}\nuplinks_per_aggregation = 2", 8),
    "ring": (ring(9), 'kind = "ring"', 9),
}


def test_hosts_of_unlike_edges_are_asked_for():
    graph = tree()
    graph.add_nodes_from((node, {"kind": "host" if node.startswith("h") else "switch"}) for node in graph)
    graph.add_edge("h0", "leaf1", **CABLE)
    with pytest.raises(S2SimError, match=r"host h0 has 2 edges and host h1 1: give nic.count"):
        cluster_of(graph, 2)


LINK = 'rate = "100Gbps"\nlatency = "150ns"'
COLLECTIVES = [("all_reduce", "ring"), ("all_to_all", "pairwise"), ("all_reduce", "halving-doubling")]


def times(topology, workers, *, placement="linear"):
    found = []
    for kind, algorithm in COLLECTIVES:
        if algorithm == "halving-doubling" and workers & (workers - 1):
            continue
        result = run_collective(
            kind, topology, workers=workers, size_bytes=1 << 20, algorithm=algorithm, placement=placement, seed=3
        )
        found.append(result.time_s)
    return found


@pytest.mark.filterwarnings("ignore:--seed 3 changes nothing")
@pytest.mark.parametrize("placement", ["linear", "round-robin", "random"])
@pytest.mark.parametrize(("routing", "as_built_in"), [("shortest", "d-mod-k"), ("ecmp", "ecmp")])
@pytest.mark.parametrize("name", BUILT_IN)
def test_a_graph_takes_the_time_of_the_kind_that_it_is(make, tmp_path, name, routing, as_built_in, placement):
    graph, fabric, workers = BUILT_IN[name]
    top = "" if name == "ring" else f'routing = "{as_built_in}"'
    built_in = make.shape(make.toml(fabric, top=top, nic='latency = "350ns"', link=LINK)).file
    graph.graph.update({"node.gpus": 1, "nic.latency": "350ns", "routing": routing})
    nx.write_graphml(graph, tmp_path / "net.graphml")
    given = str(tmp_path / "net.graphml")
    assert times(given, workers, placement=placement) == times(built_in, workers, placement=placement)


NAMES = ("fat-tree", "leaf-spine", "ring", "single-switch", "rail-optimised", "dgx-1-v100", "nvl72", "frontier")


@pytest.mark.filterwarnings("ignore:--seed 3 changes nothing")
@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_reads_back_to_the_same_times(tmp_path, name):
    workers = {"ring": 9, "rail-optimised": 32}.get(name, 34)
    nx.write_graphml(build_cluster(load_shape(name), workers).to_networkx(), tmp_path / "net.graphml")
    assert times(str(tmp_path / "net.graphml"), workers) == times(name, workers)


def test_a_cluster_as_a_graph_has_all_its_parts():
    cluster = build_cluster(load_shape("leaf-spine", ["nic.count=2", "fabric.hosts_per_leaf=2"]), 15)
    graph = cluster.to_networkx()
    kinds = [kind for _, kind in graph.nodes(data="kind")]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"gpu": 15, "host": 4, "nic": 8, "switch": 4}
    ends = [
        graph.edges[edge]
        for edge in (("switch0", "switch2", "leaf0.up0"), ("node3.gpu2", "node3", "node3.gpu2.pcie.out"))
    ]
    assert ends == [{"rate_Bps": 3.125e9, "latency_ps": 250_000}, {"rate_Bps": 12e9, "latency_ps": 250_000}]
    way = nx.shortest_path(graph, "node0.gpu0", "node3.gpu2", weight="latency_ps")
    hops = [min(graph[tail][head].values(), key=lambda link: link["latency_ps"]) for tail, head in pairwise(way)]
    routes = cluster.routes([0], [14])
    assert sum(hop["latency_ps"] for hop in hops) == routes.latency_ps[0]
    assert "node0.nic0" in way


@pytest.mark.parametrize("ending", ["graphml", "json", "edges", "csv", "txt", "toml"])
def test_all_files_of_a_graph_are_read_alike(make, tmp_path, ending):
    graph, path = tree(rate="25Gbps", latency="2us"), tmp_path / f"net.{ending}"
    lines = [f"{one} {other} 25Gbps 2us" for one, other in graph.edges]
    if ending == "graphml":
        nx.write_graphml(graph, path)
    elif ending == "json":
        path.write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    elif ending == "toml":
        (tmp_path / "net.edges").write_text("\n".join(lines))
        path.write_text(make.toml('kind = "graph"\nfile = "net.edges"', link=""))
    elif ending == "csv":
        path.write_text("source,target,rate,latency\n" + "\n".join(lines).replace(" ", ","))
    else:
        path.write_text("# of our cluster\n" + "\n".join(lines))
    found, given = load_shape(str(path), NODE), load_shape(graph, NODE)
    assert (found.graph.vertices, found.graph.description) == (given.graph.vertices, "nodes with one neighbour")
    routes = [build_cluster(shape, 16).routes(np.arange(15), np.arange(1, 16)) for shape in (found, given)]
    assert all(np.array_equal(*(getattr(each, name) for each in routes)) for name in ("links", "latency_ps"))
    assert pickle.loads(pickle.dumps(found)) == found
    assert hashable_content(found) == hashable_content(given)


@pytest.mark.parametrize("routing", ["shortest", "ecmp", "k-shortest"])
def test_routes_are_those_of_networkx(routing):
    graph = nx.random_regular_graph(3, 12, seed=5)
    graph = nx.relabel_nodes(graph, {switch: f"s{switch}" for switch in graph})
    between = graph.copy()
    graph.add_edges_from((f"h{host}", f"s{host // 2}") for host in range(24))
    for seed in range(3 if routing != "shortest" else 1):
        cluster = cluster_of(graph, 24, "nic.rate=1Gbps", f"routing={routing}", seed=seed)
        ranks = np.arange(24)
        source, target = np.nonzero(ranks[:, None] != ranks)
        routes = cluster.routes(source, target)
        used = set()
        for pair, (one, other) in enumerate(zip(source // 2, target // 2, strict=True)):
            links = routes.links[routes.offsets[pair] + 1 : routes.offsets[pair + 1] - 1]
            names = [cluster.fabric.link_names[link].split("->") for link in links]
            path = [f"s{one}", *(head for _, head in names)]
            assert [tail for tail, _ in names] == path[:-1]
            if routing == "k-shortest":
                possible = islice(nx.shortest_simple_paths(between, path[0], f"s{other}"), 4)
                assert max(map(len, possible)) >= len(path)
            else:
                assert path in nx.all_shortest_paths(between, path[0], f"s{other}")
            assert (path[0], path[-1]) == (f"s{one}", f"s{other}")
            used.add(tuple(path))
        assert len(used) > 12 * 11 + 12


def test_parallel_links_share_what_one_carries_alone():
    graph = nx.MultiGraph([("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"), ("x", "y"), ("x", "y")])
    cluster = cluster_of(graph, 4, "nic.rate=8Gbps")
    routes = cluster.routes([0, 1], [2, 3])
    assert [cluster.fabric.link_names[link] for link in routes.links] == [
        *("node0.nic0.out", "x->y", "node2.nic0.in"),
        *("node1.nic0.out", "x->y.1", "node3.nic0.in"),
    ]
    assert cluster.cuts()["leaf"].egress_Bps.tolist() == [2e9, 2e9]
    assert describe_cluster(cluster)["bisection_Bps"] == 2e9


def test_a_host_alone_and_hosts_that_forward():
    alone = nx.Graph()
    alone.add_node("h")
    cluster = cluster_of(alone, 1, "nic.rate=1Gbps")
    assert summary_line(cluster).endswith("graph of 1 host (all nodes) and no switches, shortest routing")
    line = nx.Graph([("a", "b"), ("b", "c")])
    nx.set_node_attributes(line, "host", "kind")
    cluster = cluster_of(line, 3, "nic.rate=1Gbps")
    assert [cluster.fabric.link_names[link] for link in cluster.routes([0], [2]).links] == [
        *("node0.nic0.out", "a->b", "b->c", "node2.nic0.in")
    ]


def test_interfaces_of_a_host_have_a_link_each_or_share_one():
    graph = nx.Graph([(host, leaf) for host in "ab" for leaf in ("leaf0", "leaf1")], rate="")
    nx.set_node_attributes(graph, {"a": "host", "b": "host", "leaf0": "switch", "leaf1": "switch"}, "kind")
    graph.add_edge("leaf0", "leaf1")
    fields = ["node.gpus=2", "nvlink.rate=100GB/s", "nic.rate=1Gbps"]
    cluster = build_cluster(load_shape(graph, fields), 4)
    assert cluster.shape.nodes[0].nics == 2
    assert [cluster.fabric.link_names[link] for link in cluster.routes([0], [3]).links][1] == "leaf0->leaf1"
    graph.remove_edge("a", "leaf1")
    with pytest.raises(TopologyError, match=r"host b has 2 links to switches, 2 back, for nic.count = 1"):
        build_cluster(load_shape(graph, fields), 4)
    graph.remove_edge("b", "leaf1")
    assert len(build_cluster(load_shape(graph, [*fields, "nic.count=2"]), 4).routes([0], [3]).links) == 2


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda g: g.add_edge("leaf0", "leaf1", bandwith=1),
            TopologyError,
            "edge leaf0 - leaf1: unknown attribute 'bandw",
        ),
        (lambda g: g.add_edge("leaf0", "leaf1", rate="-1Gbps"), UnitError, "edge leaf0 - leaf1: rate: .* is negative"),
        (lambda g: g.add_edge("leaf0", "leaf1", capacity=100), UnitError, "capacity: 100 is not a rate"),
        (
            lambda g: g.add_edge("leaf0", "leaf1", rate="1Gbps", rate_Bps=1),
            TopologyError,
            "rate_Bps is not all that says",
        ),
        (lambda g: g.add_edge("leaf0", "leaf0"), TopologyError, "edge leaf0 - leaf0 joins a node to itself"),
        (lambda g: g.add_node("h0", kind="hots"), TopologyError, "node h0 has the kind 'hots' .did you mean 'host'"),
        (lambda g: g.add_node("n", kind="nic"), TopologyError, "nic n has no host"),
        (lambda g: g.add_node(0) or g.add_node("0"), TopologyError, "names repeat"),
        (lambda g: g.add_node("alone", kind="host"), TopologyError, "host alone has 0 links to switches"),
        (lambda g: nx.set_node_attributes(g, "switch", "kind"), TopologyError, "has no hosts"),
        (
            lambda g: g.remove_edges_from([("leaf3", f"spine{n}") for n in range(4)]),
            TopologyError,
            "no path leads from interface 0 of host",
        ),
        (lambda g: g.graph.update({"node.gpu": 1}), TopologyError, "unknown field 'node.gpu'"),
        (lambda g: g.graph.update({"fabric.link.rate": "1Gbps"}), TopologyError, "fabric.link.rate has no effect"),
        (lambda g: g.graph.update({"fabric.paths": 2}), TopologyError, "fabric.paths has no effect without"),
        (
            lambda g: g.graph.update({"fabric.paths": 65, "routing": "k-shortest"}),
            TopologyError,
            "'k-shortest', which takes up to 64",
        ),
        (lambda g: g.graph.update({"fabric.levels": 2}), TopologyError, "does not fit a graph"),
        (lambda g: g.graph.update({"routing": "spray"}), TopologyError, "'spray' does not exist on a graph"),
    ],
)
def test_refused_graphs(change, error, message):
    graph = tree()
    change(graph)
    with pytest.raises(error, match=message) as caught:
        describe_cluster(cluster_of(graph, 17 if "alone" in graph else 16))
    assert "\n" not in str(caught.value)


ENTITY = '<!DOCTYPE a [<!ENTITY b "bb">]><graphml><graph edgedefault="undirected"><node id="&b;"/></graph></graphml>'
TWICE = (
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected"><node id="a"/>'
    '<node id="b"/><edge source="a" target="b"/><edge source="b" target="a"/></graph></graphml>'
)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("n.graphml", ENTITY, "n.graphml is no graph that can be read: DTDForbidden"),
        ("n.graphml", TWICE, "edge a - b is there twice"),
        ("n.graphml", "<graphml", "no graph that can be read: ParseError"),
        ("n.graphml", "<a/>", "no graph that can be read"),
        ("n.json", "[]", "no graph that can be read"),
        ("n.json", "[" * 100_000, "no graph that can be read"),
        (
            "n.json",
            '{"nodes": [{"id": 1}, {"id": 2}], "links": [{"source": 1, "target": 2}, {"source": 2, "target": 1}]}',
            "1 - 2 is",
        ),
        ("n.edges", "a b\nc\n", "line 2 is not two nodes"),
        ("n.csv", "a,b\nb,a\n", "edge a - b is there twice"),
        ("n.edges", "a b\nc d\nb c\na d fast\n", "edge a - d: rate: rate 'fast'|edge a - d: rate: 'fast'"),
        ("n.edges", "\0", "it is not text"),
        ("n.edges", "", "has no hosts"),
    ],
)
def test_damaged_files(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(S2SimError, match=message) as caught:
        cluster_of(str(tmp_path / name), 1, "nic.rate=1Gbps")
    assert "\n" not in str(caught.value)
    assert "n." in str(caught.value)


@pytest.mark.parametrize(
    ("fabric", "message"),
    [
        ('kind = "graph"', "mine.toml: fabric.file is missing"),
        ('kind = "graph"\nfile = "net.gml"', r"fabric.file = 'net.gml' does not end in .graphml, "),
        ('kind = "graph"\nfile = "no.edges"', "cannot read the graph .*no.edges"),
        ('kind = "graph"\nfile = 3', "fabric.file = 3 is not a text"),
        ('kind = "ring"\nfile = "net.edges"', "fabric.file has no effect on a ring"),
    ],
)
def test_files_that_name_no_graph(make, tmp_path, fabric, message):
    (tmp_path / "net.edges").write_text("a b")
    with pytest.raises(TopologyError, match=message):
        make.shape(make.toml(fabric))


def test_more_workers_than_hosts_and_attributes_that_are_not_read():
    with pytest.raises(TopologyError, match=r"graph holds 16 .*or raise the number of hosts in graph"):
        cluster_of(tree(), 17)
    graph = tree()
    graph.nodes["h0"]["Latitude"] = 52.5
    with pytest.warns(S2SimWarning, match="graph: attributes of nodes that are not read: Latitude"):
        load_shape(graph, NODE)
