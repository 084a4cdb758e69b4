"""Parallel aggregated trees: rounds, closed forms, and the limit on what a message carries."""

import numpy as np
import pytest

from s2sim.collectives.algorithms.halving_doubling import Pat
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import OptionError

RATE_BPS = 50 * 2**30
PS = 1e12
LIMITS = [None, 1, 2, 4, 8, 64]


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


@pytest.mark.parametrize("limit", [0, -1, 3, 12])
def test_the_limit_is_a_power_of_two(limit):
    with pytest.raises(OptionError, match=f"aggregation={limit} must be a power of two"):
        Pat(limit)
