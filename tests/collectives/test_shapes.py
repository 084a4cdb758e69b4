"""Collectives at several rates with schedules made once, beside timers that make everything anew; tables of blocks."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s2sim.arrays import BlockTable, sum_tables
from s2sim.collectives.schedules.demand import Blocks, Demand, all_to_all_demand, exchanged_bytes, make_demand
from s2sim.collectives.timing.bounds import duration_floor_ps, lower_bound
from s2sim.collectives.timing.library_profile import NO_OVERHEADS
from s2sim.collectives.timing.routes import RouteTable, components
from s2sim.collectives.timing.shapes import KeptSchedules, distinct_rows
from s2sim.collectives.timing.timer import AUTO, Timer
from s2sim.libraries.nccl import NcclProfile
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape
from s2sim.topology.shape import with_rate

NCCL = NcclProfile("nccl")
IDEAL = NO_OVERHEADS
TOPOLOGIES = ("dgx-h100", "dgx-a100", "fat-tree", "leaf-spine", "rail-optimised", "torus", "dragonfly")
RATES_BPS = (1.25e6, 3e9, 5e10, 4e11)


def assert_kept_as_afresh(shape, workers, demand, profile, algorithm=AUTO, placement="linear"):
    first = build_cluster(shape, workers, placement=placement)
    ways = RouteTable(first)
    ways.kept = KeptSchedules(ways)
    clusters = [build_cluster(with_rate(shape, "nic.rate", rate), workers, placement=placement) for rate in RATES_BPS]
    for cluster in (first, *clusters):
        kept, afresh = (Timer(cluster, algorithm, each, profile) for each in (ways, None))
        found, expected = kept.time(demand), afresh.time(demand)
        assert (found.duration_ps, found.why) == (expected.duration_ps, expected.why)
        assert found.schedule.text == expected.schedule.text
        bounds = [duration_floor_ps(each.schedule, each.times) for each in (found, expected)]
        assert bounds[0] == bounds[1]
        for ours, theirs in zip(found.schedule.traffic(), expected.schedule.traffic(), strict=True):
            assert np.array_equal(ours, theirs)
    assert len(found.schedule.steps) == len(expected.schedule.steps)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather"])
@pytest.mark.parametrize("size_bytes", [4096, 40_000_004])
def test_schedules_made_once_take_the_time_of_those_made_afresh(kind, size_bytes):
    assert_kept_as_afresh(load_shape("dgx-h100"), 24, make_demand(kind, size_bytes, 24), NCCL)


@pytest.mark.parametrize("algorithm", ["double-binary-tree:chunks=5", "ring", "ring:channels=3", "chain:chunks=4"])
@pytest.mark.parametrize("profile", [NCCL, IDEAL])
def test_every_kept_algorithm_is_as_afresh(algorithm, profile):
    kind = "broadcast" if algorithm.startswith("chain") else "all_reduce"
    shape = load_shape("fat-tree", ("node.gpus=2",))
    assert_kept_as_afresh(shape, 12, make_demand(kind, 1_000_003, 12), profile, algorithm, "random")


@pytest.mark.slow
@given(
    topology=st.sampled_from(TOPOLOGIES),
    workers=st.integers(2, 40),
    placement=st.sampled_from(["linear", "random", "round-robin"]),
    size_bytes=st.integers(0, 10**9),
    nccl=st.booleans(),
    algorithm=st.sampled_from([AUTO, "ring", "double-binary-tree:chunks=7"]),
)
@settings(max_examples=150, deadline=None)
def test_kept_schedules_equal_those_made_afresh(topology, workers, placement, size_bytes, nccl, algorithm):
    demand, shape = make_demand("all_reduce", size_bytes, workers), load_shape(topology)
    profile = NCCL if nccl and NCCL.unmodelled_reason(shape) is None else IDEAL
    assert_kept_as_afresh(shape, workers, demand, profile, algorithm, placement)


def test_links_with_one_digest_are_told_apart(monkeypatch):
    monkeypatch.setattr("s2sim.collectives.timing.shapes._MIX", np.uint64(0))
    assert_kept_as_afresh(load_shape("dgx-h100"), 16, make_demand("all_reduce", 10**7, 16), NCCL)


def test_links_of_one_kind_that_differ_are_timed_afresh():
    cluster = build_cluster(load_shape("dgx-h100"), 16)
    ways = RouteTable(cluster)
    ways.kept = KeptSchedules(ways)
    rates = cluster.fabric.rate_Bps.copy()
    assert ways.kept.capacity(rates) is not None
    rates[0] /= 2
    assert ways.kept.capacity(rates) is None


def test_emptied_caches_find_the_same_again():
    cluster = build_cluster(load_shape("dgx-h100"), 16)
    ways, demand = RouteTable(cluster), make_demand("all_reduce", 10**6, 16)
    before = Timer(cluster, "ring", ways, NCCL).time(demand).duration_ps
    ways.forget()
    assert Timer(cluster, "ring", ways, NCCL).time(demand).duration_ps == before


def test_rows_with_one_digest_are_told_apart(monkeypatch):
    columns = [np.array([3, 1, 3, 1]), np.array([0.0, 0.5, 0.0, 1.0])]
    expected = [[0, 1, 3], [0, 1, 0, 2]]
    assert [each.tolist() for each in distinct_rows(columns)] == expected
    monkeypatch.setattr("s2sim.collectives.timing.shapes._MIX", np.uint64(0))
    assert [each.tolist() for each in distinct_rows(columns)] == expected


def random_table(ranks, seed, rows):
    random = np.random.default_rng(seed)
    return BlockTable(random.integers(0, 50, (rows, ranks)), random.integers(0, rows, ranks))


@pytest.mark.parametrize("profile", [NCCL, IDEAL])
@pytest.mark.parametrize("topology", ["fat-tree", "dgx-h100", "torus"])
def test_unequal_messages_at_other_rates_take_the_time_of_those_solved_afresh(topology, profile):
    """Messages inside nodes are solved once, those between nodes scaled, and both apart from each other."""
    shape, demand = load_shape(topology), all_to_all_demand(random_table(20, 3, 20), 40_000)
    ways = RouteTable(build_cluster(shape, 20))
    ways.kept = KeptSchedules(ways)
    profile = profile if profile.unmodelled_reason(shape) is None else IDEAL
    for rate_Bps in (3e9, 6e9, 7e9, 2e11):
        cluster = build_cluster(with_rate(shape, "nic.rate", rate_Bps), 20)
        kept, afresh = (Timer(cluster, AUTO, each, profile).time(demand).duration_ps for each in (ways, None))
        assert kept == pytest.approx(afresh, rel=1e-8)


@pytest.mark.parametrize(("ranks", "rows"), [(1, 1), (6, 1), (7, 3), (9, 40)])
def test_tables_of_blocks_are_what_all_their_rows_are(ranks, rows):
    table, other = random_table(ranks, 1, rows), random_table(ranks, 2, 2)
    dense = table.dense
    same = BlockTable(dense)
    assert (table, hash(table), [*table]) == (same, hash(same), [*map(tuple, dense.tolist())])
    assert len(table.rows) == len({*table})
    alone = dense - np.diag(np.diag(dense))
    assert [each.tolist() for each in table.totals] == [dense.sum(axis=1).tolist(), dense.sum(axis=0).tolist()]
    assert [each.tolist() for each in table.exchanged] == [alone.sum(axis=1).tolist(), alone.sum(axis=0).tolist()]
    assert sum_tables([table, other], [3, 5]) == BlockTable(3 * dense + 5 * other.dense)
    sent = exchanged_bytes(all_to_all_demand(table, 4))[0]
    assert sent.tolist() == (4 * alone.sum(axis=1)).tolist()


@pytest.mark.parametrize(
    "demand", [all_to_all_demand(random_table(16, 3, 4), 4), Demand("all_to_all", (17, 40) * 8, 4)]
)
def test_the_bound_of_an_exchange_is_that_of_all_its_messages(demand):
    cluster = build_cluster(load_shape("dgx-h100"), 16)
    ranks, worst_s = np.arange(16), 0.0
    sizes = np.broadcast_to(Blocks(demand).bytes(ranks[:, None], ranks), (16, 16))
    for family in cluster.cuts().families:
        group = family.group_of_rank
        out, into = np.zeros((2, family.groups))
        for source in range(16):
            for target in range(16):
                if group[source] != group[target]:
                    out[group[source]] += sizes[source, target]
                    into[group[target]] += sizes[source, target]
        for needed, rate_Bps in ((out, family.egress_Bps), (into, family.ingress_Bps)):
            used = needed > 0
            worst_s = max(worst_s, (needed[used] / rate_Bps[used]).max(initial=0), needed.sum() / rate_Bps.sum())
    assert lower_bound([demand], cluster.cuts()).seconds == pytest.approx(worst_s, abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 29)), max_size=60))
def test_components_are_those_of_networkx(crossings):
    graph = nx.Graph([(("item", item), ("link", link)) for item, link in crossings])
    graph.add_nodes_from(("item", item) for item in range(20))
    item, link = np.array(crossings, np.int64).reshape(-1, 2).T
    label = components(item, link, 20, 30)
    parts = nx.connected_components(graph)
    expected = {frozenset(number for kind, number in each if kind == "item") for each in parts}
    assert {frozenset(np.flatnonzero(label == each).tolist()) for each in set(label.tolist())} == expected
