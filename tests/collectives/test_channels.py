"""Channels use all interfaces of a node alike, in rings and in trees."""

import numpy as np
import pytest

from s2sim.collectives.algorithms.double_binary_tree import tree_channels
from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.checker import check_schedule
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.timer import Timer, link_bytes
from s2sim.topology.cluster import build_cluster
from s2sim.topology.files.catalogue import load_shape


@pytest.mark.parametrize("algorithm", ["ring", "double-binary-tree"])
@pytest.mark.parametrize(("topology", "workers"), [("rail-optimised", 16), ("rail-optimised", 32), ("dragonfly", 8)])
def test_every_interface_carries_as_much(algorithm, topology, workers):
    cluster = build_cluster(load_shape(topology), workers)
    demand = Demand("all_reduce", (1 << 22,) * workers, 4)
    timed = Timer(cluster, algorithm).time(demand)
    names = cluster.fabric.link_names
    carried = link_bytes(timed.schedule, timed.times)
    by_interface = [carried[at] for at, name in enumerate(names) if ".nic" in name and name.endswith(".out")]
    if algorithm == "ring" or workers == 16:
        assert by_interface == pytest.approx([np.mean(by_interface)] * len(by_interface), rel=1e-9)
    # Nodes are leaves of one tree and inside the other, or its root: interfaces of one node are alike.
    per_node = np.reshape(by_interface, (len(np.unique(cluster.node_of_rank)), -1))
    assert per_node == pytest.approx(np.broadcast_to(per_node[:, :1], per_node.shape), rel=1e-9)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_trees_of_all_channels_reduce_everything(channels):
    cluster = build_cluster(load_shape("dragonfly"), 10)
    algorithm = make_algorithm(f"double-binary-tree:channels={channels},chunks=3", "all_reduce")
    check_schedule(algorithm.schedule(Demand("all_reduce", (101,) * 10, 4), cluster))


def test_a_pair_of_trees_for_each_interface_is_faster_than_one():
    cluster = build_cluster(load_shape("rail-optimised"), 16)
    demand = Demand("all_reduce", (1 << 28,) * 16, 4)
    one, each = (Timer(cluster, f"double-binary-tree{text}").time(demand).duration_ps for text in (":channels=1", ""))
    assert each < 0.6 * one


@pytest.mark.parametrize(("nodes", "channels"), [(2, 4), (2048, 4), (1 << 14, 2), (1 << 16, 1)])
def test_trees_of_very_many_ranks_have_fewer_channels(nodes, channels):
    assert tree_channels(load_shape("dragonfly").nics_per_node, 4 * nodes) == channels
