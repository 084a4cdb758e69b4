"""Stages one after another, side by side, and one behind the other."""

import pytest

from s2sim.collectives.algorithms.ring import Ring
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.groups import arranged, group_of_all, joined, schedule_of
from s2sim.collectives.schedules.schedule import Stage
from s2sim.collectives.timing.bounds import duration_ps, simulate_ps
from s2sim.collectives.timing.rounds import RoundTimes

RANKS = 5


@pytest.fixture
def cluster(make_cluster, switch_fabric):
    return make_cluster(RANKS, switch_fabric)


def halves(ring=None):
    demand = Demand("all_reduce", (100_001,) * RANKS, 4)
    ring = ring or Ring()
    return demand, [ring.stage(kind, group_of_all(demand)) for kind in ("reduce_scatter", "all_gather")]


def test_in_a_row_is_joined(cluster):
    demand, (scatter, gather) = halves()
    row = schedule_of(demand, "row", arranged([(scatter, ()), (gather, (0,))]))
    chain = schedule_of(demand, "chain", joined([scatter, gather]))
    check_schedule(row)
    assert [step.after for step in row.steps] == [(), (0,)]
    assert duration_ps(row, cluster, RoundTimes(cluster)) == duration_ps(chain, cluster, RoundTimes(cluster))
    assert (row.stage.traffic(RANKS) == chain.stage.traffic(RANKS)).all()


def test_side_by_side_shares_links(cluster):
    demand, (scatter, _) = halves()
    alone = schedule_of(demand, "alone", scatter)
    both = schedule_of(demand, "both", arranged([(scatter, ()), (scatter, ())]))
    assert [step.after for step in both.steps] == [(), ()]
    latency_ps = 4 * 10**6
    bytes_ps = simulate_ps(alone, cluster) - latency_ps
    assert simulate_ps(both, cluster) == pytest.approx(2 * bytes_ps + latency_ps, rel=1e-6)


def test_to_wait_for_nothing_to_do_is_to_wait_for_what_it_waits_for():
    _, (scatter, gather) = halves()
    empty = Stage((), scatter.pieces)
    assert [step.after for step in arranged([(scatter, ()), (empty, (0,)), (gather, (1,))]).steps] == [(), (0,)]
    assert [step.after for step in arranged([(empty, ()), (gather, (0,))]).steps] == [()]


def test_steps_that_follow_the_last_byte_stay_as_they_are():
    demand, (scatter, gather) = halves(Ring(chunks=2, release="sent"))
    stage = arranged([(scatter, ()), (gather, (0,))])
    check_schedule(schedule_of(demand, "sent", stage))
    first = len(scatter.steps)
    for own, shifted in zip(gather.steps, stage.steps[first:], strict=True):
        assert shifted.after == (tuple(first + before for before in own.after) or (first - 2, first - 1))
        assert shifted.after_sent == tuple(first + before for before in own.after_sent)
