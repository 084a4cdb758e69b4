"""NVLS inside nodes and trees between them: bytes on every port, times, and where it cannot be."""

import numpy as np
import pytest

from s2sim.collectives.algorithms.levels import NvlsTree
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.bounds import duration_ps, simulate_ps
from s2sim.collectives.timing.rounds import RoundTimes, link_bytes
from s2sim.collectives.timing.timer import Timer, closed_form_s
from s2sim.errors import OptionError, TopologyError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

D = 1 << 28


def port_bytes(cluster, kind):
    demand = Demand("all_reduce", (D // 4,) * cluster.workers, 4)
    schedule = NvlsTree().schedule(demand, cluster)
    carried = link_bytes(schedule, RoundTimes(cluster))
    names = [name for name in cluster.fabric.link_names if kind in name]
    return np.array([carried[cluster.fabric.link_names.index(name)] for name in names])


@pytest.mark.parametrize(("workers", "rounds"), [(16, 1.0), (32, 2.0), (64, 2.0)])
def test_what_every_port_carries(workers, rounds):
    """Of two nodes each sends the buffer once; of more, inner nodes of a tree send and get it twice."""
    cluster = build_cluster(load_shape("rail-optimised"), workers)
    assert port_bytes(cluster, "nvlink.out") == pytest.approx(np.full(workers, D * 9 / 8))
    sent = port_bytes(cluster, ".nic")[: 2 * workers]
    assert sent.max() == pytest.approx(rounds * D / 8)


@pytest.mark.parametrize("workers", [2, 9, 16, 21, 40])
def test_it_reduces_and_all_paths_agree(workers):
    small = ("node.gpus=1", "nic.count=1")
    cluster = build_cluster(load_shape("rail-optimised", small if workers == 2 else ()), workers)
    demand = Demand("all_reduce", (1001,) * workers, 4)
    schedule = NvlsTree().schedule(demand, cluster)
    check_schedule(schedule)
    times = RoundTimes(cluster)
    assert duration_ps(schedule, cluster, times) == simulate_ps(schedule, cluster)
    assert closed_form_s(schedule, cluster) == pytest.approx(simulate_ps(schedule, cluster) / 1e12, rel=1e-6)


def test_it_is_faster_than_rings_and_trees_between_nodes_with_an_nvswitch():
    cluster = build_cluster(load_shape("rail-optimised"), 16)
    demand = Demand("all_reduce", (D // 4,) * 16, 4)
    times = {
        name: Timer(cluster, name).time(demand).duration_ps for name in ("nvls-tree", "ring", "double-binary-tree")
    }
    assert min(times, key=times.get) == "nvls-tree"


def test_where_no_switch_sums():
    with pytest.raises(OptionError, match="several nodes"):
        NvlsTree().schedule(Demand("all_reduce", (8,) * 8, 4), build_cluster(load_shape("rail-optimised"), 8))
    cluster = build_cluster(load_shape("leaf-spine"), 8)
    demand = Demand("all_reduce", (8,) * 8, 4)
    with pytest.raises(TopologyError, match="no NVSwitch can sum"):
        duration_ps(NvlsTree().schedule(demand, cluster), cluster, RoundTimes(cluster))
