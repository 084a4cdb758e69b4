"""In-network all-reduce: every port carries the buffer once each way; where switches cannot help."""

import numpy as np
import pytest

from s2sim.collectives.algorithms.levels import InNetwork
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.bounds import simulate_ps
from s2sim.collectives.timing.rounds import RoundTimes, link_bytes
from s2sim.collectives.timing.timer import closed_form_s
from s2sim.errors import TopologyError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

PS = 1e12
RATE_BPS = 50 * 2**30


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
    np.testing.assert_array_equal(
        link_bytes(schedule, RoundTimes(cluster)), np.full(2 * ranks, 1e6 if ranks > 1 else 0.0)
    )


def test_no_switch_above_all_ranks():
    with pytest.raises(TopologyError, match="no switch is above all ranks"):
        InNetwork().schedule(Demand("all_reduce", (8,) * 4, 4), build_cluster(load_shape("ring"), 4))
