"""Links that slow down, recover and fail under flows: phases by hand, and an oracle that solves everything."""

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import TopologyError
from s2sim.network.time_varying import TimeVaryingNetwork
from s2sim.topology.cluster import build_cluster
from s2sim.topology.links import find_links
from s2sim.topology.read_file import load_shape

from .oracle import fair_rates

RATE_BPS = 50 * 2**30
SIZE = 50 * 2**20
ALONE_PS = SIZE / RATE_BPS * 1e12
TREE = 'kind = "fat-tree"\nhosts_per_leaf = 2\nuplinks_per_leaf = 2'


class Sending:
    """Transfers on a network whose links change, and when they are delivered."""

    def __init__(self, cluster, transfers, changes=()):
        self.env = simpy.Environment(initial_time=0)
        self.network = TimeVaryingNetwork(self.env, cluster)
        self.cluster = cluster
        src, dst = (np.array([transfer[side] for transfer in transfers]) for side in (1, 2))
        self.numbers = self.network.add_routes(cluster.routes(src, dst))
        self.network.join(self.numbers, src, dst)
        self.finish_ps = np.full(len(transfers), -1.0)
        self.owner = self.network.add_owner(self.delivered)
        self.changed = []
        for index, (start_ps, _, _, size) in enumerate(transfers):
            self.env.process(self.send(index, start_ps, size))
        for change in changes:
            self.env.process(self.change(*change))
        self.env.run()

    def delivered(self, tags):
        self.finish_ps[tags] = self.env.now

    def send(self, index, start_ps, size):
        yield self.env.timeout(int(start_ps))
        one = np.array([index])
        self.network.send(self.numbers[one], np.array([float(size)]), self.owner, one)

    def change(self, pattern, at_ps, factor=0.0, until_ps=None):
        links = find_links(self.cluster.fabric, pattern, "it")
        yield self.env.timeout(int(at_ps))
        if factor == 0:
            self.changed.append(self.network.fail(links, f"{pattern} failed"))
            return
        change = self.network.slow_down(links, factor)
        self.changed.append(change)
        if until_ps is not None:
            yield self.env.timeout(int(until_ps - at_ps))
            self.network.recover(change)


@pytest.fixture
def tree(make_cluster):
    return make_cluster(4, TREE)


def test_a_link_that_is_slow_for_a_while(tree):
    # A quarter at full rate, a quarter at half rate, the rest at full rate.
    sent = Sending(tree, [(0, 0, 2, SIZE)], [("leaf0.up0", ALONE_PS / 4, 0.5, ALONE_PS * 3 / 4)])
    assert sent.finish_ps == pytest.approx(1.25 * ALONE_PS)
    assert [change.messages for change in sent.changed] == [1]


def test_slow_downs_multiply_and_end_one_by_one(tree):
    halves = [("node0.nic0.out", 0, 0.5), ("node0.nic0.*", ALONE_PS, 0.5, ALONE_PS * 2)]
    # Half of it in the first phase, a quarter in the second, the last quarter at half rate.
    assert Sending(tree, [(0, 0, 1, SIZE)], halves).finish_ps == pytest.approx(2.5 * ALONE_PS)


def test_what_is_in_flight_goes_on_another_way_with_what_it_has_left(tree):
    transfers = [(0, 0, 2, SIZE), (0, 1, 3, SIZE)]
    assert Sending(tree, transfers).finish_ps == pytest.approx(ALONE_PS)
    sent = Sending(tree, transfers, [("leaf0.up1", ALONE_PS / 2)])
    # Half of both alone, the rest shares the one up-port that is left.
    assert sent.finish_ps == pytest.approx(1.5 * ALONE_PS)
    assert [change.messages for change in sent.changed] == [1]
    routes, src, dst, carried = sent.network.sent()
    assert sorted(zip(src.tolist(), dst.tolist(), np.round(carried).tolist(), strict=True)) == [
        (0, 2, SIZE),
        (1, 3, SIZE / 2),
        (1, 3, SIZE / 2),
    ]
    on_links = np.bincount(routes.links, np.repeat(carried, np.diff(routes.offsets)), len(tree.fabric))
    loads = {tree.fabric.link_names[link]: round(on_links[link] / SIZE, 6) for link in np.flatnonzero(on_links)}
    assert loads["leaf0.up0"] == 1.5
    assert loads["leaf0.up1"] == 0.5


def test_what_comes_later_takes_the_other_way(tree):
    sent = Sending(tree, [(5, 1, 3, SIZE), (5 + ALONE_PS, 1, 3, SIZE), (5, 0, 2, 0)], [("leaf0.up1", 0)])
    assert sent.finish_ps == pytest.approx([5 + ALONE_PS, 5 + 2 * ALONE_PS, 5])
    assert [change.messages for change in sent.changed] == [2]


def test_a_failure_at_the_moment_of_the_last_byte_changes_nothing(tree):
    sent = Sending(tree, [(0, 1, 3, SIZE)], [("node1.nic0.out", round(ALONE_PS))])
    assert sent.finish_ps == pytest.approx(ALONE_PS)
    assert [change.messages for change in sent.changed] == [0]


