"""Recursive doubling: rounds and closed forms."""

import numpy as np
import pytest

from s2sim.collectives.algorithms.halving_doubling import RecursiveDoubling
from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.check import run_on_values
from s2sim.collectives.schedules.demand import Demand, barrier
from s2sim.collectives.schedules.groups import even_groups, schedule_of
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import OptionError

RATE_BPS = 50 * 2**30
PS = 1e12


@pytest.mark.parametrize(("ranks", "rounds"), [(2, 1), (16, 4), (17, 6), (31, 6)])
def test_an_all_reduce_sends_whole_buffers(ranks, rounds, make_cluster, switch_fabric):
    cluster = make_cluster(ranks, switch_fabric)
    timed = Timer(cluster, "recursive-doubling").time(Demand("all_reduce", (250_000,) * ranks, 4))
    assert timed.duration_ps / PS == pytest.approx(rounds * (1e-6 + 1e6 / RATE_BPS), rel=1e-6)


def test_an_all_gather_doubles(make_cluster, switch_fabric):
    cluster = make_cluster(16, switch_fabric)
    timed = Timer(cluster, "recursive-doubling").time(Demand("all_gather", (250_000,) * 16, 4))
    assert [step.round.bytes.max() for step in timed.schedule.steps] == [1e6, 2e6, 4e6, 8e6]
    assert timed.duration_ps / PS == pytest.approx(4e-6 + 15e6 / RATE_BPS, rel=1e-6)


@pytest.mark.parametrize(("ranks", "rounds"), [(1, 0), (2, 1), (16, 4), (17, 6)])
def test_a_barrier_is_latency(ranks, rounds, make_cluster, switch_fabric):
    cluster = make_cluster(ranks, switch_fabric)
    assert Timer(cluster, "recursive-doubling").time(barrier(ranks)).duration_ps == rounds * 1_000_000


@pytest.mark.parametrize("members", [1, 4, 6])
def test_groups_work_on_their_own_parts_at_once(members):
    ranks = np.arange(2 * members).reshape(members, 2).T
    groups = even_groups(ranks, np.array([0, 15]), np.array([15, 30]), 60.0)
    values = np.random.default_rng(0).integers(0, 1000, (2 * members, 30))
    stage = RecursiveDoubling().stage("all_reduce", groups)
    demand = Demand("all_reduce", (30,) * 2 * members, 4)
    result = run_on_values(schedule_of(demand, "a part", stage), values)
    for group, part in zip(ranks, (slice(0, 15), slice(15, 30)), strict=True):
        np.testing.assert_array_equal(result[group, part], np.tile(values[group, part].sum(axis=0), (members, 1)))


def test_refusals():
    with pytest.raises(OptionError, match="no option 'chunks'"):
        make_algorithm("recursive-doubling:chunks=2", "all_reduce")
