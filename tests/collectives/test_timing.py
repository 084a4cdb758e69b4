"""Laws 1, 2 and 4: fluid against closed forms, fast paths against the plain path, nothing under its bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.algorithms.ring import Ring
from s2sim.collectives.algorithms.tree import DoubleBinaryTree
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.bounds import duration_floor_ps, duration_ps, lower_bound, simulate_ps
from s2sim.collectives.timing.library_profile import apply_overheads
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.collectives.timing.timer import Timer, closed_form_s
from s2sim.errors import ContendedError
from s2sim.libraries.lowering import choose_library
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

RATE_BPS = 50 * 2**30
SIZE = 104_857_600
PS = 1e12


def ring_of(cluster, kind="all_reduce", elements=SIZE // 4):
    return Ring().schedule(Demand(kind, (elements,) * cluster.workers, 4), cluster)


@pytest.mark.parametrize("nics", [1, 2, 4, 8])
def test_a_ring_uses_every_network_interface(nics, make_cluster, switch_fabric):
    """Nodes of 8 GPUs: the time between nodes falls with their interfaces, and stays above the bound."""
    cluster = make_cluster(
        32, switch_fabric, node="gpus = 8", extra='[nvlink]\nrate = "100TB/s"', nic=f'count = {nics}\nrate = "50GiB/s"'
    )
    demand = Demand("all_reduce", (SIZE // 4,) * 32, 4)
    duration = Timer(cluster, "ring").time(demand).duration_ps / PS
    assert duration == pytest.approx(2 * 31 * (1e-6 + SIZE / 32 / nics / RATE_BPS), rel=1e-6)
    bound = lower_bound([demand], cluster.cuts()).seconds
    assert bound <= duration
    assert bound == pytest.approx(2 * 3 / 4 * SIZE / nics / RATE_BPS, rel=1e-6)


def test_a_closed_form_refuses_a_contended_fabric(make_cluster, switch_fabric):
    cluster = make_cluster(8, switch_fabric)
    schedule = DoubleBinaryTree().schedule(Demand("all_reduce", (1000,) * 8, 4), cluster)
    with pytest.raises(ContendedError, match="share link directions"):
        closed_form_s(schedule, cluster)


@pytest.mark.slow
@given(
    workers=st.integers(2, 40),
    chunks=st.sampled_from([1, 2, 5, 40]),
    elements=st.sampled_from([1, 1000, 1_000_000]),
    topology=st.sampled_from(["fat-tree", "leaf-spine", "dgx-h100"]),
    library=st.sampled_from(["ideal", "nccl:timing=measured"]),
)
def test_a_tree_is_bounded_without_its_steps_as_well_as_with_them(workers, chunks, elements, topology, library):
    cluster = build_cluster(load_shape(topology, ["nic.transport=ib-verbs"]), workers)
    demand = Demand("all_reduce", (elements,) * workers, 4)
    schedule = DoubleBinaryTree(chunks=chunks).schedule(demand, cluster)
    times = RoundTimes(cluster, schedule.release)
    profile = choose_library(library).profile
    for each in profile.protocols(schedule, cluster):
        sent = apply_overheads(schedule, cluster, each)
        by_steps_ps = sent.launch_ps + sum(step.times * times.at_least_ps(step.round) for step in sent.steps)
        assert duration_floor_ps(sent, times) <= by_steps_ps
        assert duration_floor_ps(sent, times) >= by_steps_ps * (1 - 1e-3) - schedule.rounds


def test_the_bound_is_the_textbook_one(make_cluster, switch_fabric):
    cluster = make_cluster(10, switch_fabric)
    demand = Demand("all_reduce", (SIZE // 4,) * 10, 4)
    assert lower_bound([demand], cluster.cuts()).seconds == pytest.approx(2 * 9 / 10 * SIZE / RATE_BPS)
    gather = Demand("all_gather", (100, 0, 0, 0, 0, 0, 0, 0, 0, 500), 4)
    assert lower_bound([gather], cluster.cuts()).seconds == pytest.approx(2400 / RATE_BPS)


@pytest.mark.parametrize("elements", [10, 30_000, 3_000_000])
def test_auto_takes_the_fastest_and_says_why(elements):
    cluster = build_cluster(load_shape("fat-tree"), 24)
    demand = Demand("all_reduce", (elements,) * 24, 4)
    times = {name: Timer(cluster, name).time(demand).duration_ps for name in ("ring", "double-binary-tree")}
    chosen = Timer(cluster).time(demand)
    assert chosen.duration_ps == min(times.values())
    assert chosen.why.startswith("fastest: ")


def test_both_algorithms_win_somewhere():
    cluster = build_cluster(load_shape("fat-tree"), 64)
    names = {
        Timer(cluster).time(Demand("all_reduce", (n,) * 64, 4)).schedule.algorithm.partition(":")[0]
        for n in (10, 30_000_000)
    }
    assert names == {"ring", "double-binary-tree"}


def test_one_rank_takes_no_time():
    cluster = build_cluster(load_shape("fat-tree"), 1)
    for kind in ("all_reduce", "all_gather"):
        assert Timer(cluster).time(Demand(kind, (1000,), 4)).duration_ps == 0


@pytest.mark.parametrize("release", ["delivered", "sent"])
@pytest.mark.parametrize(("chunks", "in_flight"), [(2, None), (4, None), (4, 2), (5, 2), (6, 1)])
@pytest.mark.parametrize("elements", [10, 100_000, 10_000_000])
def test_chunks_in_flight_follow_their_closed_form(release, chunks, in_flight, elements, make_cluster, switch_fabric):
    """Small messages are latency-bound, large ones keep every link busy."""
    cluster = make_cluster(5, switch_fabric)
    demand = Demand("all_reduce", (elements,) * 5, 4)
    schedule = Ring(chunks=chunks, in_flight=in_flight, release=release).schedule(demand, cluster)
    found = duration_ps(schedule, cluster, RoundTimes(cluster, schedule.release))
    assert found == simulate_ps(schedule, cluster)
    assert found / PS == pytest.approx(closed_form_s(schedule, cluster), rel=1e-6, abs=schedule.rounds / PS)


def test_pieces_in_flight_hide_latency(make_cluster, switch_fabric):
    cluster = make_cluster(16, switch_fabric)
    demand = Demand("all_reduce", (SIZE // 4,) * 16, 4)
    plain, flying = (Timer(cluster, text).time(demand).duration_ps for text in ("ring", "ring:chunks=4,release=sent"))
    bound = 2 * 15 / 16 * SIZE / RATE_BPS * PS
    assert flying < plain
    # The links never rest but for the first latency.
    assert flying == pytest.approx(bound + 1e6, rel=1e-6)
