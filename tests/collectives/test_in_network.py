"""In-network all-reduce: values, bytes, closed form, where switches cannot help."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.algorithms.in_network import InNetwork
from s2sim.collectives.schedules.checker import check_schedule
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.closed_form import closed_form_s
from s2sim.collectives.timing.duration import simulate_ps
from s2sim.collectives.timing.timer import Timer, link_bytes
from s2sim.errors import TopologyError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.files.catalogue import load_shape

PS = 1e12
RATE_BPS = 50 * 2**30


@given(
    ranks=st.integers(1, 33),
    elements=st.sampled_from([0, 1, 10, 333, 1_000_000]),
    topology=st.sampled_from(["single-switch", "fat-tree", "leaf-spine"]),
    placement=st.sampled_from(["linear", "round-robin"]),
)
def test_values_bytes_and_times(ranks, elements, topology, placement):
    cluster = build_cluster(load_shape(topology), ranks, placement=placement)
    demand = Demand("all_reduce", (elements,) * ranks, 4)
    schedule = InNetwork().schedule(demand, cluster)
    assert schedule.assisted == (ranks > 1)
    if elements < 1000:
        check_schedule(schedule)
    for side in schedule.traffic():
        assert side.tolist() == [demand.buffer_bytes if ranks > 1 else 0] * ranks
    found_ps = Timer(cluster, "in-network").time(demand).duration_ps
    assert found_ps == simulate_ps(schedule, cluster)
    assert closed_form_s(schedule, cluster) == pytest.approx(found_ps / PS, rel=1e-6, abs=1 / PS)


@pytest.mark.parametrize("ranks", range(1, 34))
def test_every_number_of_ranks(ranks, make_cluster, switch_fabric):
    """L + D/B, whatever their number, and every port carries D each way."""
    cluster = make_cluster(ranks, switch_fabric)
    demand = Demand("all_reduce", (250_000,) * ranks, 4)
    schedule = InNetwork().schedule(demand, cluster)
    check_schedule(InNetwork().schedule(Demand("all_reduce", (7,) * ranks, 4), cluster))
    expected = 1e-6 + 1e6 / RATE_BPS if ranks > 1 else 0.0
    assert simulate_ps(schedule, cluster) / PS == pytest.approx(expected, rel=1e-6)
    assert closed_form_s(schedule, cluster) == pytest.approx(expected, rel=1e-12)
    np.testing.assert_array_equal(link_bytes(schedule, cluster), np.full(2 * ranks, 1e6 if ranks > 1 else 0.0))


def test_no_switch_above_all_ranks():
    with pytest.raises(TopologyError, match="no switch is above all ranks"):
        InNetwork().schedule(Demand("all_reduce", (8,) * 4, 4), build_cluster(load_shape("ring"), 4))
