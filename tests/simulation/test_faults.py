"""Faults as values, and what jitter and background traffic draw."""

from dataclasses import replace

import numpy as np
import pytest
import simpy

from s2sim.errors import OptionError, S2SimError, TopologyError, UnitError, UnknownNameError
from s2sim.simulation.faults.fault import FaultyNetwork, apply_permanent_faults, arrivals_ps
from s2sim.simulation.faults.registry import FAULTS, make_fault, make_faults

TREE = 'kind = "fat-tree"\nhosts_per_leaf = 2\nuplinks_per_leaf = 2'


@pytest.mark.parametrize("cls", [FAULTS.get(name) for name in FAULTS.names()], ids=FAULTS.names())
def test_examples_read_back(cls):
    fault = make_fault(cls.example)
    assert type(fault) is cls
    assert make_fault(fault.text) == fault


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("slow-lnk:link=a,factor=0.5", UnknownNameError, "did you mean 'slow-link'"),
        ("slow-link:link=a", OptionError, "needs factor=, for example slow-link:link="),
        ("slow-link", OptionError, "needs factor= and link="),
        ("slow-link:link=a,factr=0.5", OptionError, "did you mean 'factor'"),
        ("slow-link:link=a,factor=1", OptionError, "between 0 and 1"),
        ("slow-link:link=a,factor=half", OptionError, "is not a number"),
        ("slow-link:link=a,factor=0.5,at=2ms,until=2ms", OptionError, "must come after"),
        ("fail-link:link=a,at=2", UnitError, "has no unit"),
        ("slow-rank:rank=3", OptionError, "either factor="),
        ("slow-rank:rank=3,factor=2,delay=1ms", OptionError, "either factor="),
        ("slow-rank:rank=3,factor=1", OptionError, "more than 1"),
        ("slow-rank:rank=3,factor=1e12", OptionError, "at most 10,000"),
        ("slow-rank:rank=3,delay=0s", OptionError, "delays nothing"),
        ("slow-rank:rank=-1,delay=1s", OptionError, "negative"),
        ("jitter:latency=0us", OptionError, "adds nothing"),
        ("jitter:latency=1e5s", OptionError, "to 1 s"),
        ("background:load=1.5", OptionError, "between 0 and 1"),
        ("background:load=0.5,size=0B", OptionError, "load nothing"),
    ],
)
def test_what_cannot_be_is_refused(text, error, match):
    with pytest.raises(error, match=match):
        make_fault(text)


def test_the_same_fault_twice_is_refused():
    with pytest.raises(OptionError, match="asked for twice"):
        make_faults(["background:load=0.5", "background:load=0.5,size=1MiB"])
    assert len(make_faults(["background:load=0.5", "background:load=0.5,size=2MiB"])) == 2


def test_what_lasts_from_the_start_on_is_a_property_of_the_cluster(make_cluster):
    texts = ["slow-link:link=node*.out,factor=0.5", "slow-link:link=node0.*,factor=0.5", "fail-link:link=leaf0.up1"]
    faults = make_faults([*texts, "fail-link:link=leaf0.up0,at=1ms", "slow-link:link=leaf0.up0,factor=0.1,until=1ms"])
    assert [fault.permanent for fault in faults] == [True, True, True, False, False]
    healthy = make_cluster(4, TREE)
    cluster = apply_permanent_faults(healthy, faults)
    factors = dict(zip(healthy.fabric.link_names, cluster.fabric.rate_Bps / healthy.fabric.rate_Bps, strict=True))
    assert [factors[f"node{node}.nic0.{way}"] for node in (0, 1) for way in ("out", "in")] == [0.25, 0.5, 0.5, 1]
    assert factors["leaf0.up0"] == 1
    assert "leaf0.up1" not in [cluster.fabric.link_names[link] for link in cluster.routes([0], [3]).links]
    assert apply_permanent_faults(healthy, make_faults(["jitter:latency=1us"])) is healthy


def test_links_and_ranks_that_do_not_exist_are_refused(make_cluster):
    cluster = make_cluster(4, TREE)
    for when in ("", ",at=1ms"):
        with pytest.raises(TopologyError, match=r"no link 'leaf0\.upp1' \(did you mean 'leaf0\.up1'"):
            apply_permanent_faults(cluster, make_faults([f"fail-link:link=leaf0.upp1{when}"]))
    with pytest.raises(OptionError, match="4 ranks in all"):
        apply_permanent_faults(cluster, make_faults(["slow-rank:rank=4,delay=1s"]))
    with pytest.raises(OptionError, match="slows GPU work, and a collective has none"):
        arrivals_ps(make_faults(["slow-rank:rank=1,factor=2"]), 4, "a collective")
    with pytest.raises(OptionError, match="all ranks are in one"):
        FaultyNetwork(simpy.Environment(), make_cluster(1, TREE), make_faults(["background:load=0.5"]))


