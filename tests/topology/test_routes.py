"""Routes against a walk written for reading, closed forms of scenarios S1 to S4, and graph properties."""

import itertools

import numpy as np
import pytest

from s2sim.errors import TopologyError
from s2sim.testing.topologies import check_topology
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import list_topologies

NVLINK = '[nvlink]\nrate = "240GB/s"\nlatency = "300ns"'
PCIE = '[pcie]\nrate = "12GB/s"\nlatency = "500ns"'


def walk(cluster, a, b):
    """Return the names of the links from GPU a to GPU b by d-mod-k or round a ring, one decision at a time."""
    shape, dims = cluster.shape, cluster.layout
    node_a, local_a = divmod(a, shape.gpus_per_node)
    node_b, local_b = divmod(b, shape.gpus_per_node)
    inside = "nvlink" if shape.nvlink else "pcie"
    if node_a == node_b:
        return [f"node{node_a}.gpu{local_a}.{inside}.out", f"node{node_b}.gpu{local_b}.{inside}.in"]
    nic_a = local_a * shape.lanes_per_node // shape.gpus_per_node
    nic_b = local_b * shape.lanes_per_node // shape.gpus_per_node
    path = [f"node{node_a}.gpu{local_a}.pcie.out"] if shape.pcie else []
    path.append(f"node{node_a}.nic{nic_a}.out")
    if shape.kind == "ring":
        forward, backward = (node_b - node_a) % dims.nodes, (node_a - node_b) % dims.nodes
        step, word, hops = (1, "clockwise", forward) if forward <= backward else (-1, "counterclockwise", backward)
        path += [f"node{(node_a + step * i) % dims.nodes}.{word}" for i in range(hops)]
    else:
        leaf_a, leaf_b = node_a // dims.hosts_per_leaf, node_b // dims.hosts_per_leaf
        if leaf_a != leaf_b:
            host_b = node_b * shape.lanes_per_node + nic_b
            port = host_b % dims.uplinks_per_leaf
            pod_a, pod_b = leaf_a // dims.leaves_per_pod, leaf_b // dims.leaves_per_pod
            path.append(f"leaf{leaf_a}.up{port}")
            if pod_a != pod_b:
                core = host_b // dims.uplinks_per_leaf % dims.uplinks_per_aggregation
                path.append(f"pod{pod_a}.aggregation{port}.up{core}")
                path.append(f"pod{pod_b}.aggregation{port}.down{core}")
            path.append(f"leaf{leaf_b}.down{port}")
    path.append(f"node{node_b}.nic{nic_b}.in")
    return path + ([f"node{node_b}.gpu{local_b}.pcie.in"] if shape.pcie else [])


def all_pairs(workers):
    pairs = np.array(list(itertools.permutations(range(workers), 2)), np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


RING = 'kind = "ring"'
SWITCH = 'kind = "single-switch"'


def cases(make):
    yield make.tree(4, 2), 13
    yield make.tree(2, 3, gpus=4, node=NVLINK, nic="count = 2"), 29
    yield make.tree(2, 2, gpus=2, node=f"{NVLINK}\n{PCIE}"), 11
    yield make.tree(2, 2, pod=2, core=3), 23
    yield make.tree(2, 2, pod=3, core=2, gpus=3, node=PCIE, nic="count = 3"), 41
    yield make.toml(SWITCH, gpus=2, node=PCIE), 7
    yield make.toml(SWITCH, node=PCIE), 5
    yield make.toml('kind = "fat-tree"'), 20
    yield make.toml('kind = "fat-tree"\nlevels = 3', gpus=2, node=NVLINK, nic="count = 2"), 33
    yield make.toml(RING, nic='latency = "100ns"'), 9
    yield make.toml(RING, gpus=2, node=NVLINK), 12
    yield make.toml(RING), 2


@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize("placement", ["linear", "round-robin"])
def test_routes_equal_the_walk(make, number, placement):
    text, workers = list(cases(make))[number]
    cluster = make.cluster(text, workers, placement=placement)
    fabric = cluster.fabric
    source, target = all_pairs(workers)
    routes = cluster.routes(source, target)
    for i, (a, b) in enumerate(zip(source, target, strict=True)):
        links, weights = make.route(routes, i)
        gpu_a, gpu_b = int(cluster.gpu_of_rank[a]), int(cluster.gpu_of_rank[b])
        assert [fabric.link_names[link] for link in links] == walk(cluster, gpu_a, gpu_b)
        assert np.all(weights == 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, _, _ in list_topologies()])
