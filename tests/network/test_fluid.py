"""The fluid network: sharing, arrivals in the middle, ties, and an oracle that solves everything at every event."""

from dataclasses import replace

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import S2SimError
from s2sim.network.fluid import FluidNetwork
from s2sim.topology.graph import Routes

from .oracle import fair_rates


class Links:
    """Just the rates of a fabric."""

    def __init__(self, rates_Bps):
        self.rate_Bps = np.array(rates_Bps, float)


def routes_of(paths, latencies_ps):
    return Routes(
        offsets=np.concatenate([[0], np.cumsum([len(path) for path in paths])]),
        links=np.concatenate(paths).astype(np.int64),
        weights=np.ones(sum(len(path) for path in paths)),
        latency_ps=np.array(latencies_ps, np.int64),
    )


def finish_times(rates_Bps, transfers, limit_Bps=None):
    """Run (start_ps, path, latency_ps, bytes) transfers and return when each is delivered."""
    env = simpy.Environment(initial_time=0)
    network = FluidNetwork(env, Links(rates_Bps))
    routes = routes_of([t[1] for t in transfers], [t[2] for t in transfers])
    numbers = network.add_routes(replace(routes, limit_Bps=limit_Bps))
    finish = np.full(len(transfers), -1)

    def delivered(tags):
        finish[tags] = env.now

    owner = network.add_owner(delivered)

    def sender(index):
        yield env.timeout(transfers[index][0])
        one = np.array([index])
        network.send(numbers[one], np.array([transfers[index][3]], float), owner, one)

    for index in range(len(transfers)):
        env.process(sender(index))
    env.run()
    return finish


def oracle(rates_Bps, transfers):
    """Solve all flows in flight anew at every arrival and completion, in floating-point seconds."""
    capacity = np.array(rates_Bps, float)
    arrivals = sorted((start * 1e-12 + latency * 1e-12, i) for i, (start, _, latency, _) in enumerate(transfers))
    left = {}
    finish = np.zeros(len(transfers))
    now = 0.0
    while arrivals or left:
        rates = {}
        if left:
            flows = list(left)
            paths = [transfers[i][1] for i in flows]
            offsets = np.concatenate([[0], np.cumsum([len(p) for p in paths])])
            solved = fair_rates(offsets, np.concatenate(paths), np.ones(offsets[-1]), capacity)
            rates = dict(zip(flows, solved, strict=True))
        ends = {i: now + left[i] / rates[i] for i in left}
        then = min([*ends.values(), *([arrivals[0][0]] if arrivals else [])])
        for i in left:
            left[i] -= rates[i] * (then - now)
        now = then
        for i in [i for i in left if left[i] <= 1e-9 * max(1, transfers[i][3])]:
            finish[i] = now
            del left[i]
        while arrivals and arrivals[0][0] <= now + 1e-15:
            _, i = arrivals.pop(0)
            left[i] = float(transfers[i][3])
    return finish


def test_one_flow_takes_latency_plus_bytes_over_its_narrowest_link():
    assert finish_times([1e9, 5e8], [(0, [0, 1], 2_000_000, 1000)])[0] == 2_000_000 + 2_000_000


def test_two_flows_share_a_link_and_the_rest_goes_at_full_rate():
    # 1000 B and 3000 B at 1 GB/s: both at half rate until 2 us, the rest of the second takes 2 us more.
    finish = finish_times([1e9], [(0, [0], 0, 1000), (0, [0], 0, 3000)])
    assert finish.tolist() == [2_000_000, 4_000_000]


def test_a_flow_that_comes_in_the_middle_slows_the_first_down():
    # 1000 B alone for 0.5 us, then shared: 500 B left at half rate take 1 us.
    finish = finish_times([1e9], [(0, [0], 0, 1000), (500_000, [0], 0, 4000)])
    assert finish[0] == 1_500_000
    assert finish[1] == 5_000_000


def test_latency_passes_before_bytes_share():
    finish = finish_times([1e9], [(0, [0], 0, 1000), (0, [0], 1_000_000, 1000)])
    assert finish.tolist() == [1_000_000, 2_000_000]


def test_nothing_takes_its_latency():
    assert finish_times([1e9], [(3, [0], 77, 0)])[0] == 80


@pytest.mark.parametrize("count", [2, 3, 7])
def test_equal_flows_are_one_event(count):
    env = simpy.Environment(initial_time=0)
    network = FluidNetwork(env, Links([1e9]))
    numbers = network.add_routes(routes_of([[0]] * count, [5] * count))
    told = []
    owner = network.add_owner(lambda tags: told.append(tags.tolist()))
    network.send(numbers, np.full(count, 1000.0), owner, np.arange(count))
    env.run()
    assert told == [list(range(count))]
    assert network.solves == 1


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3_000_000),
            st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True),
            st.sampled_from([0, 100, 500_000]),
            st.integers(1, 5000),
        ),
        min_size=1,
        max_size=10,
    )
)
def test_equals_an_oracle_that_solves_everything_every_time(transfers):
    rates = [1e9, 2e9, 5e8, 1e9, 3e9]
    expected = oracle(rates, transfers) * 1e12
    np.testing.assert_allclose(finish_times(rates, transfers), expected, rtol=1e-6, atol=20)


def test_what_takes_longer_than_can_be_counted_is_refused():
    with pytest.raises(S2SimError, match="over 27 days"):
        finish_times([1.0], [(0, [0], 0, 10**9)])


@given(st.data())
def test_a_limit_is_a_link_that_a_transfer_has_for_itself(data):
    rates_Bps = data.draw(st.lists(st.sampled_from([1e9, 2e9, 5e9, 1e10]), min_size=3, max_size=3))
    paths = st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True)
    start, latency, size = st.integers(0, 10**6), st.integers(0, 10**5), st.integers(1, 10**6)
    transfers = data.draw(st.lists(st.tuples(start, paths, latency, size), min_size=1, max_size=6))
    limits = st.sampled_from([3e8, 1e9, 4e9, np.inf])
    limit_Bps = np.array(data.draw(st.lists(limits, min_size=len(transfers), max_size=len(transfers))))
    routes, own_Bps = replace(
        routes_of([t[1] for t in transfers], [t[2] for t in transfers]), limit_Bps=limit_Bps
    ).with_limits_as_links(3)
    with_links = [
        (start, routes.links[routes.offsets[i] : routes.offsets[i + 1]], latency, size)
        for i, (start, _, latency, size) in enumerate(transfers)
    ]
    expected_ps = finish_times([*rates_Bps, *own_Bps], with_links)
    assert finish_times(rates_Bps, transfers, limit_Bps) == pytest.approx(expected_ps, rel=1e-9, abs=len(transfers))


def test_what_ends_within_a_billionth_of_its_duration_ends_with_the_last_of_it():
    """Three links of their own, for a second, 300 ps and 5 ns more: no byte arrives before its time."""
    second = 10**12
    finish = finish_times([1e12] * 3, [(0, [0], 0, 1e12), (0, [1], 0, 1e12 + 300), (0, [2], 0, 1e12 + 5000)])
    assert finish.tolist() == [second + 300, second + 300, second + 5000]
