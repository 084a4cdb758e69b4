"""Bruck's all-gather and what runs like it: values, bytes and closed forms for any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.algorithms.bruck import Bruck
from s2sim.collectives.schedules.checker import check_schedule, run_on_values
from s2sim.collectives.schedules.demand import Demand, barrier
from s2sim.collectives.schedules.groups import Groups, schedule_of
from s2sim.collectives.schedules.hops import Hop, Hops
from s2sim.collectives.timing.closed_form import closed_form_s
from s2sim.collectives.timing.duration import simulate_ps
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import ContendedError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.files.catalogue import load_shape

RATE_BPS = 50 * 2**30
PS = 1e12


@pytest.fixture(scope="module")
def clusters():
    return {ranks: build_cluster(load_shape("single-switch"), ranks) for ranks in range(1, 34)}


@given(
    kind=st.sampled_from(["all_gather", "reduce_scatter"]),
    sizes=st.lists(st.integers(0, 200), min_size=1, max_size=33),
    scale=st.sampled_from([1, 1000]),
)
def test_values_bytes_and_times(clusters, kind, sizes, scale):
    demand = Demand(kind, tuple(scale * size for size in sizes), 4)
    cluster = clusters[demand.ranks]
    schedule = Bruck().schedule(demand, cluster)
    if scale == 1:
        check_schedule(schedule)
    sent, received = schedule.traffic()
    assert sent.sum() == received.sum() == (demand.ranks - 1) * demand.buffer_bytes
    # Each rank gets, or gives away, everything but its own once.
    once = received if kind == "all_gather" else sent
    if demand.ranks > 1:
        assert once.tolist() == [demand.buffer_bytes - 4 * own for own in demand.elements]
    assert sum(step.times * step.round.bytes.sum() for step in schedule.steps) == sent.sum()
    duration_ps = Timer(cluster, "bruck").time(demand).duration_ps
    assert duration_ps == simulate_ps(schedule, cluster)
    assert closed_form_s(schedule, cluster) == pytest.approx(
        duration_ps / PS, rel=1e-6, abs=max(schedule.rounds, 1) / PS
    )


@pytest.mark.parametrize("kind", Bruck.kinds)
def test_every_number_of_ranks_in_the_fewest_rounds(clusters, kind):
    for ranks, cluster in clusters.items():
        demand = barrier(ranks) if kind == "barrier" else Demand(kind, tuple(7 * i % 13 for i in range(ranks)), 4)
        schedule = Bruck().schedule(demand, cluster)
        check_schedule(schedule)
        assert schedule.rounds == int(np.ceil(np.log2(ranks)))


@pytest.mark.parametrize("ranks", [2, 3, 7, 16, 33])
@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_equal_contributions(ranks, kind, make_cluster, switch_fabric):
    cluster = make_cluster(ranks, switch_fabric)
    timed = Timer(cluster, "bruck").time(Demand(kind, (250_000,) * ranks, 4))
    expected = np.ceil(np.log2(ranks)) * 1e-6 + (ranks - 1) * 1e6 / RATE_BPS
    assert timed.duration_ps / PS == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("ranks", "rounds"), [(1, 0), (2, 1), (9, 4), (16, 4), (33, 6)])
def test_a_barrier_is_latency(ranks, rounds, make_cluster, switch_fabric):
    cluster = make_cluster(ranks, switch_fabric)
    assert Timer(cluster, "bruck").time(barrier(ranks)).duration_ps == rounds * 1_000_000


def test_messages_of_five_ranks(clusters):
    schedule = Bruck().schedule(Demand("all_gather", (1, 2, 3, 4, 5), 4), clusters[5])
    assert [(4 * np.array(sums)).tolist() for sums in ([1, 2, 3, 4, 5], [3, 5, 7, 9, 6], [1, 2, 3, 4, 5])] == [
        step.round.bytes.tolist() for step in schedule.steps
    ]
    assert [step.round.pattern.dst.tolist() for step in schedule.steps] == [
        [4, 0, 1, 2, 3],
        [3, 4, 0, 1, 2],
        [1, 2, 3, 4, 0],
    ]


def test_groups_gather_at_once():
    ranks = np.array([[0, 2, 4], [1, 3, 5]])
    begin = ranks * 10
    groups = Groups(ranks, begin, begin + 10, np.full((2, 3), 40.0))
    cluster = build_cluster(load_shape("single-switch"), 6)
    demand = Demand("all_gather", (10,) * 6, 4)
    held = np.kron(np.eye(6, dtype=np.int64), np.ones((1, 10), np.int64)) * (1 + np.arange(60))
    result = run_on_values(schedule_of(demand, "a part", Bruck().stage("all_gather", groups, cluster)), held)
    for group in ranks:
        np.testing.assert_array_equal(result[group], np.tile(held[group].sum(axis=0), (3, 1)))


def test_no_closed_form_for_mixed_ways():
    mixed = Hops((Hop(1e-6, 1e11),), (Hop(2e-6, 1e10),), 2)
    with pytest.raises(ContendedError, match="one latency and one rate"):
        Bruck().closed_form_s(Demand("all_gather", (8,) * 4, 4), mixed)