def test_delays_of_a_rank_add():
    faults = make_faults(["slow-rank:rank=1,delay=1us", "slow-rank:rank=1,delay=2us", "slow-rank:rank=0,delay=1ns"])
    assert arrivals_ps(faults, 3, "a collective").tolist() == [1000, 3_000_000, 0]


def disturb(cluster, *texts, seed=0):
    return FaultyNetwork(simpy.Environment(initial_time=0), replace(cluster, seed=seed), make_faults(texts))


def test_jitter_is_exponential_and_independent_of_the_order_of_events(make_cluster):
    cluster = make_cluster(4, TREE)
    one, two = (disturb(cluster, "jitter:latency=2us") for _ in range(2))
    rounds = [(0, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0)]
    first = {key: one.late_ps(*key, 50_000) for key in rounds}
    second = {key: two.late_ps(*key, 50_000) for key in reversed(rounds)}
    for key in rounds:
        assert first[key].tolist() == second[key].tolist()
        assert first[key].mean() == pytest.approx(2e6, rel=0.02)
        # As many are later than the mean as an exponential distribution has it.
        assert (first[key] > 2e6).mean() == pytest.approx(np.exp(-1), abs=0.01)
    assert len({tuple(draws[:10]) for draws in first.values()}) == len(rounds)
    assert disturb(cluster, "jitter:latency=2us", seed=1).late_ps(0, 0, 0, 9).tolist() != first[0, 0, 0][:9].tolist()
    (effect,) = one.effects()
    assert effect.description == "200,000 messages were late, by 1.995 us on average"


def test_two_kinds_of_jitter_add(make_cluster):
    both = disturb(make_cluster(4, TREE), "jitter:latency=2us", "jitter:latency=6us").late_ps(0, 0, 0, 50_000)
    assert both.mean() == pytest.approx(8e6, rel=0.02)
    # Variances of independent draws add.
    assert both.std() == pytest.approx(np.hypot(2e6, 6e6), rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("node", "extra", "ranks"), [("gpus = 1", "", 6), ("gpus = 4", '[nvlink]\nrate = "1TB/s"', 22)]
)
def test_background_loads_interfaces_to_its_share(make_cluster, node, extra, ranks):
    cluster = make_cluster(ranks, TREE, node=node, extra=extra)
    disturbance = disturb(cluster, "background:load=0.3,size=64KiB")
    seconds = 0.005
    disturbance.network.env.run(until=round(seconds * 1e12))
    routes, src, dst, carried = disturbance.network.sent()
    on_links = np.bincount(routes.links, np.repeat(carried, np.diff(routes.offsets)) * routes.weights)
    for way in ("out", "in"):
        part = cluster.fabric.blocks[f"nic.{way}"].part
        share = on_links[part] / cluster.fabric.rate_Bps[part] / seconds
        assert share.mean() == pytest.approx(0.3, rel=0.03)
        if way == "out":
            assert share == pytest.approx(0.3, rel=0.12)
    assert (cluster.node_of_rank[src] != cluster.node_of_rank[dst]).all()
    assert set(src.tolist()) == set(dst.tolist()) == set(range(ranks))
    (effect,) = disturbance.effects()
    assert "30." in effect.description or "29." in effect.description


def test_background_that_fills_a_link_is_refused_with_the_largest_load(make_cluster):
    ring = make_cluster(4, 'kind = "ring"\nlink.rate = "10GiB/s"')
    # Clockwise go all messages to the next host, and over two links those to the one after: all that a host sends at
    # 50 GiB/s, over 10 GiB/s.
    disturb(ring, "background:load=0.19")
    with pytest.raises(OptionError, match=r"load=0\.21 .* would fill link node[0-3]\.clockwise.* most load=0\.199"):
        disturb(ring, "background:load=0.21")
    tree = make_cluster(8, 'kind = "fat-tree"\nhosts_per_leaf = 4\nuplinks_per_leaf = 1')
    # 4 hosts send 4/7 of what they send over one uplink: 16/7 at load 1, full at 7/16.
    disturb(tree, "background:load=0.43")
    with pytest.raises(OptionError, match=r"load=0\.44 .* would fill link leaf[01]\.up0.* at most load=0\.435"):
        disturb(tree, "background:load=0.44")


@pytest.mark.slow
def test_background_is_seeded(make_cluster):
    cluster = make_cluster(6, TREE)

    def sent(seed):
        disturbance = disturb(cluster, "background:load=0.3,size=64KiB", seed=seed)
        disturbance.network.env.run(until=10**9)
        return disturbance.network.sent()[3].tolist()

    assert sent(0) == sent(0)
    assert sent(0) != sent(1)


def test_background_that_would_take_too_long_is_refused(make_cluster, monkeypatch):
    monkeypatch.setattr("s2sim.network.time_varying._MAX_MESSAGES", 300)
    disturbance = disturb(make_cluster(4, TREE), "background:load=0.5,size=1B")
    with pytest.raises(S2SimError, match="ask for larger ones"):
        disturbance.network.env.run(until=10**12)
