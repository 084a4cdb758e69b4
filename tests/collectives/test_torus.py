"""Torus all-reduce: values, bytes, closed form, parts side by side, sizes."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.algorithms.ring import Torus
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hop, Hops
from s2sim.collectives.timing.bounds import simulate_ps
from s2sim.collectives.timing.timer import Timer, closed_form_s
from s2sim.errors import ContendedError, OptionError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

PS = 1e12
RATE_BPS = 50 * 2**30
SPLITS = ["off", "dimensions", "both-ways"]


@pytest.fixture(scope="module")
def clusters():
    return {ranks: build_cluster(load_shape("single-switch"), ranks) for ranks in range(1, 65)}


@pytest.fixture
def make_torus(make_cluster):
    """Build a torus; ports of nodes carry what all links of a node do."""

    def build(size, *, placement="linear", nic="1TB/s", workers=None):
        fabric = f'kind = "torus"\nsize = "{size}"\n[fabric.link]\nrate = "50GiB/s"\nlatency = "500ns"'
        workers = workers or prod(map(int, size.split("x")))
        return make_cluster(workers, fabric, placement=placement, nic=f'rate = "{nic}"')

    return build


@pytest.mark.parametrize("split", SPLITS)
def test_every_number_of_ranks(clusters, split):
    for ranks in range(1, 34):
        demand = Demand("all_reduce", (37,) * ranks, 4)
        if split == "dimensions" and ranks > 1 and all(ranks % side for side in range(2, ranks)):
            with pytest.raises(OptionError, match=f"no effect on size=1x{ranks}, which has one"):
                Torus(split=split).schedule(demand, clusters[ranks])
            continue
        schedule = Torus(split=split).schedule(demand, clusters[ranks])
        check_schedule(schedule)
        assert schedule.traffic()[0].sum() == 2 * (ranks - 1) * demand.buffer_bytes


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    split=st.sampled_from(["off", "both-ways"]),
    elements=st.sampled_from([0, 1, 10, 1000]),
    topology=st.sampled_from(["single-switch", "leaf-spine"]),
    placement=st.sampled_from(["linear", "random"]),
)
def test_any_size(sizes, split, elements, topology, placement):
    ranks = prod(sizes)
    overrides = ["node.gpus=1"] if topology == "leaf-spine" else []
    cluster = build_cluster(load_shape(topology, overrides), ranks, placement=placement)
    demand = Demand("all_reduce", (elements,) * ranks, 4)
    algorithm = Torus("x".join(map(str, sizes)), split)
    schedule = algorithm.schedule(demand, cluster)
    check_schedule(schedule)
    assert make_algorithm(schedule.algorithm, "all_reduce") == algorithm
    assert schedule.traffic()[0].sum() == 2 * (ranks - 1) * demand.buffer_bytes
    assert Timer(cluster, schedule.algorithm).time(demand).duration_ps == simulate_ps(schedule, cluster)


@pytest.mark.parametrize("sizes", [(12,), (3, 4), (4, 3), (2, 3, 2), (4, 4, 4)])
@pytest.mark.parametrize("fabric", ["switch", "torus"])
def test_closed_form(sizes, fabric, make_cluster, make_torus, switch_fabric):
    """The sum of 2(d_i - 1)(L + D/(d_1...d_i·B)), the last dimension first."""
    size = "x".join(map(str, sizes))
    cluster = make_cluster(prod(sizes), switch_fabric) if fabric == "switch" else make_torus(size)
    latency_s = 1e-6 if fabric == "switch" else 0.5e-6
    demand = Demand("all_reduce", (1_440_000,) * prod(sizes), 4)
    timed = Timer(cluster, f"torus:size={size}").time(demand)
    expected, share = 0.0, demand.buffer_bytes
    for side in reversed(sizes):
        share /= side
        expected += 2 * (side - 1) * (latency_s + share / RATE_BPS)
    assert timed.duration_ps / PS == pytest.approx(expected, rel=1e-6)
    assert closed_form_s(timed.schedule, cluster) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("size", ["4x4", "4x4x2", "2x2x8"])
def test_closed_form_with_nodes_of_two(size):
    """Inside a node first, then between nodes, or both at once along a dimension that crosses nodes."""
    overrides = ["node.gpus=2", "nic.count=2", "fabric.hosts_per_leaf=16"]
    cluster = build_cluster(load_shape("fat-tree", overrides), 32)
    demand = Demand("all_reduce", (800_000,) * 32, 4)
    timed = Timer(cluster, f"torus:size={size}").time(demand)
    if size == "2x2x8":
        with pytest.raises(ContendedError, match="ways differ"):
            closed_form_s(timed.schedule, cluster)
        return
    assert timed.schedule.algorithm == "torus:size=4x4x2"
    across_s = sum(2 * 3 * (1.0e-6 + 3.2e6 / parts / 12.5e9) for parts in (8, 32))
    expected = 2 * (0.4e-6 + 1.6e6 / 240e9) + across_s
    assert closed_form_s(timed.schedule, cluster) == pytest.approx(expected, rel=1e-12)
    assert timed.duration_ps / PS == pytest.approx(expected, rel=1e-6)


def test_one_dimension_is_the_ring_over_nodes():
    cluster = build_cluster(load_shape("fat-tree", ["node.gpus=2", "nic.count=2", "fabric.hosts_per_leaf=16"]), 12)
    demand = Demand("all_reduce", (120_000,) * 12, 4)
    timed = Timer(cluster, "torus:size=12").time(demand)
    assert timed.duration_ps == Timer(cluster, "ring:channels=1").time(demand).duration_ps
    assert closed_form_s(timed.schedule, cluster) == pytest.approx(timed.duration_ps / PS, rel=1e-6)


@pytest.mark.parametrize(("split", "share"), [("off", 1), ("dimensions", 2), ("both-ways", 4)])
def test_parts_side_by_side_use_all_links(split, share, make_torus):
    """On a torus of links of their own each part takes as long as if it were alone."""
    cluster = make_torus("4x4")
    demand = Demand("all_reduce", (16_000_000,) * 16, 4)
    expected = 2 * (3 * 2 * 0.5e-6 + (3 / 4 + 3 / 16) * 64e6 / share / RATE_BPS)
    assert Timer(cluster, f"torus:split={split}").time(demand).duration_ps / PS == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("placement", ["round-robin", "random"])
def test_neighbours_are_neighbours_wherever_ranks_are(placement, make_torus):
    demand = Demand("all_reduce", (16_000,) * 24, 4)
    times = [Timer(make_torus("2x4x3", placement=each), "torus").time(demand) for each in ("linear", placement)]
    assert times[0].duration_ps == times[1].duration_ps
    assert times[0].schedule.algorithm == times[1].schedule.algorithm == "torus:size=2x4x3"


@pytest.mark.parametrize(
    ("gpus", "ranks", "size", "found"),
    [(1, 36, None, "6x6"), (1, 7, None, "1x7"), (1, 24, None, "4x6"), (4, 24, None, "2x3x4"), (4, 24, "6", "6x4")],
)
def test_sizes(gpus, ranks, size, found):
    cluster = build_cluster(load_shape("fat-tree", [f"node.gpus={gpus}"]), ranks)
    demand = Demand("all_reduce", (100,) * ranks, 4)
    assert Torus(size).schedule(demand, cluster).algorithm == f"torus:size={found}"


def test_refusals(clusters, make_torus):
    def run(cluster, size=None):
        Torus(size).schedule(Demand("all_reduce", (8,) * cluster.workers, 4), cluster)

    for size in ("4x", "0x4", "4*4", "x4", "4x-1"):
        with pytest.raises(OptionError, match="must be whole numbers with x between them"):
            Torus(size)
    with pytest.raises(OptionError, match="split=yes is not one of off, dimensions, both-ways"):
        Torus(split="yes")
    with pytest.raises(OptionError, match="size=3x4 needs 12 ranks or nodes, found 16 ranks on 16"):
        run(clusters[16], "3x4")
    with pytest.raises(OptionError, match="found 1 to 4: fill the nodes"):
        run(build_cluster(load_shape("fat-tree"), 5))
    with pytest.raises(OptionError, match="9 nodes do not fill the 2x5 places"):
        run(make_torus("2x5", workers=9))
    run(make_torus("2x5", workers=9), "3x3")


def test_no_closed_form_without_a_size_or_with_parts():
    demand, hops = Demand("all_reduce", (8,) * 4, 4), Hops((), (Hop(1e-6, 1e9),), 4)
    for algorithm in (Torus(), Torus("2x2", "both-ways")):
        with pytest.raises(ContendedError, match="for a size in ranks without split"):
            algorithm.closed_form_s(demand, hops)
    with pytest.raises(OptionError, match="size=2x3 is not of 4 ranks"):
        Torus("2x3").closed_form_s(demand, hops)