def test_every_shipped_topology_conforms(name):
    check_topology(name)


@pytest.mark.parametrize("number", range(12))
def test_every_shape_conforms(make, number):
    text, _ = list(cases(make))[number]
    check_topology(make.shape(text).file)


def test_link_arrays_and_names_agree(make):
    cluster = make.cluster(make.tree(2, 2, pod=2, core=3, gpus=2, node=f"{NVLINK}\n{PCIE}"), 23)
    fabric = cluster.fabric
    names = list(fabric.link_names)
    assert len(names) == len(set(names)) == len(fabric) == len(fabric.tail) == len(fabric.link_class)
    assert fabric.link_names[-1] == names[-1]
    assert fabric.link_names[3:6] == names[3:6]
    with pytest.raises(IndexError):
        fabric.link_names[len(names)]
    for name, code, rate in zip(names, fabric.link_class, fabric.rate_Bps, strict=True):
        expected = {"up": "up", "dow": "down"}
        if "nvlink" in name:
            assert (fabric.class_names[code], rate) == ("nvlink", 240e9)
        elif "pcie" in name:
            assert (fabric.class_names[code], rate) == ("pcie", 12e9)
        elif "nic" in name:
            assert (fabric.class_names[code], rate) == ("nic", make.rate_Bps)
        else:
            level = "aggregation" if name.startswith("pod") else "leaf"
            way = expected[name.rpartition(".")[2].rstrip("0123456789")[:3]]
            assert (fabric.class_names[code], rate) == (f"{level}-{way}", make.rate_Bps)


def neighbours(workers):
    ranks = np.arange(workers)
    return ranks, (ranks + 1) % workers


