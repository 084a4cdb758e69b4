"""Inside a node: NVLink meshes and PCIe trees, against plain facts."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow

from s2sim.errors import TopologyError
from s2sim.testing.topologies import check_topology
from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import describe_cluster, summary_line
from s2sim.topology.nvlink_mesh import mesh_routes
from s2sim.topology.read_file import load_shape
from s2sim.topology.routing import reroute
from s2sim.topology.shape import LinkSpec, NodeSpec, with_rate

SWITCH = 'kind = "single-switch"'
LEAVES = 'kind = "fat-tree"\nhosts_per_leaf = 2\nuplinks_per_leaf = 2'
RAILS = 'kind = "rail-optimised"\nhosts_per_leaf = 2\nuplinks_per_leaf = 1'
# The hybrid cube mesh of DGX-1 with V100: six links a GPU, two to some neighbours.
CUBE = (
    "[[0,1],[0,2],[0,3],[0,3],[0,4],[0,4],[1,2],[1,2],[1,3],[1,5],[1,5],[2,3],[2,3],[2,6],[3,7],"
    "[4,5],[4,6],[4,7],[4,7],[5,6],[5,6],[5,7],[6,7],[6,7]]"
)
MESH = '[nvlink]\nkind = "mesh"\nrate = "25GB/s"\nlatency = "300ns"'
NVSWITCH = '[nvlink]\nrate = "240GB/s"\nlatency = "300ns"'
PCIE = '[pcie]\nrate = "12GB/s"\nlatency = "500ns"'
TREE = f"{PCIE}\ngpus_per_switch = 2\nuplink = {{ rate = '10GB/s', latency = '100ns' }}"
BRIDGE = f"{TREE}\nhost = {{ rate = '15GB/s', latency = '50ns' }}"
MEMORY = "memory = { rate = '20GB/s' }"
SOCKETS = "sockets = 2\nsocket = { rate = '8GB/s', latency = '60ns' }"
LINK = 'rate = "10GB/s"\nlatency = "250ns"'

SHAPES = {
    "mesh": (LEAVES, {"gpus": 4, "node": MESH, "nic": "count = 2"}),
    "cube": (LEAVES, {"gpus": 8, "node": f"{MESH}\npairs = {CUBE}", "nic": "count = 4"}),
    "line": (SWITCH, {"gpus": 5, "node": f"{MESH}\npairs = [[0,1],[1,2],[2,3],[3,4],[3,4]]", "nic": "count = 5"}),
    "cube over pcie": (LEAVES, {"gpus": 8, "node": f"{MESH}\npairs = {CUBE}\n{PCIE}", "nic": "count = 2"}),
    "pcie tree": (LEAVES, {"gpus": 6, "node": TREE, "nic": "count = 3"}),
    "one interface": (LEAVES, {"gpus": 6, "node": TREE}),
    "no peers": (LEAVES, {"gpus": 6, "node": f"{TREE}\npeer_to_peer = 'no'", "nic": "count = 3"}),
    "at host": (RAILS, {"gpus": 4, "node": BRIDGE, "nic": "count = 2\nat = 'host'"}),
    "bridge": (LEAVES, {"gpus": 5, "node": BRIDGE, "nic": "count = 2"}),
    "memory": (LEAVES, {"gpus": 4, "node": f"{PCIE}\npeer_to_peer = 'no'\n{MEMORY}", "nic": "count = 2"}),
    "memory of two sockets": (
        LEAVES,
        {"gpus": 6, "node": f"{TREE}\npeer_to_peer = 'no'\n{MEMORY}\n{SOCKETS}", "nic": "count = 3\npath = 'staged'"},
    ),
    "sockets of peers": (LEAVES, {"gpus": 5, "node": f"{PCIE}\n{SOCKETS}", "nic": "path = 'other-socket'"}),
    "staged beside an nvswitch": (
        RAILS,
        {"gpus": 4, "node": f"{NVSWITCH}\n{TREE}\n{MEMORY}", "nic": "path = 'staged'"},
    ),
    "domains of nodes": (LEAVES, {"gpus": 2, "node": f"{NVSWITCH}\ndomain_nodes = 3", "nic": "count = 2"}),
    "domains of one GPU a node": ('kind = "torus"', {"gpus": 1, "node": f"{NVSWITCH}\ndomain_nodes = 2\n{PCIE}"}),
    "domains over rails": (RAILS, {"gpus": 2, "node": f"{NVSWITCH}\ndomain_nodes = 3\n{TREE}", "nic": "count = 4"}),
    "several a GPU": (LEAVES, {"gpus": 2, "node": NVSWITCH, "nic": "count = 8"}),
    "several a GPU over rails": (RAILS, {"gpus": 2, "node": TREE, "nic": "count = 4"}),
    "several a GPU on a torus": ('kind = "torus"', {"gpus": 2, "node": NVSWITCH, "nic": "count = 4"}),
    "nvswitch over a tree": ('kind = "torus"', {"gpus": 4, "node": f"{NVSWITCH}\n{BRIDGE}", "nic": "count = 2"}),
    "mesh over a tree": ('kind = "dragonfly"', {"gpus": 4, "node": f"{MESH}\npairs = [[0,1],[2,3]]\n{TREE}"}),
}


def text_of(make, name):
    fabric, options = SHAPES[name]
    return make.toml(fabric, **{"link": LINK, **options})


def every_pair(workers):
    return np.nonzero(~np.eye(workers, dtype=bool))


@pytest.mark.parametrize("name", SHAPES)
def test_every_node_conforms(make, name):
    check_topology(make.shape(text_of(make, name)).file)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_no_cut_is_below_what_ways_carry(make, name):
    for workers in (3, 7, 13):
        make.check_cuts(make.cluster(text_of(make, name), workers))


@pytest.mark.parametrize(
    ("name", "workers", "family", "group"),
    [
        ("mesh", 16, "node", 0),
        ("cube", 16, "node", 1),
        ("pcie tree", 6, "PCIe switch", 1),
        ("pcie tree", 12, "PCIe switch", 5),
        ("at host", 12, "node", 2),
        ("bridge", 5, "PCIe switch", 0),
        ("nvswitch over a tree", 8, "node", 0),
    ],
)
def test_cuts_that_bind_are_exact(make, name, workers, family, group):
    cluster = make.cluster(text_of(make, name), workers)
    cut = cluster.cuts()[family]
    assert make.throughput(cluster, cut.group_of_rank == group) == pytest.approx(cut.egress_Bps[group])


@given(gpus=st.integers(2, 7), data=st.data())
def test_a_gpu_of_a_mesh_is_cut_by_all_of_its_links(gpus, data):
    every = list(itertools.combinations(range(gpus), 2))
    chosen = data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=12))
    pairs = [*itertools.pairwise(range(gpus)), *chosen]
    spec = NodeSpec(
        gpus,
        LinkSpec(25e9, 0),
        tuple((*pair, pairs.count(pair)) for pair in sorted(set(pairs))),
        *[None] * 4,
        1,
        LinkSpec(1e9, 0),
        nics_at_host=False,
    )
    ways = mesh_routes(spec, gpus)
    graph = csr_matrix((ways.lines.astype(np.int32), (ways.source, ways.target)), shape=(gpus + 1, gpus + 1)).tolil()
    graph[1:gpus, gpus] = 1000
    degree = sum(number for one, other, number in spec.mesh if 0 in (one, other))
    assert maximum_flow(graph.tocsr(), 0, gpus).flow_value == degree


def ways_by_search(lines, source, target):
    """Return all shortest ways as lists of GPUs, by trying them all."""
    gpus = len(lines)
    for length in range(1, gpus):
        found = [
            [source, *between, target]
            for between in itertools.permutations([g for g in range(gpus) if g not in (source, target)], length - 1)
            if all(lines[a, b] for a, b in itertools.pairwise([source, *between, target]))
        ]
        if found:
            return found
    return []


@given(gpus=st.integers(2, 6), data=st.data())
def test_ways_of_a_mesh_follow_the_rule(gpus, data):
    lines = np.zeros((gpus, gpus), int)
    for one, other in itertools.pairwise(data.draw(st.permutations(range(gpus)))):
        lines[one, other] = lines[other, one] = data.draw(st.integers(1, 3))
    for one, other in data.draw(st.lists(st.sampled_from(list(itertools.combinations(range(gpus), 2))), max_size=6)):
        lines[one, other] = lines[other, one] = data.draw(st.integers(1, 3))
    mesh = tuple((a, b, int(lines[a, b])) for a, b in itertools.combinations(range(gpus), 2) if lines[a, b])
    spec = NodeSpec(gpus, LinkSpec(1e9, 0), mesh, *[None] * 4, 1, LinkSpec(1e9, 0), nics_at_host=False)
    ways = mesh_routes(spec, gpus)
    for source, target in itertools.permutations(range(gpus), 2):
        links = [int(link) for link in ways.hops[:, source, target] if link >= 0]
        way = [source, *ways.target[links].tolist()]
        assert ways.source[links].tolist() == way[:-1]
        # Fewest GPUs, then the widest, then the lowest numbers.
        best = min(
            ways_by_search(lines, source, target),
            key=lambda found: (-min(lines[a, b] for a, b in itertools.pairwise(found)), found),
        )
        assert way[-1] == target
        width = min(lines[a, b] for a, b in itertools.pairwise(way))
        assert (len(way), width) == (len(best), min(lines[a, b] for a, b in itertools.pairwise(best)))
        if len(best) <= 3:
            assert way == best


def test_the_cube_mesh_of_dgx_1(make):
    cluster = make.cluster(text_of(make, "cube"), 8)
    degree = np.zeros(8)
    block = cluster.fabric.blocks["nvlink.mesh"]
    np.add.at(degree, cluster.fabric.tail[block.part], cluster.fabric.rate_Bps[block.part])
    # Six links of 25 GB/s a GPU.
    assert degree.tolist() == [150e9] * 8 == cluster.cuts()["gpu"].egress_Bps.tolist()
    assert make.names(cluster, 0, 3) == ["node0.gpu0.to3"]
    assert cluster.fabric.rate_Bps[cluster.routes([0], [3]).links].tolist() == [50e9]
    # No link from 0 to 5: over 1 or 4. Both ways have a single link somewhere; the lower number wins.
    assert make.names(cluster, 0, 5) == ["node0.gpu0.to1", "node0.gpu1.to5"]
    # From 0 to 7 there are two links all the way over 4, over 3 only one.
    assert make.names(cluster, 0, 7) == ["node0.gpu0.to4", "node0.gpu4.to7"]
    assert describe_cluster(cluster)["diameter_hops"] == 2
    assert describe_cluster(cluster)["bisection_Bps"] == 6 * 25e9
    over_pcie = make.cluster(text_of(make, "cube over pcie"), 8)
    assert make.names(over_pcie, 0, 5) == ["node0.gpu0.pcie.out", "node0.gpu5.pcie.in"]
    assert make.names(over_pcie, 0, 4) == ["node0.gpu0.to4"]
    assert over_pcie.cuts()["gpu"].egress_Bps.tolist() == [162e9] * 8
    assert over_pcie.shape.pcie_joins_gpus
    assert not make.shape(make.toml(SWITCH, gpus=3, node=f"{MESH}\n{PCIE}")).pcie_joins_gpus


def test_a_full_mesh_has_links_of_its_own_for_each_pair(make):
    text = make.toml(SWITCH, gpus=4, node=f"{MESH}\nlinks_per_pair = 4")
    cluster = make.cluster(text, 7)
    # 12 NVLink3 links of 25 GB/s a GPU, four to each of three others: as nodes of four A100 are built.
    assert cluster.cuts()["gpu"].egress_Bps.tolist() == [300e9 + make.rate_Bps] * 4 + [200e9 + make.rate_Bps] * 3
    assert sum(".to" in name for name in cluster.fabric.link_names) == 12 + 6
    alone = make.cluster(text, 4)
    ring = alone.routes([0, 1, 2, 3], [1, 2, 3, 0])
    assert set(ring.latency_ps.tolist()) == {300_000}
    assert alone.fabric.rate_Bps[ring.links].tolist() == [100e9] * 4
    assert "1 node x 4 GPUs (NVLink 25 GB/s a link, no switch)" in summary_line(alone)
    faster = build_cluster(load_shape(alone.shape.file, ["nvlink.links_per_pair=1", "nvlink.rate=50GB/s"]), 4)
    assert set(faster.fabric.rate_Bps[faster.fabric.blocks["nvlink.mesh"].part]) == {50e9}


def test_without_peer_to_peer_gpus_meet_at_the_host(make):
    cluster = make.cluster(make.toml(LEAVES, gpus=6, node=f"{BRIDGE}\npeer_to_peer = 'no'", nic="count = 3"), 12)
    assert make.names(cluster, 0, 1) == [
        "node0.gpu0.pcie.out",
        "node0.pcie0.uplink.out",
        "node0.host.out",
        "node0.host.in",
        "node0.pcie0.uplink.in",
        "node0.gpu1.pcie.in",
    ]
    # What leaves the node goes as ever.
    assert make.names(cluster, 2, 9)[1:-1] == ["node0.nic1.out", "node1.nic1.in"]
    make.check_cuts(cluster)
    with pytest.raises(TopologyError, match="peer_to_peer has no effect beside an NVSwitch"):
        make.shape(make.toml(SWITCH, gpus=4, node=f"{NVSWITCH}\n{PCIE}\npeer_to_peer = 'no'"))


def test_a_pcie_tree_is_shared_each_way(make):
    cluster = make.cluster(text_of(make, "pcie tree"), 12)
    assert make.names(cluster, 0, 1) == ["node0.gpu0.pcie.out", "node0.gpu1.pcie.in"]
    assert make.names(cluster, 0, 5) == [
        "node0.gpu0.pcie.out",
        "node0.pcie0.uplink.out",
        "node0.pcie2.uplink.in",
        "node0.gpu5.pcie.in",
    ]
    # Each interface is below the switch of its GPUs: no uplink between.
    assert make.names(cluster, 2, 9)[1:-1] == ["node0.nic1.out", "node1.nic1.in"]
    assert cluster.routes([0, 0], [1, 5]).latency_ps.tolist() == [1_000_000, 1_200_000]
    one = make.cluster(text_of(make, "one interface"), 12)
    assert make.names(one, 5, 6) == [
        "node0.gpu5.pcie.out",
        "node0.pcie2.uplink.out",
        "node0.pcie0.uplink.in",
        "node0.nic0.out",
        "node1.nic0.in",
        "node1.gpu0.pcie.in",
    ]
    host = make.cluster(text_of(make, "at host"), 8)
    assert make.names(host, 0, 5) == [
        "node0.gpu0.pcie.out",
        "node0.pcie0.uplink.out",
        "node0.host.out",
        "node0.nic0.out",
        "node1.nic0.in",
        "node1.host.in",
        "node1.pcie0.uplink.in",
        "node1.gpu1.pcie.in",
    ]
    assert make.names(host, 1, 2)[1:-1] == [
        "node0.pcie0.uplink.out",
        "node0.host.out",
        "node0.host.in",
        "node0.pcie1.uplink.in",
    ]
    # Two interfaces of 10 GB/s behind a bridge of 15.
    assert host.cuts()["node"].egress_Bps.tolist() == [15e9, 15e9]
    assert host.cuts()["PCIe switch"].egress_Bps.tolist() == [10e9] * 4
    assert describe_cluster(make.cluster(text_of(make, "pcie tree"), 6))["bisection_Bps"] == 10e9 + 12e9
    assert "PCIe 12 GB/s, 2 a switch" in summary_line(host)


def test_uplinks_are_as_fast_as_gpu_links_unless_told(make):
    shape = make.shape(make.toml(SWITCH, gpus=4, node=f"{PCIE}\ngpus_per_switch = 2"))
    assert shape.nodes[0].uplink == LinkSpec(12e9, 0)
    assert with_rate(shape, "pcie.rate", 1e9).nodes[0].uplink == LinkSpec(1e9, 0)
    told = load_shape(shape.file, ["pcie.uplink.rate=5GB/s", "nic.at=host", "pcie.host.rate=8GB/s"])
    assert with_rate(told, "pcie.rate", 1e9).nodes[0].uplink == LinkSpec(5e9, 0)
    assert (told.nodes[0].nics_at_host, told.nodes[0].bridge) == (True, LinkSpec(8e9, 0))


def test_a_tree_that_holds_nothing_up_changes_no_rate(make):
    flat = make.cluster(make.toml(LEAVES, gpus=4, node=PCIE, nic="count = 2"), 16)
    tree = make.cluster(make.toml(LEAVES, gpus=4, node=f"{PCIE}\ngpus_per_switch = 2", nic="count = 2"), 16)
    pairs = every_pair(16)
    one, other = flat.routes(*pairs), tree.routes(*pairs)
    assert np.array_equal(one.latency_ps, other.latency_ps)
    assert np.array_equal(one.narrowest(flat.fabric.rate_Bps), other.narrowest(tree.fabric.rate_Bps))
    for family in flat.cuts().families:
        assert np.array_equal(family.egress_Bps, tree.cuts()[family.name].egress_Bps)


def test_a_reduction_passes_pcie_switches_and_needs_a_switch(make):
    tree = make.cluster(make.toml(LEAVES, gpus=4, node=TREE, nic="count = 2\nat = 'host'"), 8)
    used = {tree.fabric.class_names[tree.fabric.link_class[link]] for link in tree.reduction_tree().links}
    assert used == {"pcie", "pcie-uplink", "nic"}
    assert len(tree.reduction_tree().links) == 2 * (8 + 4 + 4)
    with pytest.raises(TopologyError, match="GPUs of an NVLink mesh share an interface"):
        make.cluster(make.toml(LEAVES, gpus=4, node=MESH), 8).reduction_tree()
    with pytest.raises(TopologyError, match="inside one node without NVSwitch"):
        make.cluster(make.toml(LEAVES, gpus=4, node=MESH), 4).reduction_tree()
    own = make.cluster(make.toml(LEAVES, gpus=4, node=MESH, nic="count = 4"), 8).reduction_tree()
    assert len(own.links) == 16


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            f"{MESH}\npairs = [[0, 1]]",
            r"leave no way from GPU 0 to GPU 2 of a node with 4 GPUs.*add pairs or a \[pcie\]",
        ),
        (f"{MESH}\npairs = [[0, 4]]", r"nvlink.pairs = \[\[0, 4\]\] is not a list of pairs of GPUs from 0 to 3: write"),
        (f"{MESH}\npairs = [[1, 1]]", "is not a list of pairs"),
        (f"{MESH}\npairs = [[1, 1, 2]]", "is not a list of pairs"),
        (f"{MESH}\npairs = [[true, 2]]", "is not a list of pairs"),
        (f"{MESH}\npairs = []", "is not a list of pairs"),
        (f"{MESH}\npairs = '0-1'", "is not a list of pairs"),
        (f"{MESH}\npairs = [[0, 1]]\nlinks_per_pair = 2", "links_per_pair has no effect beside nvlink.pairs"),
        (
            f"{NVSWITCH}\npairs = [[0, 1]]",
            "pairs has no effect on an NVSwitch: leave it out or set nvlink.kind = 'mesh'",
        ),
        (f"{NVSWITCH}\nlinks_per_pair = 2", "links_per_pair has no effect on an NVSwitch"),
        (f"{NVSWITCH}\nkind = 'ring'", "nvlink.kind = 'ring' is unknown"),
        ("[nvlink]\nkind = 'mesh'", "nvlink.rate is missing"),
        (f"{PCIE}\ngpus_per_switch = 5", "pcie.gpus_per_switch = 5 for node.gpus = 4: write at most 4"),
        (f"{PCIE}\ngpus_per_switch = 0", "must be at least 1"),
        (f"{PCIE}\nuplink.rate = '1GB/s'", "pcie.uplink.rate has no effect without PCIe switches"),
        (f"{PCIE}\nhost.rate = '1GB/s'", "pcie.host.rate has no effect without PCIe switches"),
        (f"{TREE}\nhost.latency = '1us'", "pcie.host.rate is missing"),
        (f"{PCIE}\n[nic]\nat = 'host'", "nic.at has no effect without PCIe switches"),
        (f"{TREE}\n[nic]\nat = 'gpu'", "nic.at = 'gpu' is unknown"),
        (f"{PCIE}\nuplnk.rate = '1GB/s'", "unknown field 'pcie.uplnk'"),
        ("[pcie]\ngpus_per_switch = 2", "pcie.rate is missing"),
    ],
)
def test_refused_nodes(make, node, message):
    text = f"[node]\ngpus = 4\n{node}\n[fabric]\n{SWITCH}\n[fabric.link]\n{LINK}"
    with pytest.raises(TopologyError, match=message) as caught:
        make.shape(text)
    assert "\n" not in str(caught.value)


def test_too_large_a_mesh_is_refused(make):
    with pytest.raises(TopologyError, match=r"node.gpus = 513: NVLinks without a switch join at most 512"):
        make.shape(make.toml(SWITCH, gpus=513, node=MESH))


def test_a_partial_mesh_without_a_way_says_so(make):
    text = make.toml(SWITCH, gpus=3, node=f"{MESH}\npairs = [[0, 2], [1, 2]]", nic="count = 3")
    assert make.names(make.cluster(text, 3), 0, 1) == ["node0.gpu0.to2", "node0.gpu2.to1"]
    with pytest.raises(
        TopologyError, match=r"no way from GPU 0 to GPU 1 of a node with 2 GPUs in use.*fill whole nodes"
    ):
        make.cluster(text, 5)


@pytest.mark.parametrize("count", [4, 8])
def test_a_message_is_spread_over_all_interfaces_of_its_gpu(make, count):
    cluster = make.cluster(make.toml(SWITCH, gpus=2, node=NVSWITCH, nic=f"count = {count}", link=LINK), 4)
    routes = cluster.routes([1], [2])
    crossed = [cluster.fabric.link_names[link] for link in routes.links]
    each = count // 2
    lanes = [(f"node0.nic{each + lane}.out", f"node1.nic{lane}.in") for lane in range(each)]
    assert sorted(crossed) == sorted(itertools.chain(*lanes))
    assert routes.weights == pytest.approx(1 / each)
    assert routes.latency_ps.tolist() == [2 * 250_000]
    assert routes.narrowest(cluster.fabric.rate_Bps) == pytest.approx(each * 10e9)


def test_interfaces_that_gpus_cannot_share_evenly_are_refused():
    with pytest.raises(TopologyError, match=r"nic.count = 3 for node.gpus = 2.*multiple"):
        load_shape("fat-tree", ["node.gpus=2", "nic.count=3"])


def test_nvswitches_join_the_nodes_of_a_domain(make):
    text = make.toml(SWITCH, gpus=2, node=f"{NVSWITCH}\ndomain_nodes = 3", nic="count = 2", link=LINK)
    cluster = make.cluster(text, 9)
    assert cluster.node_of_rank.tolist() == [0] * 6 + [1] * 3
    assert cluster.host_of_rank.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4]
    assert make.names(cluster, 1, 4) == ["node0.gpu1.nvlink.out", "node2.gpu0.nvlink.in"]
    assert make.names(cluster, 5, 6) == ["node2.nic1.out", "node3.nic0.in"]
    cuts = cluster.cuts()
    assert cuts["NVLink domain"].egress_Bps.tolist() == [6 * 10e9, 3 * 10e9]
    assert cuts["node"].egress_Bps.tolist() == [2 * 250e9] * 4 + [250e9]
    assert "NVLink 240 GB/s over 3 nodes" in summary_line(cluster)


@pytest.mark.parametrize(
    ("gpus", "node", "message"),
    [
        (2, f"{MESH}\ndomain_nodes = 2", "has no effect without NVSwitches"),
        (2, f"{NVSWITCH}\ndomain_nodes = 2\n[[nodes]]\ncount = 1\n[[nodes]]\ngpus = 4", "joins nodes of one kind"),
    ],
)
def test_domains_of_what_no_nvswitch_joins_are_refused(make, gpus, node, message):
    with pytest.raises(TopologyError, match=message):
        make.shape(make.toml(SWITCH, gpus=gpus, node=node, link=LINK))


def test_a_failure_beside_several_interfaces_of_a_gpu_is_refused(make):
    text = make.toml(SWITCH, gpus=2, node=NVSWITCH, nic="count = 4", link=LINK)
    cluster = make.cluster(text, 4)
    dead = np.array([name == "node0.nic1.out" for name in cluster.fabric.link_names])
    with pytest.raises(TopologyError, match="spreads messages over several interfaces"):
        reroute(cluster.router, cluster.routes([0], [2]), dead, pairs=(np.array([0]), np.array([2])), why="a test")
