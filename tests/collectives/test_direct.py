"""Direct collectives: values, bytes, times, closed form where a rank has one partner."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.algorithms.direct import Direct
from s2sim.collectives.schedules.checker import check_schedule, run_on_values
from s2sim.collectives.schedules.demand import Demand
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
    return {ranks: build_cluster(load_shape("fat-tree"), ranks) for ranks in range(1, 34)}


@pytest.mark.parametrize("kind", Direct.kinds)
def test_every_number_of_ranks(clusters, kind):
    for ranks, cluster in clusters.items():
        schedule = Direct().schedule(Demand(kind, (5,) * ranks, 4), cluster)
        check_schedule(schedule)
        rounds = 2 if kind == "all_reduce" else 1
        assert schedule.rounds == (rounds if ranks > 1 else 0)
        assert all(step.round.pattern.messages == ranks * (ranks - 1) for step in schedule.steps)


@given(kind=st.sampled_from(Direct.kinds), sizes=st.lists(st.integers(0, 300), min_size=1, max_size=20))
def test_values_bytes_and_times(clusters, kind, sizes):
    demand = Demand(kind, (sizes[0],) * len(sizes) if kind == "all_reduce" else tuple(sizes), 4)
    cluster = clusters[demand.ranks]
    schedule = Direct().schedule(demand, cluster)
    check_schedule(schedule)
    sent, received = schedule.traffic()
    passes = 2 if kind == "all_reduce" else 1
    assert sent.sum() == received.sum() == passes * (demand.ranks - 1) * demand.buffer_bytes
    if kind == "all_gather" and demand.ranks > 1:
        assert sent.tolist() == [4 * (demand.ranks - 1) * own for own in sizes]
    nominal = sum(step.round.bytes.sum() for step in schedule.steps)
    assert nominal == pytest.approx(sent.sum(), rel=1e-12)
    assert Timer(cluster, "direct").time(demand).duration_ps == simulate_ps(schedule, cluster)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_messages_share_each_ranks_own_port(ranks, make_cluster, switch_fabric):
    """Each round takes L + (P-1)/P·D/B: the time of its bytes through one port."""
    cluster = make_cluster(ranks, switch_fabric)
    demand = Demand("all_reduce", (10**6,) * ranks, 4)
    timed = Timer(cluster, "direct").time(demand)
    expected = 2 * (1e-6 + (ranks - 1) / ranks * 4e6 / RATE_BPS)
    assert timed.duration_ps / PS == pytest.approx(expected, rel=1e-6)
    if ranks == 2:
        assert closed_form_s(timed.schedule, cluster) == pytest.approx(expected, rel=1e-12)
    else:
        with pytest.raises(ContendedError, match="share link directions"):
            closed_form_s(timed.schedule, cluster)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_closed_form_of_unequal_contributions(kind, make_cluster, switch_fabric):
    cluster = make_cluster(2, switch_fabric)
    timed = Timer(cluster, "direct").time(Demand(kind, (1000, 250_000), 4))
    expected = 1e-6 + 1e6 / RATE_BPS
    assert closed_form_s(timed.schedule, cluster) == pytest.approx(expected, rel=1e-12)
    assert timed.duration_ps / PS == pytest.approx(expected, rel=1e-6)
    with pytest.raises(ContendedError, match="unequal contributions"):
        Direct().closed_form_s(timed.schedule.demand, Hops((Hop(1e-6, 1e11),), (Hop(2e-6, 1e10),), 2))


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather"])
def test_groups_run_at_once(kind):
    ranks = np.array([[0, 2, 4], [1, 3, 5]])
    begin = ranks * 10
    groups = Groups(ranks, begin, begin + 10, np.full((2, 3), 40.0))
    cluster = build_cluster(load_shape("single-switch"), 6)
    demand = Demand("all_gather", (10,) * 6, 4)
    held = np.kron(np.eye(6, dtype=np.int64), np.ones((1, 10), np.int64)) * (1 + np.arange(60))
    if kind == "all_reduce":
        held = np.random.default_rng(0).integers(0, 1000, held.shape)
    result = run_on_values(schedule_of(demand, "a part", Direct().stage(kind, groups, cluster)), held)
    for group in ranks:
        own = np.concatenate([np.arange(10 * rank, 10 * rank + 10) for rank in group])
        np.testing.assert_array_equal(result[group][:, own], np.tile(held[group][:, own].sum(axis=0), (3, 1)))
