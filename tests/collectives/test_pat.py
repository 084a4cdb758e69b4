"""Parallel aggregated trees: values, bytes, closed forms, and the limit on what a message carries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.algorithms.pat import Pat
from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.checker import check_schedule, run_on_values
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.groups import Groups, schedule_of
from s2sim.collectives.schedules.hops import Hop, Hops
from s2sim.collectives.timing.closed_form import closed_form_s
from s2sim.collectives.timing.duration import simulate_ps
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import ContendedError, OptionError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.files.catalogue import load_shape

RATE_BPS = 50 * 2**30
PS = 1e12
LIMITS = [None, 1, 2, 4, 8, 64]


@pytest.fixture(scope="module")
def clusters():
    return {ranks: build_cluster(load_shape("single-switch"), ranks) for ranks in range(1, 34)}


@given(
    kind=st.sampled_from(Pat.kinds),
    sizes=st.lists(st.integers(0, 200), min_size=1, max_size=33),
    scale=st.sampled_from([1, 1000]),
    limit=st.sampled_from(LIMITS),
)
def test_values_bytes_and_times(clusters, kind, sizes, scale, limit):
    demand = Demand(kind, tuple(scale * size for size in sizes), 4)
    cluster = clusters[demand.ranks]
    schedule = Pat(limit).schedule(demand, cluster)
    assert make_algorithm(schedule.algorithm, kind) == Pat(limit)
    if scale == 1:
        check_schedule(schedule)
    sent, received = schedule.traffic()
    assert sent.sum() == received.sum() == (demand.ranks - 1) * demand.buffer_bytes
    once = received if kind == "all_gather" else sent
    if demand.ranks > 1:
        assert once.tolist() == [demand.buffer_bytes - 4 * own for own in demand.elements]
    assert sum(step.times * step.round.bytes.sum() for step in schedule.steps) == sent.sum()
    duration_ps = Timer(cluster, schedule.algorithm).time(demand).duration_ps
    assert duration_ps == simulate_ps(schedule, cluster)
    assert closed_form_s(schedule, cluster) == pytest.approx(
        duration_ps / PS, rel=1e-6, abs=max(schedule.rounds, 1) / PS
    )


@pytest.mark.parametrize("kind", Pat.kinds)
@pytest.mark.parametrize("limit", LIMITS)
def test_every_number_of_ranks_within_the_limit(clusters, kind, limit):
    for ranks, cluster in clusters.items():
        schedule = Pat(limit).schedule(Demand(kind, (5,) * ranks, 4), cluster)
        check_schedule(schedule)
        power = 1 << (ranks - 1).bit_length()
        most = min(limit or power, max(power // 2, 1))
        assert all(step.round.bytes.max() <= 20 * most for step in schedule.steps)
        if ranks == power:
            assert schedule.rounds == int(np.log2(most)) + power // most - 1
        else:
            assert schedule.rounds <= int(np.log2(most)) + power // most - 1


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("kind", Pat.kinds)
def test_equal_contributions(limit, kind, make_cluster, switch_fabric):
    """(log2(A) + P/A - 1)·L + (P-1)·b/B."""
    cluster = make_cluster(32, switch_fabric)
    timed = Timer(cluster, "pat" if limit is None else f"pat:aggregation={limit}").time(
        Demand(kind, (250_000,) * 32, 4)
    )
    most = min(limit or 32, 32)
    expected = (np.log2(most) + 32 / most - 1) * 1e-6 + 31 * 1e6 / RATE_BPS
    assert timed.duration_ps / PS == pytest.approx(expected, rel=1e-6)


def distances(schedule):
    """Return how much further on the receivers of each step are."""
    patterns = [step.round.pattern for step in schedule.steps]
    return [set(((pattern.dst - pattern.src) % schedule.demand.ranks).tolist()) for pattern in patterns]


def test_the_far_go_first_with_little(clusters):
    schedule = Pat().schedule(Demand("all_gather", (1,) * 8, 4), clusters[8])
    assert [step.round.bytes.tolist() for step in schedule.steps] == [[4.0] * 8, [8.0] * 8, [16.0] * 8]
    assert distances(schedule) == [{4}, {2}, {1}]
    backwards = Pat().schedule(Demand("reduce_scatter", (1,) * 8, 4), clusters[8])
    assert [step.round.bytes.tolist() for step in backwards.steps] == [[16.0] * 8, [8.0] * 8, [4.0] * 8]
    assert distances(backwards) == [{7}, {6}, {4}]


def test_rounds_alike_are_one_step(clusters):
    """At the limit a distance takes 1, 2, 4, ... rounds, all alike."""
    schedule = Pat(2).schedule(Demand("all_gather", (1,) * 32, 4), clusters[32])
    assert [step.times for step in schedule.steps] == [1, 1, 2, 4, 8]
    assert [step.round.bytes.max() for step in schedule.steps] == [4, 8, 8, 8, 8]


def test_groups_gather_at_once():
    ranks = np.array([[0, 2, 4], [1, 3, 5]])
    begin = ranks * 10
    groups = Groups(ranks, begin, begin + 10, np.full((2, 3), 40.0))
    cluster = build_cluster(load_shape("single-switch"), 6)
    demand = Demand("all_gather", (10,) * 6, 4)
    held = np.kron(np.eye(6, dtype=np.int64), np.ones((1, 10), np.int64)) * (1 + np.arange(60))
    for limit in (None, 1):
        result = run_on_values(schedule_of(demand, "a part", Pat(limit).stage("all_gather", groups, cluster)), held)
        for group in ranks:
            np.testing.assert_array_equal(result[group], np.tile(held[group].sum(axis=0), (3, 1)))


@pytest.mark.parametrize("limit", [0, -1, 3, 12])
def test_the_limit_is_a_power_of_two(limit):
    with pytest.raises(OptionError, match=f"aggregation={limit} must be a power of two"):
        Pat(limit)


def test_no_closed_form_for_mixed_ways():
    mixed = Hops((Hop(1e-6, 1e11),), (Hop(2e-6, 1e10),), 2)
    with pytest.raises(ContendedError, match="one latency and one rate"):
        Pat().closed_form_s(Demand("all_gather", (8,) * 4, 4), mixed)
