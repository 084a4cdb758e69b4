"""Closed forms that hold only where every pair of ranks has a link of its own, each way."""

from types import SimpleNamespace

import numpy as np
import pytest

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.bounds import duration_ps, simulate_ps
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.collectives.timing.timer import closed_form_s
from s2sim.topology.graph import Routes

LATENCY_S, RATE_BPS = 2e-6, 1e10


class Links(SimpleNamespace):
    """What the network knows of links."""

    def __len__(self):
        return len(self.rate_Bps)


def make_mesh(ranks):
    """Return what algorithms and the network ask of a cluster: link r·P + s leads from rank r to rank s."""

    def routes(src, dst):
        count = len(src)
        latency_ps = np.full(count, round(LATENCY_S * 1e12))
        return Routes(np.arange(count + 1), src * ranks + dst, np.ones(count), latency_ps)

    return SimpleNamespace(
        routes=routes,
        fabric=Links(rate_Bps=np.full(ranks * ranks, RATE_BPS)),
        node_of_rank=np.arange(ranks),
        nodes_used=ranks,
        shape=SimpleNamespace(name="mesh"),
    )


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 8, 20])
@pytest.mark.parametrize(
    ("name", "kind", "rounds", "parts"),
    [
        ("binary-tree", "all_reduce", lambda ranks: 2 * int(np.log2(ranks)), lambda _: 1),
        ("binary-tree", "broadcast", lambda ranks: int(np.log2(ranks)), lambda _: 1),
        ("binary-tree", "reduce", lambda ranks: int(np.log2(ranks)), lambda _: 1),
        ("spread", "all_to_all", lambda ranks: int(ranks > 1), lambda ranks: ranks),
        ("direct", "all_reduce", lambda ranks: 2 * int(ranks > 1), lambda ranks: ranks),
        ("parameter-server", "all_reduce", lambda ranks: 2 * int(ranks > 1), lambda _: 1),
    ],
)
def test_on_a_mesh(ranks, name, kind, rounds, parts):
    mesh = make_mesh(ranks)
    demand = Demand(kind, (25_000,) * ranks, 4)
    schedule = make_algorithm(name, kind).schedule(demand, mesh)
    expected = rounds(ranks) * (LATENCY_S + 1e5 / parts(ranks) / RATE_BPS)
    simulated_ps = simulate_ps(schedule, mesh)
    assert simulated_ps / 1e12 == pytest.approx(expected, rel=1e-6)
    assert duration_ps(schedule, mesh, RoundTimes(mesh)) == simulated_ps
    assert closed_form_s(schedule, mesh) == pytest.approx(expected, rel=1e-12)
