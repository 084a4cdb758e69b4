"""Max-min fairness of flows in flight: against naive oracles, and by its definition, also as flows come and go."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from s2sim.network.active_flows import make_flow_table
from s2sim.network.base import as_lists
from s2sim.network.max_min import add_flows, deactivate_flow, mark_link
from s2sim.topology.graph import Routes

from .oracle import rates_of


def naive(paths, weights, capacity):
    """Raise all rates together; freeze the flows of whatever link is full first. Textbook, one link at a time."""
    rates = dict.fromkeys(range(len(paths)), 0.0)
    active = set(rates)
    left = dict(enumerate(capacity))
    while active:
        load = {
            link: sum(w for flow in active for at, w in zip(paths[flow], weights[flow], strict=True) if at == link)
            for link in left
        }
        room = {link: left[link] / load[link] for link in left if load[link] > 0}
        tightest = min(room, key=room.get)
        rise = room[tightest]
        for flow in active:
            rates[flow] += rise
        for link in room:
            left[link] -= rise * load[link]
        active -= {flow for flow in active if tightest in paths[flow]}
    return [rates[flow] for flow in range(len(paths))]


@st.composite
def networks(draw):
    links = draw(st.integers(1, 7))
    paths = draw(
        st.lists(st.lists(st.integers(0, links - 1), min_size=1, max_size=links, unique=True), min_size=1, max_size=12)
    )
    weights = [draw(st.lists(st.sampled_from([0.25, 0.5, 1.0]), min_size=len(p), max_size=len(p))) for p in paths]
    capacity = draw(st.lists(st.floats(0.5, 100), min_size=links, max_size=links))
    return paths, weights, np.array(capacity)


def routes_of(paths, weights):
    offsets = np.concatenate([[0], np.cumsum([len(path) for path in paths])])
    links, latency_ps = np.concatenate(paths).astype(np.int64), np.zeros(len(paths), np.int64)
    return Routes(offsets, links, np.concatenate(weights), latency_ps)


def solve(paths, weights, capacity):
    table = as_lists(make_flow_table(routes_of(paths, weights), np.ones(len(paths)), capacity))
    add_flows(table, list(range(len(paths))), 0)
    return np.array(table.rate)


@given(networks())
def test_equals_the_naive_oracle(network):
    np.testing.assert_allclose(solve(*network), naive(*network), rtol=1e-9)


@given(networks())
def test_is_feasible_and_every_flow_has_a_bottleneck_where_it_is_largest(network):
    paths, weights, capacity = network
    rates = solve(*network)
    used = np.zeros(len(capacity))
    for path, weight, rate in zip(paths, weights, rates, strict=True):
        used[path] += np.array(weight) * rate
    assert (used <= capacity * (1 + 1e-9)).all()
    for path, rate in zip(paths, rates, strict=True):
        others = {link: max(r for p, r in zip(paths, rates, strict=True) if link in p) for link in path}
        assert any(used[link] >= capacity[link] * (1 - 1e-9) and rate >= others[link] * (1 - 1e-9) for link in path)


@given(networks(), st.data())
def test_stays_fair_while_flows_come_and_go_and_links_change(network, data):
    paths, weights, capacity = network
    routes = routes_of(paths, weights)
    table = as_lists(make_flow_table(routes, np.ones(len(paths)), capacity))
    flying = set()
    for _ in range(data.draw(st.integers(1, 12))):
        changed = data.draw(st.sets(st.integers(0, len(paths) - 1), max_size=4))
        for flow in sorted(changed & flying):
            deactivate_flow(table, flow)
        if data.draw(st.booleans()):
            link = data.draw(st.integers(0, len(capacity) - 1))
            table.capacity[link] = capacity[link] * data.draw(st.sampled_from([0.1, 0.5, 1.0]))
            mark_link(table, link)
        add_flows(table, sorted(changed - flying), 0)
        flying ^= changed
        if flying:
            expected = rates_of(routes, flying, np.array(table.capacity))
            found = {flow: table.rate[flow] for flow in expected}
            assert found == pytest.approx(expected, rel=1e-9)


def by_linear_programs(paths, weights, capacity):
    """Return the lexicographically largest sorted rates: raise the smallest as far as can be, fix who cannot rise."""
    flows = len(paths)
    on_link = np.zeros((len(capacity), flows))
    for flow, (path, weight) in enumerate(zip(paths, weights, strict=True)):
        on_link[path, flow] = weight
    fixed = np.full(flows, np.nan)

    def best(goal, least):
        """Maximise ``goal`` over rates of the free flows that are at least ``least``."""
        free = np.isnan(fixed)
        bounds = [(least, None) if is_free else (rate, rate) for is_free, rate in zip(free, fixed, strict=True)]
        return linprog(-goal, A_ub=on_link, b_ub=capacity * (1 + 1e-12), bounds=bounds, method="highs")

    while np.isnan(fixed).any():
        free = np.isnan(fixed)
        # The largest t so that all free flows get at least t: t is one more variable.
        limits = np.vstack(
            [np.hstack([on_link, np.zeros((len(capacity), 1))]), np.hstack([-np.eye(flows), np.ones((flows, 1))])[free]]
        )
        rooms = np.concatenate([capacity, np.zeros(free.sum())])
        bounds = [(0, None) if is_free else (rate, rate) for is_free, rate in zip(free, fixed, strict=True)] + [
            (0, None)
        ]
        level = linprog(np.append(np.zeros(flows), -1.0), A_ub=limits, b_ub=rooms, bounds=bounds, method="highs").x[-1]
        stuck = [
            flow
            for flow in np.flatnonzero(free)
            if best(np.eye(flows)[flow], level * (1 - 1e-9)).x[flow] <= level * (1 + 1e-6)
        ]
        fixed[stuck] = level
    return fixed


@pytest.mark.slow
@given(networks())
def test_equals_linear_programs(network):
    np.testing.assert_allclose(solve(*network), by_linear_programs(*network), rtol=1e-5)
