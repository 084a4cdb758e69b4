"""Direct collectives: rounds, times, closed form where a rank has one partner."""

import pytest

from s2sim.collectives.algorithms.all_to_all import Direct
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hop, Hops
from s2sim.collectives.timing.timer import Timer, closed_form_s
from s2sim.errors import ContendedError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

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
