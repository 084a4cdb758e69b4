"""Broadcast and reduce by trees and chains: who sends to whom, closed forms, chunks and groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.algorithms.tree import BinaryTree, Binomial, Chain
from s2sim.collectives.schedules.check import run_on_values
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.exchange import Hop, Hops
from s2sim.collectives.schedules.groups import even_groups, schedule_of
from s2sim.collectives.timing.timer import Timer, closed_form_s
from s2sim.errors import ContendedError, OptionError
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

RATE_BPS = 50 * 2**30
PS = 1e12
ALGORITHMS = {"binomial": Binomial, "chain": Chain, "binary-tree": BinaryTree}


@pytest.fixture(scope="module")
def clusters():
    shapes = {"single-switch": (), "fat-tree": ("node.gpus=4",)}
    return {
        (name, ranks): build_cluster(load_shape(name, overrides), ranks)
        for name, overrides in shapes.items()
        for ranks in range(1, 34)
    }


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
@pytest.mark.parametrize("ranks", [2, 3, 8, 33])
def test_textbook_times(ranks, kind, make_cluster, switch_fabric):
    cluster = make_cluster(ranks, switch_fabric)
    demand = Demand(kind, (1_000_000,) * ranks, 4, root=ranks // 2)
    busy_s = 4e6 / RATE_BPS
    for text, expected in (
        ("binomial", np.ceil(np.log2(ranks)) * (1e-6 + busy_s)),
        ("chain:chunks=20", (ranks - 2 + 20) * (1e-6 + busy_s / 20)),
    ):
        timed = Timer(cluster, text).time(demand)
        assert timed.duration_ps / PS == pytest.approx(expected, rel=1e-6)
        assert closed_form_s(timed.schedule, cluster) == pytest.approx(expected, rel=1e-9)


def test_who_sends_to_whom():
    cluster = build_cluster(load_shape("single-switch"), 6)
    pairs = {
        (name, kind): [
            list(zip(step.round.pattern.src.tolist(), step.round.pattern.dst.tolist(), strict=True))
            for step in ALGORITHMS[name]().schedule(Demand(kind, (1,) * 6, 4, root=2), cluster).steps
        ]
        for name in ("binomial", "binary-tree")
        for kind in ("broadcast", "reduce")
    }
    assert pairs["binomial", "broadcast"] == [[(2, 0)], [(2, 4)], [(2, 3), (4, 5), (0, 1)]]
    assert pairs["binary-tree", "broadcast"] == [[(2, 3), (2, 4)], [(3, 5), (3, 0), (4, 1)]]
    for name in ("binomial", "binary-tree"):
        backwards = [[(dst, src) for src, dst in each] for each in reversed(pairs[name, "reduce"])]
        assert backwards == pairs[name, "broadcast"]


@pytest.mark.parametrize(("ranks", "chunks"), [(5, 3), (5, 4), (5, 9), (2, 7)])
def test_rounds_with_the_same_pairs_at_work_are_one_step(ranks, chunks):
    cluster = build_cluster(load_shape("single-switch"), ranks)
    schedule = Chain(chunks=chunks).schedule(Demand("broadcast", (100,) * ranks, 4), cluster)
    found = [(step.round.pattern.src.tolist(), step.times) for step in schedule.steps]
    assert sum(times for _, times in found) == schedule.rounds == ranks - 2 + chunks
    assert len({tuple(pairs) for pairs, _ in found}) == len(found)
    # The chunk that a pair carries in round k entered the chain in round k less the pair's place.
    working = [[i for i in range(ranks - 1) if 0 <= k - i < chunks] for k in range(schedule.rounds)]
    assert [pairs for pairs, times in found for _ in range(times)] == working


@given(ranks=st.integers(3, 33), elements=st.integers(1, 10**7), kind=st.sampled_from(["broadcast", "reduce"]))
def test_the_chosen_number_of_chunks_is_the_fastest(clusters, ranks, elements, kind):
    cluster = clusters["single-switch", ranks]
    demand = Demand(kind, (elements,) * ranks, 4)
    best = make_algorithm(Chain().schedule(demand, cluster).algorithm, kind)
    hops = Hops((), (Hop(1e-6, 12.5e9),), ranks)
    for other in (best.chunks - 1, best.chunks + 1, 1, 2 * best.chunks):
        if 1 <= other <= elements:
            assert best.closed_form_s(demand, hops) <= Chain(chunks=other).closed_form_s(demand, hops) * (1 + 1e-12)


def test_no_latency_takes_a_chunk_for_each_element_up_to_a_limit(make_cluster):
    cluster = make_cluster(4, 'kind = "single-switch"')
    for elements, chunks in ((0, 1), (100, 100), (10**6, 4096)):
        schedule = Chain().schedule(Demand("broadcast", (elements,) * 4, 4), cluster)
        assert schedule.algorithm == f"chain:chunks={chunks}"


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_groups_work_at_once_from_their_first_member(name, kind):
    ranks = np.array([[4, 0, 2], [1, 3, 5]])
    groups = even_groups(ranks, np.array([0, 7]), np.array([7, 20]), 40.0)
    cluster = build_cluster(load_shape("single-switch"), 6)
    held = np.arange(120).reshape(6, 20)
    algorithm = Chain(chunks=2) if name == "chain" else ALGORITHMS[name]()
    stage = algorithm.fitted(groups, cluster).stage(kind, groups)
    result = run_on_values(schedule_of(Demand(kind, (20,) * 6, 4), "a part", stage), held)
    for group, part in zip(ranks, (slice(0, 7), slice(7, 20)), strict=True):
        if kind == "broadcast":
            np.testing.assert_array_equal(result[group, part], np.tile(held[group[0], part], (3, 1)))
        else:
            np.testing.assert_array_equal(result[group[0], part], held[group, part].sum(axis=0))


def test_auto_takes_the_tree_for_small_messages_and_the_chain_for_large_ones(clusters):
    for elements, name in ((1, "binomial"), (10**7, "chain")):
        timed = Timer(clusters["single-switch", 16]).time(Demand("broadcast", (elements,) * 16, 4))
        assert timed.schedule.algorithm.partition(":")[0] == name


def test_refusals(clusters):
    with pytest.raises(OptionError, match="chain: chunks=0 must be at least 1"):
        Chain(chunks=0)
    schedule = BinaryTree().schedule(Demand("reduce", (8,) * 4, 4), clusters["single-switch", 4])
    with pytest.raises(ContendedError, match="share link directions"):
        closed_form_s(schedule, clusters["single-switch", 4])
