"""Bruck's all-gather and what runs like it: rounds, messages and closed forms."""

import numpy as np
import pytest

from s2sim.collectives.algorithms.halving_doubling import Bruck
from s2sim.collectives.schedules.demand import Demand, barrier
from s2sim.collectives.timing.timer import Timer

RATE_BPS = 50 * 2**30
PS = 1e12


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
