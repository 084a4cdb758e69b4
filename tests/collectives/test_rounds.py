"""Rounds timed by their bounds, by content and at other rates, beside all of their messages solved afresh."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.schedule import Pattern, Round
from s2sim.collectives.timing.rounds import RoundTimes, bytes_by_pattern
from s2sim.collectives.timing.routes import RouteTable
from s2sim.collectives.timing.timer import Timer
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape
from s2sim.topology.shape import with_rate

TOPOLOGIES = ("fat-tree", "leaf-spine", "single-switch", "rail-optimised", "torus", "dragonfly")


@st.composite
def rounds(draw):
    """Draw a cluster, and a round of messages of one size or of several on it."""
    topology = draw(st.sampled_from(TOPOLOGIES))
    placement = draw(st.sampled_from(["linear", "random"]))
    cluster = build_cluster(load_shape(topology), draw(st.integers(2, 40)), placement=placement)
    pair = st.tuples(st.integers(0, cluster.workers - 1), st.integers(1, cluster.workers - 1))
    pairs = np.array(draw(st.lists(pair, min_size=1, max_size=60)))
    sizes = st.sampled_from([0.0, 1.0, 8192.5, 1e6, 3e6])
    sizes_bytes = np.array(draw(st.lists(sizes, min_size=len(pairs), max_size=len(pairs))))
    if draw(st.booleans()):
        sizes_bytes[:] = sizes_bytes[0]
    return cluster, Round(Pattern(pairs[:, 0], pairs.sum(axis=1) % cluster.workers), sizes_bytes)


def at_rate(cluster, rate_Bps):
    return build_cluster(
        with_rate(cluster.shape, "nic.rate", rate_Bps), cluster.workers, placement=cluster.placement, seed=cluster.seed
    )


@pytest.mark.slow
@given(drawn=rounds(), rate_Bps=st.sampled_from([1e6, 1e9, 3e10, 4e11]), release=st.sampled_from(["delivered", "sent"]))
@settings(max_examples=200, deadline=None)
def test_a_round_takes_what_all_its_messages_solved_afresh_take(drawn, rate_Bps, release):
    """Also at another rate with the same routes."""
    cluster, sent = drawn
    ways = RouteTable(cluster)
    for at in (cluster, at_rate(cluster, rate_Bps)):
        times = RoundTimes(at, release, ways)
        left_ps, delivered_ps = RoundTimes(at, release).message_ps(sent)
        assert times.time_ps(sent) == delivered_ps.max()
        assert times.at_least_ps(sent) <= delivered_ps.max()
        if release == "sent":
            assert times.left_ps(sent) == left_ps.max()
    assert ways.searches == 1


def test_messages_share_links_by_way_of_others_however_many(monkeypatch):
    """Three chains of messages that share a link with the next: looked at all at once, or followed as a graph."""
    cluster = build_cluster(load_shape("single-switch"), 90)
    src = np.arange(90)
    # In a stretch of 30 ranks, rank r sends to r + 1 and r + 2, but none out of it.
    pairs = [(rank, rank + step) for rank in src for step in (1, 2) if rank // 30 == (rank + step) // 30 < 3]
    pattern = Pattern(*np.array([pair for pair in pairs if max(pair) < 90]).T)
    way = RouteTable(cluster).of(pattern)
    for first in (0, 29, len(pattern.src) - 1):
        chosen = np.zeros(len(pattern.src), np.bool_)
        chosen[first] = True
        found = way.sharing_with(chosen)
        monkeypatch.setattr("s2sim.collectives.timing.routes._PASSES", 10**6)
        np.testing.assert_array_equal(way.sharing_with(chosen), found)
        monkeypatch.undo()
        np.testing.assert_array_equal(found, pattern.src // 30 == pattern.src[first] // 30)
        assert 0 < found.sum() < len(found)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_routes_do_not_depend_on_rates(topology):
    cluster = build_cluster(load_shape(topology), 40, placement="random")
    pairs = np.nonzero(~np.eye(40, dtype=bool))
    one, other = cluster.routes(*pairs), at_rate(cluster, 3e10).routes(*pairs)
    for name in ("offsets", "links", "weights", "latency_ps"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


def test_a_round_is_known_by_its_content():
    cluster = build_cluster(load_shape("leaf-spine"), 32, placement="random")
    times = RoundTimes(cluster, ways=(ways := RouteTable(cluster)))
    ranks = np.arange(32)
    rng = np.random.default_rng(1)
    sizes = [rng.integers(1, 10**6, 32).astype(float) for _ in range(2)]
    found = [times.time_ps(Round(Pattern(ranks, (ranks + 5) % 32), each)) for each in (*sizes, *sizes)]
    assert found[:2] == found[2:]
    assert (ways.searches, times.solved) == (1, 2)
    # Those that differ in anything are others.
    others = [Pattern(ranks, (ranks + 6) % 32), Pattern(ranks[::-1].copy(), (ranks + 5) % 32)]
    assert len({pattern.key for pattern in (Pattern(ranks, (ranks + 5) % 32), *others)}) == 3
    switched = Pattern(ranks, (ranks + 5) % 32, through_switch=True)
    assert switched.key != Pattern(ranks, (ranks + 5) % 32).key


@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling"])
def test_where_the_busiest_link_tells_nothing_is_solved(algorithm):
    cluster = build_cluster(load_shape("leaf-spine"), 64, placement="round-robin")
    timed = Timer(cluster, algorithm).time(Demand("all_reduce", (2**20,) * 64, 4))
    assert timed.times.solved == 0
    shared = [~timed.times.alone(step.round.pattern) for step in timed.schedule.steps]
    assert any(each.any() for each in shared)
    plain = [RoundTimes(cluster).message_ps(step.round)[1].max() * step.times for step in timed.schedule.steps]
    assert timed.duration_ps == sum(plain)


def test_a_switch_takes_one_message():
    cluster = build_cluster(load_shape("leaf-spine"), 16)
    schedule = make_algorithm("in-network", "all_reduce").schedule(Demand("all_reduce", (1000,) * 16, 4), cluster)
    times = RoundTimes(cluster)
    (step,) = schedule.steps
    assert times.time_ps(step.round) == times.message_ps(step.round)[1].max()


@pytest.mark.parametrize("algorithm", ["pairwise", "spread"])
def test_messages_of_some_pairs_are_those_of_all_that_are_asked_for(algorithm, monkeypatch):
    """Also where patterns are put together, and where too many are open to wait for their next round."""
    cluster = build_cluster(load_shape("leaf-spine"), 24)
    timed = Timer(cluster, algorithm).time(Demand("all_to_all", tuple(range(24, 48)), 4))

    def wanted(src, dst):
        return (src + 2 * dst) % 3 == 0

    def sent(only=None):
        found = np.zeros((24, 24))
        for pattern, sizes_bytes in bytes_by_pattern(timed.schedule, only):
            np.add.at(found, (pattern.src, pattern.dst), sizes_bytes)
        return found

    every = sent()
    chosen = np.where(wanted(*np.indices((24, 24))), every, 0)
    assert every.sum() == pytest.approx(sum(range(24, 48)) * 4 * 23 / 24)
    np.testing.assert_array_equal(sent(wanted), chosen)
    monkeypatch.setattr("s2sim.collectives.timing.rounds._MESSAGES_PER_BATCH", 30)
    np.testing.assert_array_equal(sent(wanted), chosen)
    np.testing.assert_array_equal(sent(), every)


def test_patterns_that_take_turns_are_told_once():
    cluster = build_cluster(load_shape("leaf-spine"), 16)
    timed = Timer(cluster, "ring:chunks=4,release=sent").time(Demand("all_reduce", (2**20,) * 16, 4))
    assert len({id(step.round.pattern) for step in timed.schedule.steps}) == 4
    ((_, sizes_bytes),) = bytes_by_pattern(timed.schedule)
    assert sizes_bytes == pytest.approx(np.full(16, 2 * 15 / 16 * 2**22))


def test_a_part_of_a_pattern_has_its_routes():
    cluster = build_cluster(load_shape("leaf-spine"), 32, placement="random")
    whole, chosen = Pattern(np.arange(31), np.arange(1, 32)), np.array([3, 4, 17])
    ways = RouteTable(cluster)
    ways.of(whole)
    part, plain = whole.part(chosen), Pattern(whole.src[chosen], whole.dst[chosen])
    assert len({whole.key, part.key, whole.part(chosen[:2]).key}) == 3
    for name in ("offsets", "links", "weights", "latency_ps"):
        np.testing.assert_array_equal(
            getattr(ways.routes(part), name), getattr(RouteTable(cluster).routes(plain), name)
        )
    assert ways.searches == 1
