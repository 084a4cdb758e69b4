"""Everything at once: what sharing ports costs, and the refusal of too many pairs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.algorithms.all_to_all import SpreadOut
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import Demand, all_to_all_demand
from s2sim.collectives.schedules.exchange import Hop, Hops
from s2sim.collectives.timing.bounds import simulate_ps
from s2sim.collectives.timing.timer import Timer, closed_form_s
from s2sim.errors import ContendedError, OptionError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

RATE_BPS = 50 * 2**30
PS = 1e12


@given(size=st.integers(0, 10**6), ranks=st.integers(1, 33))
def test_a_shift_takes_one_message(clusters, size, ranks):
    demand = Demand("send_recv", (*(size for _ in range(ranks - 1)), size // 2), 4)
    schedule = SpreadOut().schedule(demand, clusters[ranks])
    assert closed_form_s(schedule, clusters[ranks]) == pytest.approx(
        simulate_ps(schedule, clusters[ranks]) / PS, rel=1e-6, abs=1 / PS
    )


@pytest.mark.parametrize("ranks", [2, 3, 16, 33])
def test_an_exchange_shares_every_port(ranks, make_cluster, switch_fabric):
    cluster = make_cluster(ranks, switch_fabric)
    timed = Timer(cluster, "spread").time(Demand("all_to_all", (1_000_000,) * ranks, 4))
    assert timed.duration_ps / PS == pytest.approx(1e-6 + (ranks - 1) * 4e6 / ranks / RATE_BPS, rel=1e-6)
    if ranks > 2:
        with pytest.raises(ContendedError, match="share link directions"):
            closed_form_s(timed.schedule, cluster)


@pytest.mark.parametrize("kind", SpreadOut.kinds)
def test_it_is_what_libraries_run(kind, clusters):
    timed = Timer(clusters[8]).time(Demand(kind, (8,) * 8, 4))
    assert timed.schedule.algorithm == "spread"


def test_refusals():
    ranks = 1500
    cluster = build_cluster(load_shape("single-switch"), ranks)
    with pytest.raises(OptionError, match=r"2,248,500 messages at once.*GB of memory.*take pairwise"):
        SpreadOut().schedule(Demand("all_to_all", (ranks,) * ranks, 4), cluster)
    # Each sends one message here.
    assert SpreadOut().schedule(Demand("send_recv", (8,) * ranks, 4), cluster).rounds == 1
    mixed = Hops((Hop(1e-6, 1e11),), (Hop(2e-6, 1e10),), 2)
    with pytest.raises(ContendedError, match="one latency and one rate"):
        SpreadOut().closed_form_s(Demand("send_recv", (8, 9), 4), mixed)
    assert SpreadOut().closed_form_s(Demand("send_recv", (10, 10), 4), mixed) == pytest.approx(2e-6 + 40 / 1e10)


@given(seed=st.integers(0, 1000), ranks=st.integers(1, 33), share=st.sampled_from([0.0, 0.1, 0.9]))
def test_empty_blocks_are_not_sent(clusters, seed, ranks, share):
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 100, (ranks, ranks)) * (generator.random((ranks, ranks)) < share)
    schedule = SpreadOut().schedule(all_to_all_demand(sizes, 4), clusters[ranks])
    check_schedule(schedule)
    np.fill_diagonal(sizes, 0)
    assert sum(step.round.pattern.messages for step in schedule.steps) == np.count_nonzero(sizes)
    assert [side.tolist() for side in schedule.traffic()] == [(4 * sizes.sum(axis=axis)).tolist() for axis in (1, 0)]


@pytest.mark.slow
def test_few_partners_are_never_too_many_messages_at_once():
    ranks = 1500
    blocks = np.zeros((ranks, ranks), np.int64)
    blocks[np.arange(ranks), (np.arange(ranks) + 1) % ranks] = 1000
    cluster = build_cluster(load_shape("single-switch"), ranks)
    timed = Timer(cluster).time(all_to_all_demand(blocks, 4))
    assert timed.schedule.algorithm == "spread"
    assert timed.schedule.steps[0].round.pattern.messages == ranks