@pytest.mark.parametrize("n", [16, 64, 256])
def test_latency_of_scenarios_s1_to_s4(make, n):
    side = round(n**0.5)
    s1_ring = make.toml(RING, link='rate = "50GiB/s"\nlatency = "500ns"')
    s1_crossbar = make.toml(SWITCH)
    s2 = make.toml(SWITCH, link='rate = "50GiB/s"\nlatency = "500ns"')
    assert set(make.cluster(s1_ring, n).routes(*neighbours(n)).latency_ps) == {500_000}
    assert set(make.cluster(s1_crossbar, n).routes(*neighbours(n)).latency_ps) == {500_000}
    assert set(make.cluster(s2, n).routes(*neighbours(n)).latency_ps) == {1_000_000}

    s3 = make.cluster(make.tree(side, side // 2), n).routes(*neighbours(n))
    leaves_a_leaf = (np.arange(n) + 1) % side == 0
    assert np.array_equal(s3.latency_ps, np.where(leaves_a_leaf, 1_000_000, 500_000))
    assert np.array_equal(np.diff(s3.offsets), np.where(leaves_a_leaf, 4, 2))
    assert np.bincount(s3.links).max() == 1

    s4 = make.cluster(make.tree(side, side // 2), n, placement="round-robin")
    routes = s4.routes(*neighbours(n))
    assert set(routes.latency_ps) == {1_000_000}
    used = np.bincount(routes.links, minlength=len(s4.fabric))
    for way in ("leaf.up", "leaf.down"):
        block = s4.fabric.blocks[way]
        # d-mod-k spreads the 2:1 oversubscription evenly: two flows on every link of the core.
        assert np.all(used[block.start : block.start + block.count] == 2)
    assert np.all(used[: s4.fabric.blocks["leaf.up"].start] == 1)


def test_round_robin_is_the_placement_of_s4(make):
    n, side = 64, 8
    cluster = make.cluster(make.tree(side, 4), n, placement="round-robin")
    ranks = np.arange(n)
    assert np.array_equal(cluster.gpu_of_rank, ranks % side * side + ranks // side)
    assert np.array_equal(cluster.node_of_rank, cluster.gpu_of_rank)


def test_round_robin_deals_like_a_dealer(make):
    cluster = make.cluster(make.tree(2, 2, gpus=3, node=NVLINK), 16, placement="round-robin")
    # Plain dealing: six nodes (the last with one GPU) on three leaves.
    nodes = [list(range(n * 3, min(n * 3 + 3, 16))) for n in range(6)]
    leaves = [nodes[i : i + 2] for i in range(0, 6, 2)]
    queues = []
    for leaf in leaves:
        queue = []
        while any(leaf):
            queue += [node.pop(0) for node in leaf if node]
        queues.append(queue)
    expected = []
    while any(queues):
        expected += [queue.pop(0) for queue in queues if queue]
    assert cluster.gpu_of_rank.tolist() == expected


@pytest.mark.parametrize("three_levels", [False, True])
def test_spray_splits_evenly_at_each_level(make, three_levels):
    levels = {"pod": 2, "core": 3} if three_levels else {}
    sprayed = make.tree(2, 2, routing="spray", **levels)
    check_topology(make.shape(sprayed).file)
    cluster = make.cluster(sprayed, 16)
    single = make.cluster(make.tree(2, 2, **levels), 16)
    source, target = all_pairs(16)
    routes, plain = cluster.routes(source, target), single.routes(source, target)
    assert np.array_equal(routes.latency_ps, plain.latency_ps)
    fabric = cluster.fabric
    for i in range(len(source)):
        links, weights = make.route(routes, i)
        used = {fabric.class_names[fabric.link_class[link]] for link in make.route(plain, i)[0]}
        for code, name in enumerate(fabric.class_names):
            chosen = fabric.link_class[links] == code
            if name in used:
                assert weights[chosen].sum() == pytest.approx(2 if name == "nic" else 1)
                assert len(set(weights[chosen])) == 1


def test_ecmp_is_deterministic_collides_and_depends_on_the_seed(make):
    text = make.tree(16, 16, routing="ecmp")
    source, target = np.arange(16), np.arange(16) + 16
    first = make.cluster(text, 32).routes(source, target).links
    assert np.array_equal(first, make.cluster(text, 32).routes(source, target).links)
    assert not np.array_equal(first, make.cluster(text, 32, seed=1).routes(source, target).links)
    assert np.array_equal(make.cluster(text, 32).routes(source[::-1], target[::-1]).latency_ps, np.full(16, 1_000_000))
    # 16 flows thrown onto 16 uplinks: some collide, where d-mod-k has none.
    assert np.bincount(first).max() > 1
    assert np.bincount(make.cluster(make.tree(16, 16), 32).routes(source, target).links).max() == 1


def test_ecmp_spreads_as_evenly_as_chance(make):
    cluster = make.cluster(make.tree(8, 4, pod=2, core=4, routing="ecmp"), 128)
    source, target = all_pairs(128)
    links = cluster.routes(source, target).links
    for key in ("leaf.up", "leaf.down", "aggregation.up", "aggregation.down"):
        block = cluster.fabric.blocks[key]
        loads = np.bincount(links, minlength=len(cluster.fabric))[block.start : block.start + block.count]
        # Each load is a binomial count: the sum of squared deviations over the mean is about chi-squared.
        chi_squared = ((loads - loads.mean()) ** 2 / loads.mean()).sum()
        assert chi_squared < block.count + 5 * (2 * block.count) ** 0.5


def test_large_clusters(make):
    shape = make.shape(make.tree(128, 64))
    cluster = build_cluster(shape, 128**2, placement="round-robin")
    routes = cluster.routes(*neighbours(128**2))
    cluster.cuts()
    assert np.all(routes.latency_ps == 1_000_000)
    assert np.bincount(routes.links).max() == 2


def test_refused_pairs(make):
    cluster = make.cluster(make.tree(2, 2), 4)
    with pytest.raises(TopologyError, match="rank 1 to itself"):
        cluster.routes(np.array([0, 1]), np.array([1, 1]))
    with pytest.raises(TopologyError, match="rank 4 does not exist: there are 4"):
        cluster.routes(np.array([0]), np.array([4]))
    with pytest.raises(TopologyError, match="rank -1 does not exist"):
        cluster.routes(np.array([0]), np.array([-1]))
    with pytest.raises(TopologyError, match="1 and 2"):
        cluster.routes(np.array([0]), np.array([1, 2]))
    with pytest.raises(TopologyError, match="whole numbers"):
        cluster.routes(np.array([0.5]), np.array([1.0]))
    assert len(cluster.routes(np.empty(0, np.int64), np.empty(0, np.int64)).links) == 0
