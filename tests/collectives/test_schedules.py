"""Law 3: schedules compute what they are called, and their bytes are those of the formula."""

import dataclasses
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.algorithms.registry import ALGORITHMS, make_algorithm
from s2sim.collectives.algorithms.ring import Ring
from s2sim.collectives.algorithms.tree import DoubleBinaryTree, trees_over_nodes
from s2sim.collectives.schedules.check import check_schedule, run_on_values
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.rounds import RoundTimes, link_bytes
from s2sim.errors import OptionError, S2SimError, TopologyError
from s2sim.reducers.script import Call, ring_bytes
from s2sim.testing.collectives import check_algorithm
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape


@pytest.fixture(scope="module")
def clusters():
    shape = load_shape("fat-tree")
    return {workers: build_cluster(shape, workers) for workers in [*range(1, 34), 65]}


# What it checks of times test_registered.py checks too, on up to 13 ranks.
@pytest.mark.slow
@pytest.mark.parametrize("text", ALGORITHMS.names())
def test_every_registered_algorithm_conforms(text):
    check_algorithm(make_algorithm(text, ALGORITHMS.get(text).kinds[0]), exhaustive=False)


@pytest.mark.slow
@pytest.mark.parametrize("text", [*ALGORITHMS.names(), "ring:channels=2", "double-binary-tree:chunks=5"])
def test_values_on_many_ranks(text, clusters):
    ran = 0
    for kind in ALGORITHMS.get(text.partition(":")[0]).kinds:
        for ranks in (14, 15, 16, 17, 33, 65):
            demand = Demand(kind, (0 if kind == "barrier" else 101,) * ranks, 4)
            with suppress(OptionError, TopologyError):
                check_schedule(make_algorithm(text, kind).schedule(demand, clusters[ranks]))
                ran += 1
    assert ran


@given(st.integers(2, 20), st.integers(0, 300), st.integers(1, 9))
def test_double_binary_tree_with_any_chunks(clusters, workers, elements, chunks):
    demand = Demand("all_reduce", (elements,) * workers, 4)
    schedule = DoubleBinaryTree(chunks=chunks).schedule(demand, clusters[workers])
    check_schedule(schedule)
    # Up once and down once over each of P - 1 edges of two trees with half of the buffer each.
    assert schedule.traffic()[0].sum() == 2 * (workers - 1) * demand.buffer_bytes


@given(st.integers(1, 20), st.integers(0, 300), st.integers(1, 9), st.booleans())
def test_ring_with_any_channels(clusters, workers, elements, channels, gather):
    kind = "all_gather" if gather else "all_reduce"
    demand = Demand(kind, tuple(range(workers)) if gather else (elements,) * workers, 4)
    schedule = Ring(channels=channels).schedule(demand, clusters[workers])
    check_schedule(schedule)
    assert schedule.traffic()[0].sum() == (1 if gather else 2) * (workers - 1) * demand.buffer_bytes


def test_the_checker_finds_a_wrong_schedule(clusters):
    schedule = Ring().schedule(Demand("all_reduce", (8,) * 4, 4), clusters[4])
    stage = dataclasses.replace(schedule.stage, steps=schedule.stage.steps[:-1])
    shortened = dataclasses.replace(schedule, algorithm="short ring", stage=stage)
    with pytest.raises(S2SimError, match="wrong all_reduce"):
        check_schedule(shortened)


def test_values_move_as_in_the_textbook_ring(clusters):
    schedule = Ring().schedule(Demand("all_gather", (1, 2, 0), 4), clusters[3])
    buffers = np.array([[7, 0, 0], [0, 8, 9], [0, 0, 0]])
    assert run_on_values(schedule, buffers).tolist() == [[7, 8, 9]] * 3


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 33, 65])
def test_ring_traffic_is_the_pinned_formula(workers, clusters):
    for elements in (0, 1, 10, 1000, 4099):
        demand = Demand("all_reduce", (elements,) * workers, 4)
        traffic = Ring().schedule(demand, clusters[workers]).traffic()
        call = Call("all_reduce", "sum", "float32", 4, demand.elements, False, "x")
        np.testing.assert_array_equal(traffic, ring_bytes(call))
        if workers > 1:
            assert traffic[0].sum() == 2 * (workers - 1) * elements * 4


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12))
def test_ring_all_gather_traffic_with_unequal_sizes(clusters, sizes):
    demand = Demand("all_gather", tuple(sizes), 4)
    sent, received = Ring().schedule(demand, clusters[len(sizes)]).traffic()
    call = Call("all_gather", "gather", "float32", 4, demand.elements, False, "x")
    np.testing.assert_array_equal(sent, ring_bytes(call)[0])
    np.testing.assert_array_equal(received, ring_bytes(call)[1])
    if len(sizes) > 1:
        assert received.tolist() == [4 * (sum(sizes) - own) for own in sizes]


def test_trees_use_every_port_both_ways():
    """A rank with children in one tree is a leaf of the other, but for the odd rank that has none."""
    for workers in range(2, 66):
        first, second = trees_over_nodes(np.arange(workers))
        inner = [{int(p) for p in tree if p >= 0} for tree in (first, second)]
        assert not inner[0] & inner[1]
        for tree in (first, second):
            assert (tree < 0).sum() == 1
            assert np.bincount(tree[tree >= 0], minlength=workers).max() <= 2


@pytest.mark.parametrize(("workers", "height"), [(2, 1), (3, 1), (4, 2), (8, 3), (9, 3), (16, 4), (17, 4)])
@pytest.mark.parametrize("chunks", [1, 5])
def test_chunks_follow_each_other_up_and_down_the_trees(workers, height, chunks, make_cluster, switch_fabric):
    """K + 2h - 1 rounds: a chunk leaves the deepest member in each of K rounds, and goes up and down h edges."""
    schedule = DoubleBinaryTree(chunks=chunks).schedule(
        Demand("all_reduce", (100,) * workers, 4), make_cluster(workers, switch_fabric)
    )
    assert schedule.rounds == chunks + 2 * height - 1


def test_channels_cross_an_interface_each_where_gpus_do_not_divide_among_them(make_cluster, switch_fabric):
    nodes = {"node": "gpus = 4", "extra": '[nvlink]\nrate = "1TB/s"', "nic": 'count = 3\nrate = "50GiB/s"'}
    cluster = make_cluster(8, switch_fabric, **nodes)
    schedule = Ring().schedule(Demand("all_reduce", (2400,) * 8, 4), cluster)
    for way in ("in", "out"):
        carried = link_bytes(schedule, RoundTimes(cluster))[cluster.fabric.blocks[f"nic.{way}"].part]
        assert carried.tolist() == pytest.approx([2 * 7 / 8 * 9600 / 3] * 6)


def test_refusals():
    with pytest.raises(OptionError, match="does not run all_gather; these do: ring"):
        make_algorithm("double-binary-tree", "all_gather")
    with pytest.raises(S2SimError, match="did you mean 'ring'"):
        make_algorithm("rnig", "all_reduce")
    with pytest.raises(OptionError, match=r"no option 'chunk'.*did you mean 'chunks'"):
        make_algorithm("double-binary-tree:chunk=3", "all_reduce")
    with pytest.raises(OptionError, match="at least 1"):
        make_algorithm("double-binary-tree:chunks=0", "all_reduce")
    with pytest.raises(S2SimError, match="same number of elements"):
        Demand("all_reduce", (1, 2), 4)
