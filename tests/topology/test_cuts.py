"""Capacities of cuts, against sums over the links that really cross them; descriptions."""

from collections import defaultdict

import numpy as np
import pytest

from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import describe_cluster, summary_line
from s2sim.topology.read_file import load_shape

NVLINK = '[nvlink]\nrate = "240GB/s"\nlatency = "300ns"'
PCIE = '[pcie]\nrate = "12GB/s"\nlatency = "500ns"'
RING = 'kind = "ring"'


UNLIMITED = 1e18


def as_flow_network(cluster, inside):
    """Return capacities between vertices, from a source joined to the GPUs inside to a sink joined to the others.

    A node is many places, so that GPUs of a node reach each other over the ports that do that and each GPU reaches
    its own network interface only. The interfaces of a single node carry nothing.
    """
    fabric, shape, dims = cluster.fabric, cluster.shape, cluster.layout
    capacity = defaultdict(lambda: defaultdict(float))
    ends = zip(fabric.link_names, fabric.tail.tolist(), fabric.head.tolist(), fabric.rate_Bps.tolist(), strict=True)
    for name, tail, head, rate in ends:
        owner, port, way = name.split(".")[0], name.split(".")[-2], name.split(".")[-1]
        place = (owner, port, way)
        if port.startswith(("pcie", "nic")):
            at_node = fabric.gpus <= tail < fabric.gpus + fabric.nodes
            start, end = (place, head) if at_node else (tail, place)
        else:
            start, end = tail, head
        if dims.nodes > 1 or not port.startswith("nic"):
            capacity[start][end] += rate
    for gpu in range(fabric.gpus):
        node, local = divmod(gpu, shape.gpus_per_node)
        nic = f"nic{local * shape.lanes_per_node // shape.gpus_per_node}"
        out, into = (f"node{node}", nic, "out"), (f"node{node}", nic, "in")
        if shape.pcie is None:
            capacity[gpu][out] = capacity[into][gpu] = UNLIMITED
        else:
            hub_out, hub_in = (f"node{node}", "pcie", "out"), (f"node{node}", "pcie", "in")
            capacity[hub_out][out] = capacity[into][hub_in] = UNLIMITED
            capacity[hub_out][hub_in] = 0.0 if shape.nvlink else UNLIMITED
        if inside[gpu]:
            capacity["source"][gpu] = UNLIMITED
        else:
            capacity[gpu]["sink"] = UNLIMITED
    return capacity


def shortest_path(capacity):
    parents, queue = {"source": None}, ["source"]
    for vertex in queue:
        for after, left in capacity[vertex].items():
            if left > 0 and after not in parents:
                parents[after] = vertex
                queue.append(after)
    path, vertex = [], "sink"
    while parents.get(vertex) is not None:
        path.append((parents[vertex], vertex))
        vertex = parents[vertex]
    return path


def maximum_flow(capacity):
    """Return the maximum flow by shortest augmenting paths (Edmonds and Karp, JACM 1972)."""
    flow = 0.0
    while path := shortest_path(capacity):
        step = min(capacity[a][b] for a, b in path)
        for a, b in path:
            capacity[a][b] -= step
            capacity[b][a] += step
        flow += step
    return flow


def cases(make):
    yield make.tree(4, 2), 13, ["gpu", "node", "leaf"]
    yield make.tree(2, 1, gpus=4, node=NVLINK, nic="count = 2"), 25, ["gpu", "node", "leaf"]
    yield make.tree(2, 2, gpus=2, node=PCIE), 11, ["gpu", "node", "leaf"]
    yield make.tree(2, 2, pod=2, core=1), 15, ["gpu", "node", "leaf", "pod"]
    yield make.toml('kind = "single-switch"', gpus=2, node=PCIE), 7, ["gpu", "node"]
    yield make.tree(2, 2, gpus=2, node=f"{NVLINK}\n{PCIE}"), 7, ["gpu", "node", "leaf"]
    yield make.toml(RING, nic='rate = "60GiB/s"'), 9, ["gpu", "node", "dimension-0 slab"]
    yield make.toml(RING, nic='rate = "150GiB/s"'), 9, ["gpu", "node", "dimension-0 slab"]
    yield make.toml('kind = "single-switch"', gpus=4, node=NVLINK), 4, ["gpu"]
    yield make.toml('kind = "single-switch"', gpus=4, node=PCIE), 3, ["gpu"]
    yield make.toml('kind = "single-switch"'), 1, []


@pytest.mark.parametrize("number", range(11))
def test_cuts_equal_maximum_flow(make, number):
    text, workers, names = list(cases(make))[number]
    cluster = make.cluster(text, workers, placement="round-robin")
    cuts = cluster.cuts()
    assert [family.name for family in cuts.families] == names
    for family in cuts.families:
        assert family.group_of_rank.shape == (workers,)
        assert sorted(set(family.group_of_rank.tolist())) == list(range(family.groups))
        assert np.array_equal(family.egress_Bps, family.ingress_Bps)
        for group in range(family.groups):
            inside = np.zeros(workers, bool)
            inside[cluster.gpu_of_rank[family.group_of_rank == group]] = True
            flow = maximum_flow(as_flow_network(cluster, inside))
            capacity = family.egress_Bps[group]
            # Never too low; but for a GPU, which has its interface in full whatever lies beyond, exact.
            assert capacity >= flow * (1 - 1e-12)
            if family.name != "gpu":
                rest = family.ingress_Bps.sum() - family.ingress_Bps[group]
                assert min(capacity, rest) == pytest.approx(flow, rel=1e-12)


