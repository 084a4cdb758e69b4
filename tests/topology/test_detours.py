"""Other ways after failures: they avoid what is dead, are as short as can be, and are refused where there are none."""

from collections import deque

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from s2sim.errors import TopologyError
from s2sim.topology.cluster import build_cluster, fail_links, failed_links, scale_rates
from s2sim.topology.links import find_links
from s2sim.topology.read_file import load_shape

SHAPES = {
    "fat-tree": ["node.gpus=1", "fabric.hosts_per_leaf=2", "fabric.uplinks_per_leaf=3"],
    "three levels": ["node.gpus=1", "fabric.levels=3", "fabric.hosts_per_leaf=2", "fabric.leaves_per_pod=2"],
    "torus": [],
    "dragonfly": [],
    "rail-optimised": [],
}


def dead_links(cluster, *patterns):
    dead = np.zeros(len(cluster.fabric), bool)
    for pattern in patterns:
        dead[find_links(cluster.fabric, pattern, "it")] = True
    return dead


def without(cluster, *patterns):
    return fail_links(cluster, dead_links(cluster, *patterns), " and ".join(patterns) + " failed")


def names(cluster, source, target):
    return [cluster.fabric.link_names[link] for link in cluster.routes([source], [target]).links]


def balance(cluster, routes):
    """Return what leaves each vertex less what enters it, of one route."""
    links, weights = routes.links, routes.weights
    vertices = int(cluster.fabric.head.max()) + 1
    out = np.bincount(cluster.fabric.tail[links], weights, vertices)
    return out - np.bincount(cluster.fabric.head[links], weights, vertices)


def fewest_links(cluster, healthy, usable):
    """Return how many usable links lead from the first switch of a healthy route to its last, or None; naively."""
    fabric = cluster.fabric
    inner = healthy.links[cluster.layout.switch_links(fabric)[healthy.links]]
    start, end = int(fabric.tail[inner[0]]), int(fabric.head[inner[-1]])
    seen, queue = {start: 0}, deque([start])
    while queue:
        vertex = queue.popleft()
        for head in fabric.head[usable & (fabric.tail == vertex)].tolist():
            if head not in seen:
                seen[head] = seen[vertex] + 1
                queue.append(head)
    return seen.get(end)


@pytest.mark.parametrize("routing", ["d-mod-k", "ecmp"])
def test_another_up_port(make, routing):
    healthy = make.cluster(make.tree(2, 2, routing=routing), 4)
    cluster = without(healthy, "leaf0.up1")
    for target in (2, 3):
        assert names(cluster, 0, target)[1:3] == ["leaf0.up0", "leaf1.down0"]
    assert names(cluster, 2, 0) == names(healthy, 2, 0)


def test_spray_takes_the_ports_that_are_left(make):
    healthy = make.cluster(make.tree(2, 3, routing="spray"), 4)
    links, weights = make.route(without(healthy, "leaf0.up1").routes([0], [2]), 0)
    assert [healthy.fabric.link_names[link] for link in links] == [
        "node0.nic0.out",
        "leaf0.up0",
        "leaf0.up2",
        "leaf1.down0",
        "leaf1.down2",
        "node2.nic0.in",
    ]
    assert weights.tolist() == [1, 0.5, 0.5, 0.5, 0.5, 1]


def test_the_other_way_round_a_ring_takes_longer(make):
    healthy = make.cluster(make.toml('kind = "ring"'), 4)
    cluster = without(healthy, names(healthy, 0, 1)[1])
    assert len(names(cluster, 0, 1)) == len(names(healthy, 0, 1)) + 2
    extra_ps = cluster.routes([0], [1]).latency_ps - healthy.routes([0], [1]).latency_ps
    assert extra_ps.tolist() == [2 * 250_000]


def test_pairs_of_the_same_switches_spread(make):
    healthy = make.cluster(make.tree(16, 4), 32)
    cluster = without(healthy, "leaf0.up3")
    taken = {names(cluster, source, 16 + 4 * source % 16 + 3)[1] for source in range(16)}
    assert taken == {"leaf0.up0", "leaf0.up1", "leaf0.up2"}


def test_what_has_no_other_way_is_named(make):
    healthy = make.cluster(make.tree(2, 2), 4)
    cluster = without(healthy, "node1.nic0.out")
    with pytest.raises(TopologyError, match=r"rank 1 cannot reach rank 2 after node1.nic0.out failed: no other way"):
        cluster.routes([0, 1], [1, 2])
    assert len(cluster.routes([0, 0], [1, 2]).latency_ps) == 2
    cut_off = without(healthy, "leaf0.up*")
    with pytest.raises(TopologyError, match="rank 0 cannot reach rank 3"):
        cut_off.routes([0], [3])


def test_a_reduction_tree_has_no_other_way(make):
    healthy = make.cluster(make.tree(2, 2), 4)
    assert len(without(healthy, "leaf0.up1").reduction_tree().links) == len(healthy.reduction_tree().links)
    with pytest.raises(TopologyError, match=r"switches cannot reduce after leaf0\.up0 failed"):
        without(healthy, "leaf0.up0").reduction_tree()


def test_slow_links_and_dead_ones_compose(make):
    healthy = make.cluster(make.tree(2, 2), 4)
    factors = np.where(dead_links(healthy, "leaf*.up0"), 0.5, 1.0)
    cluster = without(scale_rates(healthy, factors), "leaf0.up1")
    rates = cluster.routes([0], [3]).narrowest(cluster.fabric.rate_Bps)
    assert rates.tolist() == [make.rate_Bps / 2]
    assert [*failed_links(cluster)[1]] == ["leaf0.up1 failed"]
    assert failed_links(healthy)[1] == ()


@pytest.mark.slow
@given(st.sampled_from(sorted(SHAPES)), st.sampled_from(["", "ecmp", "spray"]), st.data())
def test_ways_around_failures_are_whole_and_shortest(name, routing, data):
    kind = "fat-tree" if name == "three levels" else name
    tree = kind in ("fat-tree", "rail-optimised")
    overrides = [*SHAPES[name], *([f"routing={routing}"] if routing and tree else [])]
    healthy = build_cluster(load_shape(kind, overrides), 24, seed=data.draw(st.integers(0, 3)))
    between = healthy.layout.switch_links(healthy.fabric)
    numbers = np.flatnonzero(between)
    dead = np.zeros(len(healthy.fabric), bool)
    dead[data.draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=len(numbers) // 4))] = True
    cluster = fail_links(healthy, dead, "some links failed")
    source, target = np.divmod(np.arange(24 * 24), 24)
    all_routes = healthy.routes(source[source != target], target[source != target])
    hit = np.flatnonzero(np.logical_or.reduceat(dead[all_routes.links], all_routes.offsets[:-1]))
    assume(len(hit))
    chosen = data.draw(st.sampled_from(hit))
    one, other = source[source != target][chosen], target[source != target][chosen]
    before = all_routes.take(np.array([chosen]))
    fewest = fewest_links(healthy, before, between & ~dead)
    if fewest is None:
        with pytest.raises(TopologyError, match=f"rank {one} cannot reach rank {other} after some links failed"):
            cluster.routes([one], [other])
        return
    after = cluster.routes([one], [other])
    assert not dead[after.links].any()
    np.testing.assert_allclose(balance(cluster, after), balance(cluster, before), atol=1e-12)
    assert after.weights[between[after.links]].sum() == pytest.approx(fewest)
