"""All-to-alls whose blocks differ from pair to pair: messages, times and what is refused."""

import numpy as np
import pytest

from s2sim.arrays import BlockTable
from s2sim.collectives.algorithms.all_to_all import Pairwise, SpreadOut
from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import Blocks, Demand, all_to_all_demand
from s2sim.collectives.schedules.exchange import Hop, Hops
from s2sim.collectives.timing.bounds import simulate_ps
from s2sim.collectives.timing.timer import Timer, closed_form_s
from s2sim.errors import ContendedError, OptionError, S2SimError
from s2sim.libraries.lowering import (
    SIZE_EXCHANGE,
    CollectiveRequest,
    LocalWork,
    choose_library,
    lower,
    merge_into_launch,
)
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

PS = 1e12
ALGORITHMS = (SpreadOut(), SpreadOut(1), SpreadOut(5), Pairwise(), Pairwise(release="sent"))


def random_sizes(ranks, seed, *, most=9):
    generator = np.random.default_rng(seed)
    return generator.integers(0, most, (ranks, ranks)) * (generator.random((ranks, ranks)) < 0.7)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_message_is_the_block_of_its_pair(clusters, algorithm):
    for ranks, cluster in clusters.items():
        sizes = random_sizes(ranks, seed=ranks)
        for step in algorithm.schedule(all_to_all_demand(sizes, 4), cluster).steps:
            pattern = step.round.pattern
            assert step.round.bytes.tolist() == (4 * sizes[pattern.src, pattern.dst]).tolist()


@pytest.mark.parametrize("release", ["delivered", "sent"])
def test_pairwise_rounds_last_as_long_as_their_largest_block(release, clusters):
    demand = all_to_all_demand(random_sizes(7, 3, most=10**6), 4)
    schedule = Pairwise(release=release).schedule(demand, clusters[7])
    expected = closed_form_s(schedule, clusters[7])
    assert simulate_ps(schedule, clusters[7]) / PS == pytest.approx(expected, rel=1e-6)
    hops = Hops((), (Hop(1e-6, 1e9),), 7)
    largest = [max(demand.blocks[rank][(rank + k) % 7] for rank in range(7)) * 4 for k in range(1, 7)]
    latencies = 6 if release == "delivered" else 1
    assert Pairwise(release=release).closed_form_s(demand, hops) == pytest.approx(latencies * 1e-6 + sum(largest) / 1e9)


