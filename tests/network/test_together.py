"""Transfers with nothing else in flight: against the simulated network and a naive oracle; compiled or plain."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.network import active_flows as in_flight
from s2sim.network import fluid
from s2sim.network.active_flows import SolverEffort
from s2sim.network.base import FlowTable, without_slack_links
from s2sim.network.fluid import FluidNetwork, solve_batch_ps
from s2sim.network.network import deliver_ps
from s2sim.topology.cluster import build_cluster
from s2sim.topology.graph import Routes, join_stages
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
    kind=st.sampled_from(["fat-tree", "leaf-spine", "ring", "torus", "dragonfly"]),
    nics=st.integers(2, 8),
    link=st.sampled_from(["100Gbps", "200Gbps", "1Tbps"]),
    ecmp=st.booleans(),
    pairs=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 7), st.integers(1, 10**6)), min_size=1, max_size=20),
)
def test_what_several_interfaces_send_over_one_link_counts_together(kind, nics, link, ecmp, pairs):
    """Against routes that have such a link as often as it is crossed, and the bytes of each link over its rate."""
    tree = kind in ("fat-tree", "leaf-spine")
    narrow = ["fabric.hosts_per_leaf=2", "fabric.uplinks_per_leaf=2", f"routing={'ecmp' if ecmp else 'd-mod-k'}"]
    fields = ["node.gpus=1", f"nic.count={nics}", f"fabric.link.rate={link}", *(narrow if tree else ())]
    cluster = build_cluster(load_shape(kind, fields), 8)
    src, further, sizes = (np.array(side) for side in zip(*pairs, strict=True))
    dst, starts, capacity = (src + further) % 8, np.zeros(len(src), np.int64), cluster.fabric.rate_Bps / PS_PER_S
    routes, as_crossed = cluster.routes(src, dst), join_stages(cluster.router.stages(src, dst), len(src))
    for transfer in range(len(src)):
        alone = routes.take(np.array([transfer]))
        assert len(np.unique(alone.links)) == len(alone.links)
        rate = oracle.rates_of(as_crossed, {transfer}, capacity)[transfer]
        assert alone.narrowest(capacity) == pytest.approx([rate], rel=1e-9)
    found = solve_batch_ps(routes, starts, sizes.astype(float), capacity)
    np.testing.assert_allclose(found, oracle.deliver_ps(as_crossed, starts, sizes, capacity), rtol=1e-9, atol=1)
    np.testing.assert_array_equal(
        found, deliver_ps(cluster.fabric, routes, starts, sizes.astype(float), network=FluidNetwork)
    )
    crossing = np.repeat(sizes, np.diff(as_crossed.offsets)) * as_crossed.weights
    assert (np.bincount(as_crossed.links, crossing) <= capacity[: as_crossed.links.max() + 1] * found.max() + 1).all()


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


@given(flows=st.integers(1, 30), links=st.integers(1, 8), weighted=st.booleans(), seed=st.integers(0, 9999))
def test_links_that_limit_nothing_are_left_out_of_any_routes(flows, links, weighted, seed):
    generator = np.random.default_rng(seed)
    paths = [generator.permutation(links)[: generator.integers(1, links + 1)] for _ in range(flows)]
    offsets = np.concatenate([[0], np.cumsum([len(path) for path in paths])])
    weights = generator.choice([0.25, 0.5, 1.0], offsets[-1]) if weighted else np.ones(offsets[-1])
    routes = Routes(offsets, np.concatenate(paths), weights, np.zeros(flows, np.int64))
    capacity = generator.choice([1.0, 2.0, 4.0], links)
    fewer = without_slack_links(routes, capacity)
    assert len(fewer.links) <= len(routes.links)
    some = np.flatnonzero(generator.random(flows) < 0.7)
    for chosen in (np.append(some, 0), np.arange(flows)):
        rates, same = (oracle.rates_of(each, set(chosen.tolist()), capacity) for each in (routes, fewer))
        assert rates == pytest.approx(same, rel=1e-9)


def test_limits_above_the_rate_of_an_interface_and_links_to_one_node_are_left_out():
    cluster = build_cluster(load_shape("fat-tree", []), 64)
    src, dst = (side.reshape(-1) for side in np.meshgrid(np.arange(64), np.arange(64)))
    between = src // 4 != dst // 4
    routes = cluster.routes(src[between], dst[between])
    links = len(cluster.fabric)
    limited, limits_Bps = replace(routes, limit_Bps=np.full(len(routes.latency_ps), 2e10)).with_limits_as_links(links)
    fewer = without_slack_links(limited, np.concatenate([cluster.fabric.rate_Bps, limits_Bps]))
    np.testing.assert_array_equal(fewer.links, without_slack_links(routes, cluster.fabric.rate_Bps).links)
    # With d-mod-k a link from a spine carries what goes to one of the 16 nodes, as its interface does.
    assert len(np.unique(fewer.links)) == len(np.unique(routes.links)) - 16
    assert fewer.links.max() < links


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


def test_what_was_compiled_for_types_that_have_moved_is_forgotten(tmp_path):
    here = f"{FlowTable.__module__} FlowTable".encode()
    files = {
        "max_min.add_flows-1.py311.nbi": b"s2sim.network.no_such_file FlowTable",
        "max_min.run_to_completion-1.py311.nbi": here + b" MemberQueues",
        "max_min.next_ps-1.py311.nbi": b"only numbers",
        "count_sketch.add-1.py311.nbi": b"s2sim.network.no_such_file FlowTable",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    in_flight.forget_moved_types(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(files) - {"max_min.add_flows-1.py311.nbi"}
