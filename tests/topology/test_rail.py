"""Rail-optimised fabrics: who meets on a leaf switch, and who crosses a spine."""

import numpy as np

from s2sim.topology.cluster import build_cluster
from s2sim.topology.describe import describe_cluster, summary_line
from s2sim.topology.read_file import load_shape

NVLINK = '[nvlink]\nrate = "240GB/s"\nlatency = "300ns"'


def names(cluster, source, target):
    return [cluster.fabric.link_names[link] for link in cluster.routes([source], [target]).links]


def test_four_scalable_units():
    # NVIDIA DGX SuperPOD, 4 scalable units: 128 nodes, 32 leaf switches, 1024 cables to nodes, 1024 to spines.
    cluster = build_cluster(load_shape("rail-optimised"), 1024)
    values = describe_cluster(cluster)
    assert (values["nodes"], values["groups"], values["rails"], values["leaves"]) == (128, 4, 8, 32)
    assert values["links_by_class"] == {"nvlink": 2048, "nic": 2048, "leaf-up": 1024, "leaf-down": 1024}
    assert (values["oversubscription"], values["bisection_Bps"]) == (1.0, 512 * 50e9)
    assert "4 groups of 32 nodes, 8 rails each, non-blocking, d-mod-k routing" in summary_line(cluster)


def test_one_rail_is_two_links_and_others_cross_a_spine(make):
    text = make.toml(
        'kind = "rail-optimised"\nhosts_per_leaf = 2\nuplinks_per_leaf = 2', gpus=4, node=NVLINK, nic="count = 2"
    )
    cluster = make.cluster(text, 16)
    # GPUs 0 and 1 of a node share interface 0, GPUs 2 and 3 interface 1. Leaf switches: rails of group 0, of group 1.
    assert names(cluster, 1, 4) == ["node0.nic0.out", "node1.nic0.in"]
    assert names(cluster, 2, 7) == ["node0.nic1.out", "node1.nic1.in"]
    assert names(cluster, 0, 6) == ["node0.nic0.out", "leaf0.up1", "leaf1.down1", "node1.nic1.in"]
    assert names(cluster, 0, 8) == ["node0.nic0.out", "leaf0.up0", "leaf2.down0", "node2.nic0.in"]
    assert names(cluster, 0, 2) == ["node0.gpu0.nvlink.out", "node0.gpu2.nvlink.in"]
    head = cluster.fabric.head[cluster.fabric.blocks["nic.out"].start :][:8] - cluster.layout.first_switch
    assert head.tolist() == [0, 1, 0, 1, 2, 3, 2, 3]


def test_one_interface_a_node_is_a_leaf_spine(make):
    fabric = "hosts_per_leaf = 3\nuplinks_per_leaf = 2"
    rail = make.cluster(make.toml(f'kind = "rail-optimised"\n{fabric}', gpus=2, node=NVLINK), 17)
    tree = make.cluster(make.toml(f'kind = "leaf-spine"\n{fabric}', gpus=2, node=NVLINK), 17)
    pairs = np.nonzero(~np.eye(17, dtype=bool))
    assert np.array_equal(rail.routes(*pairs).links, tree.routes(*pairs).links)
    assert np.array_equal(rail.fabric.head, tree.fabric.head)
    for one, other in zip(rail.cuts().families, tree.cuts().families, strict=True):
        assert np.array_equal(one.egress_Bps, other.egress_Bps)
    for key in ("bisection_Bps", "oversubscription", "diameter_hops", "latency_max_ps"):
        assert describe_cluster(rail)[key] == describe_cluster(tree)[key]


def test_shifts_on_rails_share_no_link():
    # d-mod-k over a non-blocking fabric: a shift by whole nodes, all GPUs at once, is a permutation of each rail.
    cluster = build_cluster(load_shape("rail-optimised", ["fabric.hosts_per_leaf=4", "fabric.uplinks_per_leaf=4"]), 128)
    ranks = np.arange(128)
    for nodes in range(1, 16):
        assert np.bincount(cluster.routes(ranks, (ranks + 8 * nodes) % 128).links).max() == 1


def test_a_partial_node_uses_the_rails_of_its_gpus(make):
    text = make.toml(
        'kind = "rail-optimised"\nhosts_per_leaf = 2\nuplinks_per_leaf = 1', gpus=2, node=NVLINK, nic="count = 2"
    )
    group_Bps = make.cluster(text, 7).cuts()["rail group"].egress_Bps
    # Rails of one uplink: both of the full group bind; the other has two nodes on rail 0, one GPU short on rail 1.
    assert group_Bps.tolist() == [2 * make.rate_Bps, 2 * make.rate_Bps]
    assert make.cluster(text, 5).cuts()["rail group"].egress_Bps.tolist() == [2 * make.rate_Bps, make.rate_Bps]


def test_the_smallest_that_holds_all(make):
    text = make.toml('kind = "rail-optimised"', gpus=2, node=NVLINK, nic="count = 2")
    # 3 nodes a group, switches of 6 ports: 6 leaf switches are 3 groups of 2 rails.
    dims = make.cluster(text, 2 * 9).layout
    assert (dims.hosts_per_leaf, dims.leaves, dims.leaf_switches, dims.uplinks_per_leaf) == (3, 3, 6, 3)
    assert make.cluster(text, 2 * 10).layout.hosts_per_leaf == 4
