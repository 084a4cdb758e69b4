"""What holds for every kind of fabric: conformance, descriptions, cuts and routings."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow

from s2sim.errors import TopologyError
from s2sim.testing.topologies import check_topology
from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import describe_cluster
from s2sim.topology.kinds import KINDS, ROUTINGS, most_nodes

NVLINK = '[nvlink]\nrate = "40GB/s"\nlatency = "300ns"'
PCIE = '[pcie]\nrate = "12GB/s"\nlatency = "500ns"'
LINK = 'rate = "10GB/s"\nlatency = "250ns"'
FAST = 'rate = "100GB/s"'
GRAPH = f'kind = "graph"\nfile = "{Path(__file__).parent}/jellyfish.edges"'

FABRICS = {
    "tree": ('kind = "fat-tree"\nhosts_per_leaf = 3\nuplinks_per_leaf = 2', {}),
    "three levels": ('kind = "fat-tree"\nlevels = 3\nhosts_per_leaf = 1\nuplinks_per_leaf = 1\nleaves_per_pod = 2', {}),
    "switch": ('kind = "single-switch"', {"gpus": 2, "node": PCIE}),
    "ring": ('kind = "ring"', {"nic": FAST}),
    "torus": ('kind = "torus"', {"nic": FAST}),
    "flat torus": ('kind = "torus"\ndimensions = 2', {"gpus": 2, "node": NVLINK, "nic": "count = 2"}),
    "long torus": ('kind = "torus"\nsize = [2, 5, 3]', {"nic": FAST}),
    "sparse torus": ('kind = "torus"\nsize = "4x4x4"', {"nic": FAST}),
    "line": ('kind = "torus"\nsize = [1, 30, 1]', {"nic": FAST}),
    "dragonfly": ('kind = "dragonfly"', {}),
    "tapered": (
        'kind = "dragonfly"\nhosts_per_router = 2\nrouters_per_group = 3\nglobal_links_per_router = 1',
        {"gpus": 2, "node": PCIE},
    ),
    "many links": ('kind = "dragonfly"\nhosts_per_router = 1\nrouters_per_group = 3\nglobal_links_per_router = 5', {}),
    "lone routers": (
        'kind = "dragonfly"\nhosts_per_router = 1\nrouters_per_group = 1\nglobal_links_per_router = 40',
        {},
    ),
    "valiant": (
        'kind = "dragonfly"\nhosts_per_router = 1\nrouters_per_group = 2\nglobal_links_per_router = 7',
        {"top": 'routing = "valiant"'},
    ),
    "lone valiant": (
        'kind = "dragonfly"\nhosts_per_router = 1\nrouters_per_group = 1\nglobal_links_per_router = 40',
        {"top": 'routing = "valiant"'},
    ),
    "rails": (
        'kind = "rail-optimised"\nhosts_per_leaf = 2\nuplinks_per_leaf = 1',
        {"gpus": 4, "node": NVLINK, "nic": "count = 2"},
    ),
    "pcie rails": (
        'kind = "rail-optimised"\nhosts_per_leaf = 3\nuplinks_per_leaf = 2',
        {"gpus": 2, "node": f"{NVLINK}\n{PCIE}", "nic": "count = 2", "top": 'routing = "spray"'},
    ),
    "usual rails": (
        'kind = "rail-optimised"',
        {"gpus": 2, "node": NVLINK, "nic": "count = 2", "top": 'routing = "ecmp"'},
    ),
    "graph": (GRAPH, {"gpus": 4, "node": NVLINK, "nic": "count = 2"}),
    "drawn graph": (GRAPH, {"top": 'routing = "ecmp"'}),
    "graph by paths": (f"{GRAPH}\npaths = 3", {"top": 'routing = "k-shortest"'}),
    "hosts alone": (GRAPH.replace("jellyfish", "direct"), {"top": 'routing = "ecmp"', "nic": FAST}),
}


@pytest.fixture(params=FABRICS)
def text(make, request):
    fabric, options = FABRICS[request.param]
    return make.toml(fabric, **{"link": LINK, **options})


def every_pair(workers):
    ranks = np.arange(workers)
    return np.nonzero(ranks[:, None] != ranks)


def sizes(make, text, **options):
    """Return clusters of several sizes, those that the fabric has places for."""
    shape = make.shape(text)
    limit = most_nodes(shape)
    most = limit[0] * shape.gpus_per_node if limit else 30
    return [build_cluster(shape, workers, **options) for workers in (2, 3, 5, 8, 13, 24, 30) if workers <= most]


def test_every_kind_conforms(make, text):
    check_topology(make.shape(text).file)


def test_every_kind_is_tried_here():
    assert {fabric.split('"')[1] for fabric, _ in FABRICS.values()} | {"leaf-spine"} == set(KINDS)


def test_diameter_and_latencies_are_those_of_all_pairs(make, text):
    for cluster in sizes(make, text):
        links = np.zeros(0, np.int64)
        latency_ps = np.zeros(0, np.int64)
        for seed in range(8 if cluster.layout.draws else 1):
            again = make.cluster(text, cluster.workers, seed=seed)
            routes = again.routes(*every_pair(cluster.workers))
            pair = np.repeat(np.arange(len(routes.latency_ps)), np.diff(routes.offsets))
            hops = np.rint(np.bincount(pair, routes.weights)).astype(np.int64)
            links, latency_ps = np.append(links, hops), np.append(latency_ps, routes.latency_ps)
        described = describe_cluster(cluster)
        assert (described["latency_min_ps"], described["latency_max_ps"]) == (latency_ps.min(), latency_ps.max())
        assert described["diameter_hops"] == links.max()


@pytest.mark.slow
def test_the_seed_matters_where_a_routing_draws(make, text):
    for cluster in sizes(make, text):
        pairs = every_pair(cluster.workers)
        ways = [make.cluster(text, cluster.workers, seed=seed).routes(*pairs) for seed in range(12)]
        differ = any(
            not np.array_equal(ways[0].links, way.links) or not np.array_equal(ways[0].offsets, way.offsets)
            for way in ways
        )
        assert not differ or cluster.layout.draws
        if cluster.layout.draws and cluster.workers > 12:
            assert differ


def test_every_routing_that_a_kind_has_and_no_other(make):
    for name, kind in KINDS.items():
        for routing in ROUTINGS if kind.routings else ():
            text = make.toml(GRAPH if name == "graph" else f'kind = "{name}"', top=f'routing = "{routing}"')
            if routing == "explicit" and routing in kind.routings:
                # Of files that have routes, see `test_simgrid`.
                with pytest.raises(TopologyError, match="explicit' is that of platforms of SimGrid"):
                    make.shape(text)
                continue
            if routing in kind.routings:
                assert describe_cluster(make.cluster(text, 8))["routing"] == routing
                continue
            with pytest.raises(TopologyError, match=f"'{routing}' does not exist on a {name}: it has ") as caught:
                make.shape(text)
            assert str(caught.value).endswith(", ".join(kind.routings))


def as_graph(cluster, inside):
    """Return capacities in GB/s between vertices, source and sink: one joined to the GPUs inside, one to the others.

    GPUs of a node reach each other over the ports that do that, and each GPU its own network interface only.
    """
    fabric, shape, dims = cluster.fabric, cluster.shape, cluster.layout
    rates = defaultdict(int)
    unlimited = 10**6
    ends = zip(fabric.link_names, fabric.tail.tolist(), fabric.head.tolist(), fabric.rate_Bps, strict=True)
    for name, tail, head, rate_Bps in ends:
        # A node is as many places as it has ports.
        place = () if ".nvlink." in name else tuple(name.split(".")[1:])
        start = (tail, *place) if fabric.gpus <= tail < fabric.gpus + fabric.nodes else (tail,)
        end = (head, *place) if fabric.gpus <= head < fabric.gpus + fabric.nodes else (head,)
        rates[start, end] += round(rate_Bps / 1e9)
    for gpu in range(fabric.gpus):
        node, local = divmod(gpu, shape.gpus_per_node)
        hub, nic = fabric.gpus + node, f"nic{local * shape.lanes_per_node // shape.gpus_per_node}"
        before = (hub, f"gpu{local}", "pcie", "out") if shape.pcie else (gpu,)
        after = (hub, f"gpu{local}", "pcie", "in") if shape.pcie else (gpu,)
        if dims.nodes > 1:
            rates[before, (hub, nic, "out")] = rates[(hub, nic, "in"), after] = unlimited
        if shape.pcie and not shape.nvlink:
            rates[before, (hub,)] = rates[(hub,), after] = unlimited
        edge = (("source",), (gpu,)) if inside[gpu] else ((gpu,), ("sink",))
        rates[edge] = unlimited
    vertices = {vertex: number for number, vertex in enumerate(sorted({v for pair in rates for v in pair}, key=str))}
    start, end = ([vertices[pair[side]] for pair in rates] for side in (0, 1))
    size = len(vertices)
    graph = csr_matrix((np.array(list(rates.values()), np.int32), (start, end)), shape=(size, size))
    return graph, vertices[("source",)], vertices[("sink",)]


@pytest.mark.slow
def test_no_cut_is_below_the_maximum_flow(make, text):
    for cluster in sizes(make, text, placement="random", seed=3):
        for family in cluster.cuts().families:
            # The first, the last, which may be partial, and one between.
            for group in {0, family.groups // 2, family.groups - 1}:
                inside = np.zeros(cluster.workers, bool)
                inside[cluster.gpu_of_rank[family.group_of_rank == group]] = True
                flow = maximum_flow(*as_graph(cluster, inside)).flow_value
                assert family.egress_Bps[group] >= flow * 1e9
                assert family.ingress_Bps[group] >= flow * 1e9


@pytest.mark.parametrize(
    ("name", "workers", "family"),
    [
        ("torus", 27, "dimension-0 plane"),
        ("torus", 27, "node"),
        ("sparse torus", 64, "dimension-2 plane"),
        ("sparse torus", 64, "dimension-1 slab"),
        ("tapered", 48, "group"),
        ("many links", 48, "router"),
        ("rails", 16, "rail group"),
    ],
)
def test_cuts_of_full_fabrics_are_tight(make, name, workers, family):
    fabric, options = FABRICS[name]
    cluster = make.cluster(make.toml(fabric, **{"link": LINK, **options}), workers)
    cut = cluster.cuts()[family]
    flow = maximum_flow(*as_graph(cluster, cut.group_of_rank[np.argsort(cluster.gpu_of_rank)] == 0)).flow_value
    assert cut.egress_Bps[0] == flow * 1e9


@pytest.mark.parametrize(
    ("fabric", "message"),
    [
        ('kind = "torus"\nsize = [2, 2]\ndimensions = 2', "fabric.dimensions has no effect beside fabric.size"),
        ('kind = "torus"\nsize = [2, 0]', r"fabric.size = \[2, 0\] is not a row of whole numbers"),
        ('kind = "torus"\nsize = "2x"', "fabric.size = 2x is not a row of whole numbers from 1 to"),
        ('kind = "torus"\nsize = []', "not a row of whole numbers"),
        ('kind = "torus"\nsize = [true]', "not a row of whole numbers"),
        ('kind = "torus"\nsize = 2.5', "not a row of whole numbers"),
        ('kind = "torus"\ndimensions = 33', "at most 32 dimensions"),
        ('kind = "torus"\nlevels = 2', "does not fit a torus: it has none"),
        ('kind = "torus"\nhosts_per_leaf = 2', "hosts_per_leaf has no effect on a torus"),
        ('kind = "ring"\nsize = [4]', "size has no effect on a ring"),
        ('kind = "fat-tree"\nhosts_per_router = 2', "hosts_per_router has no effect on a fat-tree of 2 levels"),
        ('kind = "dragonfly"\nrouters_per_group = 0', "routers_per_group = 0 must be at least 1"),
        ('kind = "rail-optimised"\nlevels = 3', "does not fit a rail-optimised: it has 2"),
        ('kind = "rail-optimised"\nleaves_per_pod = 3', "leaves_per_pod has no effect on a rail-optimised of 2 levels"),
    ],
)
def test_refused_fields(make, fabric, message):
    with pytest.raises(TopologyError, match=message) as caught:
        make.shape(make.toml(fabric))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fabric", "workers", "message"),
    [
        ('kind = "torus"\nsize = [2, 3]', 7, r"holds 6 \(6 nodes x 1 GPUs\).*raise fabric.size"),
        (
            'kind = "dragonfly"\nhosts_per_router = 1\nrouters_per_group = 2\nglobal_links_per_router = 1',
            7,
            r"holds 6 .*raise fabric.routers_per_group",
        ),
        ('kind = "torus"\nsize = [2, 3]\nnodes = 4', 5, r"holds 4 .*raise fabric.nodes"),
    ],
)
def test_full_fabrics_say_what_to_raise(make, fabric, workers, message):
    with pytest.raises(TopologyError, match=message):
        make.cluster(make.toml(fabric), workers)