def test_failures_that_follow_each_other(make_cluster):
    cluster = make_cluster(4, 'kind = "fat-tree"\nhosts_per_leaf = 2\nuplinks_per_leaf = 3')
    # In thirds: on its own port, on one of the two others, on the last.
    first = Sending(cluster, [(0, 0, 2, SIZE)], [("leaf0.up2", ALONE_PS / 3)])
    taken = [cluster.fabric.link_names[link] for link in first.network.sent()[0].links]
    second = next(name for name in taken if name in ("leaf0.up0", "leaf0.up1"))
    sent = Sending(cluster, [(0, 0, 2, SIZE)], [("leaf0.up2", ALONE_PS / 3), (second, ALONE_PS * 2 / 3)])
    assert sent.finish_ps == pytest.approx(ALONE_PS)
    assert [change.messages for change in sent.changed] == [1, 1]
    assert sent.network.sent()[3] == pytest.approx(SIZE / 3)


def test_who_cannot_be_reached_is_named(tree):
    with pytest.raises(TopologyError, match=r"rank 1 cannot reach rank 3 after node1\.nic0\.out failed"):
        Sending(tree, [(0, 1, 3, SIZE)], [("node1.nic0.out", 1000)])
    with pytest.raises(TopologyError, match=r"rank 0 cannot reach rank 2 after leaf0\.up0 failed and leaf0\.up1"):
        Sending(tree, [(ALONE_PS, 0, 2, SIZE)], [("leaf0.up0", 5), ("leaf0.up1", 10)])
    # Nobody asks for a dead link.
    assert Sending(tree, [(0, 0, 1, SIZE)], [("node2.nic0.in", 1000)]).finish_ps == pytest.approx(ALONE_PS)


def test_latency_that_passes_is_not_waited_for_again(make_cluster):
    cluster = make_cluster(4, 'kind = "ring"\n[fabric.link]\nlatency = "1us"')
    name = cluster.fabric.link_names[cluster.routes([0], [1]).links[1]]
    before_ps, after_ps = 1_000_000, 3_000_000
    on_its_way = Sending(cluster, [(0, 0, 1, SIZE)], [(name, 10)])
    assert on_its_way.finish_ps == pytest.approx(before_ps + ALONE_PS)
    later = Sending(cluster, [(20, 0, 1, SIZE)], [(name, 10)])
    assert later.finish_ps == pytest.approx(20 + after_ps + ALONE_PS)


def oracle(cluster, transfers, slow):
    """Solve all flows in flight anew at every arrival, completion and change, in floating-point seconds."""
    fabric = cluster.fabric
    routes = cluster.routes(*(np.array([transfer[side] for transfer in transfers]) for side in (1, 2)))
    paths = [routes.links[slice(*routes.offsets[i : i + 2])] for i in range(len(transfers))]
    moments = sorted({*(t[0] for t in transfers), *(s[1] for s in slow), *(s[3] for s in slow)})
    left, finish, now = {}, np.zeros(len(transfers)), 0.0
    while moments or left:
        rate = fabric.rate_Bps / 1e12
        for link, at, factor, until in slow:
            if at <= now < until:
                rate[link] *= factor
        rates = {}
        if left:
            offsets = np.concatenate([[0], np.cumsum([len(paths[i]) for i in left])])
            links = np.concatenate([paths[i] for i in left])
            rates = dict(zip(left, fair_rates(offsets, links, np.ones(len(links)), rate), strict=True))
        ends = {i: now + left[i] / rates[i] for i in left}
        then = min([*ends.values(), *moments[:1]])
        for i in list(left):
            left[i] -= rates[i] * (then - now)
            if ends[i] <= then * (1 + 1e-9):
                finish[i] = then
                del left[i]
        now = then
        if moments and moments[0] <= now:
            moments.pop(0)
            left.update({i: float(t[3]) for i, t in enumerate(transfers) if t[0] == now})
    return finish


@given(st.data())
def test_equals_an_oracle_while_links_slow_down_and_recover(data):
    overrides = ["node.gpus=1", "nic.latency=0s", "fabric.link.latency=0s", "fabric.hosts_per_leaf=2", "nic.rate=8Gbps"]
    cluster = build_cluster(load_shape("fat-tree", overrides), 6)
    rank, moment = st.integers(0, 5), st.integers(0, 9_000_000)
    pairs = st.tuples(moment, rank, rank, st.integers(1, 5000)).filter(lambda each: each[1] != each[2])
    transfers = data.draw(st.lists(pairs, min_size=1, max_size=8))
    link = st.integers(0, len(cluster.fabric) - 1)
    span = st.tuples(moment, moment).filter(lambda each: each[0] < each[1])
    drawn = data.draw(st.lists(st.tuples(link, span, st.sampled_from([0.1, 0.5, 0.9])), max_size=5))
    slow = [(link, at, factor, until) for link, (at, until), factor in drawn]
    changes = [(cluster.fabric.link_names[link], at, factor, until) for link, at, factor, until in slow]
    expected = oracle(cluster, transfers, slow)
    np.testing.assert_allclose(Sending(cluster, transfers, changes).finish_ps, expected, rtol=1e-6, atol=20)