@pytest.mark.parametrize(("ranks", "partners"), [(33, 16), (33, 5), (8, 3), (6, 6), (6, 50)])
def test_partners_at_once_are_groups_in_the_order_of_nodes(ranks, partners):
    cluster = build_cluster(load_shape("fat-tree", ("node.gpus=4",)), ranks, placement="round-robin")
    demand = Demand("all_to_all", (ranks,) * ranks, 4)
    schedule = SpreadOut(partners).schedule(demand, cluster)
    assert schedule.rounds == -(-ranks // partners)
    met = np.zeros((ranks, ranks), int)
    for step in schedule.steps:
        pattern = step.round.pattern
        assert np.bincount(pattern.src, minlength=ranks).max() <= partners
        met[pattern.src, pattern.dst] += 1
    assert np.array_equal(met, 1 - np.eye(ranks, dtype=int))
    own = schedule.steps[0].round.pattern
    nodes = cluster.node_of_rank
    assert np.ptp(nodes[own.src] - nodes[own.dst]) <= 2 * -(-partners // 4)
    check_schedule(schedule)


def test_unequal_blocks_are_run_by_sixteen_partners_unless_told_otherwise(clusters):
    even, uneven = Demand("all_to_all", (33,) * 33, 4), all_to_all_demand(random_sizes(33, 1), 4)
    assert Timer(clusters[33]).time(even).schedule.algorithm == "spread"
    assert Timer(clusters[33]).time(uneven).schedule.algorithm == "spread:partners=16"
    assert Timer(clusters[16]).time(all_to_all_demand(random_sizes(16, 1), 4)).schedule.algorithm == "spread"
    assert make_algorithm("spread:partners=16", "all_to_all") == SpreadOut(16)


@pytest.mark.slow
def test_throttled_partners_cost_little(clusters):
    """Groups of 16 are near everything at once, and never ahead of the ports."""
    demand = all_to_all_demand(1000 + random_sizes(32, 2, most=500), 4)
    throttled, at_once = (Timer(clusters[32], f"spread:partners={n}").time(demand).duration_ps for n in (16, 32))
    assert at_once < throttled < 1.1 * at_once


def test_equal_blocks_given_one_by_one_are_as_fast_as_even_ones(clusters):
    even = Demand("all_to_all", (8000,) * 8, 4)
    given_one_by_one = all_to_all_demand(np.full((8, 8), 1000), 4)
    for algorithm in ("spread", "pairwise"):
        times = [Timer(clusters[8], algorithm).time(demand).duration_ps for demand in (even, given_one_by_one)]
        assert times[0] == times[1]


def test_launches_together_add_their_blocks():
    first, second = random_sizes(3, 1), random_sizes(3, 2)
    both = merge_into_launch([all_to_all_demand(first, 4), all_to_all_demand(second, 1)])
    assert both == all_to_all_demand(4 * first + second, 1)
    cut = Demand("all_to_all", (3, 6, 4), 2)
    assert merge_into_launch([all_to_all_demand(first, 4), cut]) == all_to_all_demand(
        4 * first + Blocks(cut).sizes(), 1
    )
    assert Blocks(cut).sizes().tolist() == [[2, 2, 2], [4, 4, 4], [2, 2, 4]]


SIZES_OF = np.array([[1, 2, 3], [0, 0, 9], [4, 0, 0]])


def asked(*, from_data):
    return CollectiveRequest(all_to_all_demand(SIZES_OF, 4), "exchange", "float32", from_data)


@pytest.mark.parametrize(
    ("library", "syncs", "staged"),
    [("ideal", None, False), ("nccl", 1, False), ("gloo", 0, True), ("mpi", 0, True), ("mpi:buffers=device", 0, False)],
)
def test_libraries_exchange_sizes_that_only_data_tells(library, syncs, staged):
    found = lower(asked(from_data=True), choose_library(library))
    *sizes, payload = found.steps
    assert payload.demands == (all_to_all_demand(SIZES_OF, 4),)
    if syncs is None:
        assert not sizes
        return
    assert [step.demands for step in sizes] == [(Demand("all_to_all", (3, 3, 3), 8),)]
    assert sizes[0].what == SIZE_EXCHANGE
    assert found.blocks_host
    assert found.executes.startswith("all_to_all of sizes, then ")
    # The most that a rank hands in, 9 elements, goes to the host, and the most that one gets, 12, comes back.
    out = LocalWork(host_syncs=1, to_host_bytes=36) if staged else LocalWork()
    assert payload.before == LocalWork(host_syncs=syncs) + out
    assert found.after == (LocalWork(to_gpu_bytes=48) if staged else LocalWork())


@pytest.mark.parametrize("library", ["ideal", "nccl", "gloo", "mpi"])
def test_sizes_that_all_know_are_not_exchanged(library):
    found = lower(asked(from_data=False), choose_library(library))
    assert [step.demands for step in found.steps] == [(all_to_all_demand(SIZES_OF, 4),)]
    alike = CollectiveRequest(all_to_all_demand(np.full((3, 3), 5), 4), "exchange", "float32", size_from_data=False)
    assert alike.row == "exchange"
    assert asked(from_data=False).row == "exchangev"
    assert lower(alike, choose_library(library)).demands == (alike.demand,)


@pytest.mark.parametrize(
    ("kind", "elements", "blocks", "complaint"),
    [
        ("all_gather", (1, 1), ((1, 0), (0, 1)), "all_gather has no blocks"),
        ("all_to_all", (1, 1), ((1, 0),), "a table of 2 by 2"),
        ("all_to_all", (1, 1), ((1,), (1,)), "a table of 2 by 2"),
        ("all_to_all", (1, 1), ((1, 0), (1, 1)), "add up to its elements"),
        ("all_to_all", (1, 1), ((2, -1), (0, 1)), "not be negative"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(kind, elements, blocks, complaint):
    with pytest.raises(S2SimError, match=complaint):
        Demand(kind, elements, 4, blocks=BlockTable(blocks))


def test_refusals(clusters):
    with pytest.raises(OptionError, match="partners=0 must be at least 1"):
        SpreadOut(0)
    with pytest.raises(OptionError, match="changes nothing in send_recv"):
        SpreadOut(4).schedule(Demand("send_recv", (8,) * 8, 4), clusters[8])
    hops = Hops((), (Hop(1e-6, 1e9),), 8)
    with pytest.raises(ContendedError, match="4 partners at once has no closed form"):
        SpreadOut(4).closed_form_s(Demand("all_to_all", (8,) * 8, 4), hops)
    # Where every pair had links of its own, the largest block but a rank's own would clock all.
    assert SpreadOut().closed_form_s(all_to_all_demand(np.array([[99, 5], [7, 99]]), 4), hops) == pytest.approx(
        1e-6 + 28e-9
    )


@pytest.mark.parametrize("rows", [[[1, 2], [0, 0]], [[1, 0], [3, 0]], [[0, 1], [1, 0]]])
def test_a_turn_in_which_nobody_has_a_block_is_no_round(rows):
    cluster = build_cluster(load_shape("single-switch"), 2)
    schedule = make_algorithm("spread:turns=true", "all_to_all").schedule(all_to_all_demand(np.array(rows), 4), cluster)
    assert closed_form_s(schedule, cluster) * PS == pytest.approx(simulate_ps(schedule, cluster), abs=1)
