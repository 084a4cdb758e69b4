"""Transfers with nothing else in flight: against the simulated network and a naive oracle; compiled or plain."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.network import active_flows as in_flight
from s2sim.network import fluid
from s2sim.network.active_flows import SolverEffort
from s2sim.network.fluid import FluidNetwork, solve_batch_ps
from s2sim.network.network import deliver_ps
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape
from s2sim.units import PS_PER_S

from . import oracle


@given(
    topology=st.sampled_from(["fat-tree", "leaf-spine", "single-switch", "ring"]),
    routing=st.sampled_from(["d-mod-k", "ecmp", "spray"]),
    flows=st.lists(
        st.tuples(st.integers(0, 15), st.integers(0, 15), st.sampled_from([0.0, 1e5, 3e5]) | st.floats(0, 1e6)),
        min_size=1,
        max_size=40,
    ),
    gap_ps=st.sampled_from([0, 1, 10**6, 10**7]),
)
def test_each_delivery_is_that_of_the_network_to_the_picosecond(topology, routing, flows, gap_ps):
    overrides = [f"routing={routing}"] if topology in ("fat-tree", "leaf-spine") else []
    cluster = build_cluster(load_shape(topology, overrides), 16)
    src, dst, sizes = (np.array(side) for side in zip(*flows, strict=True))
    apart = src != dst
    if not apart.any():
        return
    routes = cluster.routes(src[apart], dst[apart])
    starts = gap_ps * np.arange(len(routes.latency_ps))
    asked = routes, starts, sizes[apart]
    found = solve_batch_ps(*asked, cluster.fabric.rate_Bps / PS_PER_S)
    np.testing.assert_array_equal(found, deliver_ps(cluster.fabric, *asked, network=FluidNetwork))
    naive = oracle.deliver_ps(*asked, cluster.fabric.rate_Bps / PS_PER_S)
    np.testing.assert_allclose(found, naive, rtol=1e-9, atol=1)


@given(
    topology=st.sampled_from(["fat-tree", "leaf-spine", "dgx-h100", "torus"]),
    routing=st.sampled_from(["ecmp", "spray"]),
    moments=st.sampled_from([1, 3]),
    sizes=st.lists(st.sampled_from([0.0, 1.0, 1e5, 3e5]) | st.floats(0, 1e9), min_size=1, max_size=3),
    flows=st.integers(1, 120),
    limited=st.booleans(),
    seed=st.integers(0, 99),
)
def test_rates_filled_anew_at_each_event_and_single_changes_deliver_alike(
    topology, routing, moments, sizes, flows, limited, seed
):
    overrides = [f"routing={routing}"] if topology in ("fat-tree", "leaf-spine") else []
    cluster = build_cluster(load_shape(topology, overrides), 32)
    generator = np.random.default_rng(seed)
    src = generator.integers(0, 32, flows)
    routes = cluster.routes(src, (src + generator.integers(1, 32, flows)) % 32)
    if limited:
        routes = replace(routes, limit_Bps=generator.choice([1e9, 1e10, np.inf], flows))
    arrive_ps = 10**9 * generator.integers(0, moments, flows) // moments
    asked = generator.choice(sizes, flows), cluster.fabric.rate_Bps / PS_PER_S
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fluid, "_LEAST_TRANSFERS", 1)
        patched.setattr(fluid, "_MOST_EVENTS", 10**9)
        patched.setattr(fluid, "_TRIED_EVENTS", 10**9)
        found = fluid.deliver_in_few_events(routes, arrive_ps, *asked)
        patched.setattr(fluid, "deliver_in_few_events", lambda *_: None)
        changes = solve_batch_ps(routes, arrive_ps - routes.latency_ps, *asked)
    np.testing.assert_allclose(found, changes, rtol=1e-12, atol=1)


@pytest.mark.slow
@pytest.mark.parametrize("moments", [2, 10**8])
@pytest.mark.parametrize("routing", ["ecmp", "spray"])
def test_compiled_and_plain_give_the_same_picoseconds(monkeypatch, routing, moments):
    pytest.importorskip("numba")
    cluster = build_cluster(load_shape("leaf-spine", [f"routing={routing}"]), 64)
    generator = np.random.default_rng(4)
    src = generator.integers(0, 64, 400)
    routes = cluster.routes(src, (src + generator.integers(1, 64, 400)) % 64)
    starts, sizes = generator.integers(0, moments, 400) * (10**8 // moments), generator.exponential(1e6, 400)
    asked = routes, starts, sizes
    found = []
    for effort in (SolverEffort(), SolverEffort(visits=10**9)):
        monkeypatch.setattr(fluid, "SOLVER_EFFORT", effort)
        monkeypatch.setattr(in_flight, "SOLVER_EFFORT", effort)
        found.append(solve_batch_ps(*asked, cluster.fabric.rate_Bps / PS_PER_S))
        # The simulated network compiles when some flows are in flight already, and makes room for more.
        found.append(deliver_ps(cluster.fabric, *asked, network=FluidNetwork))
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])