def test_gpu_egress_counts_each_port_once(make):
    both = make.cluster(make.tree(2, 2, gpus=2, node=f"{NVLINK}\n{PCIE}"), 5).cuts()["gpu"]
    assert both.egress_Bps.tolist() == [252e9] * 4 + [12e9]
    nvlink = make.cluster(make.tree(2, 2, gpus=2, node=NVLINK), 5).cuts()["gpu"]
    assert nvlink.egress_Bps.tolist() == [240e9 + make.rate_Bps] * 4 + [make.rate_Bps]
    pcie = make.cluster(make.tree(2, 2, gpus=2, node=PCIE), 4).cuts()["gpu"]
    assert pcie.egress_Bps.tolist() == [12e9] * 4
    with pytest.raises(KeyError):
        make.cluster(make.tree(2, 2), 1).cuts()["node"]


def test_describe_the_shipped_fat_tree():
    cluster = build_cluster(load_shape("fat-tree"), 64)
    assert summary_line(cluster) == (
        "fat-tree: 16 nodes x 4 GPUs (NVLink 240 GB/s), 1 NIC of 100 Gbps a node, 2 levels, 4 leaves x 4 nodes, "
        "non-blocking, d-mod-k routing, up to 1.3 us one way"
    )
    values = describe_cluster(cluster)
    expected = {
        "nodes": 16,
        "leaves": 4,
        "spines": 4,
        "cores": 0,
        "links": 2 * (64 + 16 + 16),
        "oversubscription": 1.0,
        "bisection_Bps": 8 * 12.5e9,
        "diameter_hops": 4,
        "latency_min_ps": 400_000,
        "latency_max_ps": 2 * 350_000 + 4 * 150_000,
    }
    assert {key: values[key] for key in expected} == expected
    assert sum(values["links_by_class"].values()) == values["links"]


@pytest.mark.parametrize(
    ("name", "workers", "line"),
    [
        ("leaf-spine", 62, "16 nodes x 4 GPUs (PCIe 12 GB/s), 2 in use on the last, 1 NIC of 25 Gbps a node, 2 levels"),
        ("leaf-spine", 64, "2 leaves x 8 nodes, 4:1 oversubscribed, ecmp routing"),
        ("fat-tree", 3, "1 node x 4 GPUs (NVLink 240 GB/s), 3 in use, 1 NIC of 100 Gbps a node, all on 1 leaf of 4"),
        ("single-switch", 8, "8 nodes x 1 GPU, 1 NIC of 100 Gbps a node, 1 switch"),
        ("ring", 8, "8 nodes x 1 GPU, 1 NIC of 100 Gbps a node, ring links of 100 Gbps, up to"),
    ],
)
def test_first_lines(name, workers, line):
    assert line in summary_line(build_cluster(load_shape(name), workers))


def test_a_latency_that_is_not_given_shows(make):
    assert summary_line(make.cluster(make.toml('kind = "single-switch"', link='rate = "50GiB/s"'), 4)).endswith(
        "1 switch, no latency given"
    )


def test_describe_other_shapes(make):
    three = make.cluster(make.tree(2, 2, pod=2, core=1), 16)
    values = describe_cluster(three)
    # Four pods of 4 hosts each leave through 2 core links: twice oversubscribed, two pods a side.
    assert (values["pods"], values["cores"], values["diameter_hops"]) == (4, 2, 6)
    assert values["oversubscription"] == 2.0
    assert values["bisection_Bps"] == 4 * make.rate_Bps
    assert "3 levels, 8 leaves x 2 nodes, 4 pods x 2 leaves, 2:1 oversubscribed" in summary_line(three)

    ring = describe_cluster(make.cluster(make.toml(RING, nic='latency = "100ns"'), 9))
    assert (ring["diameter_hops"], ring["bisection_Bps"]) == (4 + 2, 2 * make.rate_Bps)
    assert (ring["latency_min_ps"], ring["latency_max_ps"]) == (450_000, 200_000 + 4 * 250_000)

    sprayed = describe_cluster(make.cluster(make.tree(4, 4, routing="spray"), 16))
    assert (sprayed["diameter_hops"], sprayed["latency_max_ps"]) == (4, 1_000_000)

    partial = describe_cluster(make.cluster(make.tree(4, 4), 13))
    # Leaves of 4, 4, 4 and 1 hosts: the half with the single host carries 5 rates.
    assert partial["bisection_Bps"] == 5 * make.rate_Bps

    alone = describe_cluster(make.cluster(make.tree(2, 2), 1))
    assert (alone["bisection_Bps"], alone["latency_max_ps"], alone["diameter_hops"]) == (None, None, 0)
    node = describe_cluster(make.cluster(make.tree(2, 2, gpus=4, node=NVLINK), 4))
    assert (node["bisection_Bps"], node["diameter_hops"], node["oversubscription"]) == (2 * 240e9, 2, 1.0)
