"""Hierarchical all-reduce: values, bytes, closed form, pipelining, nodes of unequal size, scale."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.algorithms.levels import HierarchicalAllReduce
from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.bounds import simulate_ps
from s2sim.collectives.timing.rounds import RoundTimes, link_bytes
from s2sim.collectives.timing.timer import Timer, closed_form_s
from s2sim.errors import ContendedError, OptionError, S2SimError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

PS = 1e12
SCATTERED = ("round-robin", "random")
NIC_BPS, NVLINK_BPS = 12.5e9, 240e9
# Two links of 200 ns; two interfaces of 350 ns and their cables of 150 ns each.
INSIDE_S, ACROSS_S = 0.4e-6, 1.0e-6


def nodes_of(gpus, ranks, placement="linear", nics=None):
    """Build nodes of the shipped fat tree under one leaf, each GPU with an interface of its own."""
    overrides = [f"node.gpus={gpus}", f"nic.count={nics or gpus}", "fabric.hosts_per_leaf=16"]
    return build_cluster(load_shape("fat-tree", overrides), ranks, placement=placement)


@pytest.mark.parametrize("mode", ["scatter", "leader"])
@pytest.mark.parametrize("placement", ["linear", *(pytest.param(each, marks=pytest.mark.slow) for each in SCATTERED)])
@pytest.mark.parametrize("gpus", [1, 4, 33])
def test_every_number_of_ranks(mode, placement, gpus):
    for ranks in range(1, 34):
        cluster = nodes_of(gpus, ranks, placement)
        demand = Demand("all_reduce", (37,) * ranks, 4)
        if mode == "scatter" and ranks > gpus and ranks % gpus:
            with pytest.raises(OptionError, match=rf"found {ranks % gpus} to {gpus}: use mode=leader"):
                HierarchicalAllReduce(mode=mode).schedule(demand, cluster)
            continue
        schedule = HierarchicalAllReduce(mode=mode).schedule(demand, cluster)
        check_schedule(schedule)
        assert schedule.traffic()[0].sum() == 2 * (ranks - 1) * demand.buffer_bytes


@given(
    nodes=st.integers(1, 5),
    gpus=st.integers(1, 5),
    placement=st.sampled_from(["linear", "round-robin", "random"]),
    mode=st.sampled_from(["scatter", "leader"]),
    local=st.sampled_from([None, "direct", "halving-doubling"]),
    across=st.sampled_from(["ring", "double-binary-tree", "recursive-doubling"]),
    chunks=st.integers(1, 4),
    elements=st.sampled_from([0, 1, 10, 333]),
)
def test_any_parts(nodes, gpus, placement, mode, local, across, chunks, elements):
    cluster = nodes_of(gpus, nodes * gpus, placement)
    demand = Demand("all_reduce", (elements,) * cluster.workers, 4)
    algorithm = HierarchicalAllReduce(None if mode == "leader" else local, across, chunks, mode)
    try:
        schedule = algorithm.schedule(demand, cluster)
    except S2SimError as error:
        # Not every part runs every number of ranks; any other refusal is a failure.
        if "power of two" in str(error):
            return
        raise
    check_schedule(schedule)
    assert make_algorithm(schedule.algorithm, "all_reduce") == algorithm
    assert Timer(cluster, schedule.algorithm).time(demand).duration_ps == simulate_ps(schedule, cluster)


@pytest.mark.parametrize(("nodes", "gpus"), [(1, 8), (2, 1), (5, 1), (2, 4), (4, 2), (3, 5)])
@pytest.mark.parametrize("placement", ["linear", "round-robin", "random"])
def test_closed_form(nodes, gpus, placement):
    ranks = nodes * gpus
    cluster = nodes_of(gpus, ranks, placement)
    demand = Demand("all_reduce", (1_000_000,) * ranks, 4)
    timed = Timer(cluster, "hierarchical").time(demand)
    inside_s = 2 * (gpus - 1) * (INSIDE_S + 4e6 / gpus / NVLINK_BPS)
    across_s = 2 * (nodes - 1) * (ACROSS_S + 4e6 / ranks / NIC_BPS)
    assert timed.duration_ps / PS == pytest.approx(inside_s + across_s, rel=1e-6)
    assert closed_form_s(timed.schedule, cluster) == pytest.approx(inside_s + across_s, rel=1e-12)


@pytest.mark.parametrize("text", ["hierarchical", "hierarchical:mode=leader"])
def test_nodes_exchange_every_byte_once(text):
    cluster = nodes_of(4, 16)
    demand = Demand("all_reduce", (1_000_000,) * 16, 4)
    schedule = make_algorithm(text, "all_reduce").schedule(demand, cluster)
    out = cluster.fabric.blocks["nic.out"]
    carried = link_bytes(schedule, RoundTimes(cluster))[out.start : out.start + 16].reshape(4, 4)
    np.testing.assert_allclose(carried.sum(axis=1), 2 * 3 / 4 * 4e6)
    busy = (carried > 0).sum(axis=1)
    assert (busy == (4 if text == "hierarchical" else 1)).all()


@pytest.mark.parametrize("chunks", [2, 3, 8])
@pytest.mark.parametrize("nvlink", ["240GB/s", "20GB/s"])
def test_a_pipeline_keeps_the_slower_part_busy(chunks, nvlink):
    """One chunk at a time in nodes, in the order scatter 0, scatter 1, gather 0, scatter 2, ..., and one between."""
    overrides = ["node.gpus=4", "nic.count=4", "fabric.hosts_per_leaf=16", f"nvlink.rate={nvlink}"]
    cluster = build_cluster(load_shape("fat-tree", overrides), 16)
    demand = Demand("all_reduce", (12_000_000,) * 16, 4)
    rate_Bps = float(nvlink.removesuffix("GB/s")) * 1e9
    inside_s = 3 * (INSIDE_S + 48e6 / chunks / 4 / rate_Bps)
    across_s = 6 * (ACROSS_S + 48e6 / chunks / 16 / NIC_BPS)
    reduced = [0.0] * chunks
    local_s = across_free_s = 0.0
    for turn in range(chunks + 1):
        if turn < chunks:
            local_s += inside_s
            across_free_s = reduced[turn] = max(local_s, across_free_s) + across_s
        if turn > 0:
            local_s = max(local_s, reduced[turn - 1]) + inside_s
    timed = Timer(cluster, f"hierarchical:chunks={chunks}").time(demand)
    assert timed.duration_ps / PS == pytest.approx(local_s, rel=1e-6)
    assert timed.duration_ps == simulate_ps(timed.schedule, cluster)
    assert timed.duration_ps < Timer(cluster, "hierarchical").time(demand).duration_ps
    with pytest.raises(ContendedError, match="has no closed form"):
        closed_form_s(timed.schedule, cluster)


def test_leaders_of_unequal_nodes():
    """Nodes of 4, 4 and 3: two rounds of D up, a ring of three between leaders, two rounds down."""
    cluster = nodes_of(4, 11)
    demand = Demand("all_reduce", (750_000,) * 11, 4)
    timed = Timer(cluster, "hierarchical:mode=leader").time(demand)
    expected = 4 * (INSIDE_S + 3e6 / NVLINK_BPS) + 4 * (ACROSS_S + 1e6 / NIC_BPS)
    assert timed.duration_ps / PS == pytest.approx(expected, rel=1e-6)
    with pytest.raises(ContendedError, match="has no closed form"):
        closed_form_s(timed.schedule, cluster)


def test_a_shared_interface_has_no_closed_form():
    cluster = nodes_of(4, 16, nics=1)
    timed = Timer(cluster, "hierarchical").time(Demand("all_reduce", (1000,) * 16, 4))
    with pytest.raises(ContendedError, match="share link directions"):
        closed_form_s(timed.schedule, cluster)


@pytest.mark.slow
def test_a_hundred_thousand_ranks():
    """131,072 GPUs, 1 GiB: four patterns, however many rounds."""
    shape = load_shape("fat-tree", ["fabric.levels=3", "node.gpus=8", "nic.count=8"])
    ranks, nodes, size = 131_072, 16_384, 2**30
    cluster = build_cluster(shape, ranks)
    timed = Timer(cluster, "hierarchical").time(Demand("all_reduce", (size // 4,) * ranks, 4))
    assert len(timed.schedule.steps) == 4
    # The longest way crosses three levels: four links of the fabric more.
    longest_s = ACROSS_S + 4 * 150e-9
    expected = 14 * (INSIDE_S + size / 8 / NVLINK_BPS) + 2 * (nodes - 1) * (longest_s + size / ranks / NIC_BPS)
    assert timed.duration_ps / PS == pytest.approx(expected, rel=1e-6)
    assert closed_form_s(timed.schedule, cluster) == pytest.approx(expected, rel=1e-12)
    assert timed.schedule.traffic()[0].tolist() == [2 * (ranks - 1) * size // ranks] * ranks


def test_refusals():
    with pytest.raises(OptionError, match="mode=tree is not one of scatter, leader"):
        HierarchicalAllReduce(mode="tree")
    with pytest.raises(OptionError, match="chunks=0 must be at least 1"):
        HierarchicalAllReduce(chunks=0)
    with pytest.raises(OptionError, match="local=direct has no effect with mode=leader"):
        HierarchicalAllReduce(local="direct", mode="leader")
    with pytest.raises(S2SimError, match="did you mean 'ring'"):
        HierarchicalAllReduce(across="rnig")
    with pytest.raises(OptionError, match="double-binary-tree does not run reduce_scatter"):
        HierarchicalAllReduce(local="double-binary-tree")
    with pytest.raises(OptionError, match=r"across=torus cannot run over several groups at once; these can: .*ring"):
        HierarchicalAllReduce(across="torus")


def test_a_pipeline_whose_parts_share_links():
    """Without NVLink all parts go over PCIe, so that only a simulation of all of it tells."""
    cluster = build_cluster(load_shape("tcp-10g", ["node.gpus=4"]), 8)
    demand = Demand("all_reduce", (1_000_000,) * 8, 4)
    timed = Timer(cluster, "hierarchical:chunks=3").time(demand)
    assert timed.duration_ps == simulate_ps(timed.schedule, cluster)
    check_schedule(HierarchicalAllReduce(chunks=3).schedule(Demand("all_reduce", (100,) * 8, 4), cluster))
