"""The tree of an in-network reduction against a walk from every rank to one root."""

import numpy as np
import pytest

from s2sim.errors import TopologyError

NVLINK = '[nvlink]\nrate = "240GB/s"\nlatency = "300ns"'
PCIE = '[pcie]\nrate = "12GB/s"\nlatency = "500ns"'


def cases(make):
    switch, rails = 'kind = "single-switch"', 'kind = "rail-optimised"\nhosts_per_leaf = 2'
    # Text, workers, links up, latency of the way up in picoseconds. With an NVSwitch, each interface has its own tree.
    yield make.tree(4, 2), 16, 16 + 4, 500_000
    yield make.tree(4, 2), 4, 4, 250_000
    yield make.tree(2, 3, pod=2, core=2), 15, 15 + 8 + 4, 750_000
    yield make.tree(2, 3, pod=2, core=2, routing="spray"), 7, 7 + 4 + 2, 750_000
    yield make.tree(2, 2, routing="ecmp", gpus=4, node=NVLINK), 16, 16 + 4 + 2, 800_000
    yield make.tree(2, 2, gpus=2, node=NVLINK, nic="count = 2"), 8, 8 + 8 + 2, 800_000
    yield make.tree(2, 2, gpus=2, node=f"{NVLINK}\n{PCIE}"), 8, 8 + 4 + 4 + 2, 1_300_000
    yield make.toml(switch, gpus=2, node=PCIE), 5, 5 + 3, 750_000
    # The last of 5 nodes has GPUs on 2 of its 4 rails, of which all 3 groups have a leaf.
    yield make.toml(rails, gpus=4, node=NVLINK, nic="count = 4"), 18, 18 + 10 + 6, 800_000
    yield make.tree(2, 2, gpus=4, node=NVLINK), 3, 3, 300_000


def links_of(fabric, key):
    return np.arange(len(fabric))[fabric.blocks[key].part]


def weights_of(cluster, key):
    routes = cluster.reduction_tree()
    if key not in cluster.fabric.blocks:
        return np.array([])
    return routes.weights[np.isin(routes.links, links_of(cluster.fabric, key))]


@pytest.mark.parametrize("number", range(10))
def test_every_rank_has_one_way_up_to_one_root_and_down_again(make, number):
    text, workers, count, way_ps = list(cases(make))[number]
    cluster = make.cluster(text, workers, placement="round-robin")
    fabric, routes = cluster.fabric, cluster.reduction_tree()
    assert routes.offsets.tolist() == [0, 2 * count]
    assert len(set(routes.links.tolist())) == 2 * count
    # An NVSwitch reads every part of all, and of the one that asks for it too.
    held = np.bincount(cluster.node_of_rank)
    nvlink, nic = weights_of(cluster, "nvlink.out"), weights_of(cluster, "nic.out")
    if len(nvlink):
        assert nvlink == pytest.approx(np.repeat((held + 1) / held, held))
    if len(nvlink) and cluster.layout.nodes > 1:
        assert nic == pytest.approx(cluster.layout.nodes / len(nic))
    else:
        assert np.all(nic == 1)
    assert routes.latency_ps.tolist() == [2 * way_ps]
    outwards = np.concatenate([links_of(fabric, key) for key in fabric.blocks if key.endswith((".out", ".up"))])
    leads_up = np.isin(routes.links, outwards)
    up, down = routes.links[leads_up], routes.links[~leads_up]
    assert len(up) == count
    assert sorted(zip(fabric.head[down], fabric.tail[down], strict=True)) == sorted(
        zip(fabric.tail[up], fabric.head[up], strict=True)
    )
    # Whatever leads up ends at one switch.
    assert len(set(fabric.head[up]) - set(fabric.tail[up])) == 1
    for gpu in cluster.gpu_of_rank.tolist():
        assert {gpu, fabric.gpus + gpu // cluster.shape.gpus_per_node} & set(fabric.tail[up].tolist())


def test_rails_meet_at_one_spine(make):
    cluster = make.cluster(make.toml('kind = "rail-optimised"', gpus=2, node=NVLINK, nic="count = 2"), 12)
    routes = cluster.reduction_tree()
    classes = np.array(cluster.fabric.class_names)[cluster.fabric.link_class[routes.links]]
    assert np.count_nonzero(classes == "nic") == 24
    assert len(set(cluster.fabric.head[routes.links[classes == "leaf-up"]])) == 1
    assert np.count_nonzero(classes == "leaf-up") == cluster.layout.leaf_switches


@pytest.mark.parametrize("kind", ["ring", "torus", "dragonfly"])
def test_without_a_switch_above_all_there_is_none(make, kind):
    with pytest.raises(TopologyError, match=f"a {kind}, where no switch is above all ranks: use a fat-tree"):
        make.cluster(make.toml(f'kind = "{kind}"'), 8).reduction_tree()
    inside = make.cluster(make.toml(f'kind = "{kind}"', gpus=8, node=NVLINK), 8).reduction_tree()
    assert len(inside.links) == 16


def test_too_few_to_reduce(make):
    with pytest.raises(TopologyError, match="of 1 rank on mine"):
        make.cluster(make.tree(2, 2), 1).reduction_tree()
    with pytest.raises(TopologyError, match=r"inside one node without \[nvlink\]"):
        make.cluster(make.tree(2, 2, gpus=4, node=PCIE), 4).reduction_tree()
