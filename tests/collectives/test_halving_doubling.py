"""Recursive halving and doubling: rounds, closed forms and the order of distances."""

import numpy as np
import pytest

from s2sim.collectives.algorithms.halving_doubling import HalvingDoubling
from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.check import run_on_values
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.schedules.groups import even_groups, schedule_of
from s2sim.collectives.timing.rounds import RoundTimes, link_bytes
from s2sim.collectives.timing.timer import Timer
from s2sim.errors import OptionError

RATE_BPS = 50 * 2**30
SIZE = 104_857_600
PS = 1e12
TEXTS = ["halving-doubling", "halving-doubling:distance=near-first", "halving-doubling:distance=far-first"]


@pytest.mark.parametrize("ranks", [64, 1024])
@pytest.mark.parametrize("near", [True, False])
def test_the_order_of_distances_decides_on_a_fat_tree(ranks, near, make_cluster):
    """Half of the distances leave the leaf, where two messages share an uplink: they should be the small ones."""
    side = int(ranks**0.5)
    fabric = (
        f'kind = "fat-tree"\nlevels = 2\nhosts_per_leaf = {side}\nuplinks_per_leaf = {side // 2}\n'
        '[fabric.link]\nlatency = "250ns"'
    )
    cluster = make_cluster(ranks, fabric, routing='routing = "d-mod-k"')
    demand = Demand("all_reduce", (SIZE // 4,) * ranks, 4)
    timed = Timer(cluster, f"halving-doubling:distance={'near' if near else 'far'}-first").time(demand)
    large, small = (side - 1) / side, (side - 1) / side**2
    shared, alone = (small, large) if near else (large, small)
    expected = np.log2(ranks) * (500e-9 + 1000e-9) + 2 * (2 * shared + alone) * SIZE / RATE_BPS
    assert timed.duration_ps / PS == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "distances"),
    [("all_reduce", [1, 2, 4, 4, 2, 1]), ("reduce_scatter", [4, 2, 1]), ("all_gather", [1, 2, 4])],
)
def test_distances_are_those_published_unless_asked_for(clusters, kind, distances):
    def found(text):
        schedule = make_algorithm(text, kind).schedule(Demand(kind, (8,) * 8, 4), clusters[8])
        return [int(abs(step.round.pattern.src - step.round.pattern.dst).max()) for step in schedule.steps]

    assert found(TEXTS[0]) == distances
    assert found(TEXTS[1]) == {"all_reduce": distances, "reduce_scatter": [1, 2, 4], "all_gather": [4, 2, 1]}[kind]
    assert found(TEXTS[2]) == {"all_reduce": [4, 2, 1, 1, 2, 4]}.get(kind, distances)


def test_message_sizes_halve(clusters):
    schedule = HalvingDoubling().schedule(Demand("all_reduce", (64,) * 8, 4), clusters[8])
    assert [set(step.round.bytes.tolist()) for step in schedule.steps] == [{128}, {64}, {32}, {32}, {64}, {128}]


def test_halving_and_doubling_share_their_patterns(clusters):
    schedule = HalvingDoubling().schedule(Demand("all_reduce", (64,) * 32, 4), clusters[32])
    assert len({step.round.pattern for step in schedule.steps}) == 5


@pytest.mark.parametrize("members", [1, 2, 4, 5, 7, 8])
@pytest.mark.parametrize("algorithm", [HalvingDoubling(), HalvingDoubling(distance="far-first")])
def test_groups_work_on_their_own_parts_at_once(members, algorithm):
    """Three groups of ranks that stand in turn, each on a part of 20 positions, some of unequal bytes."""
    ranks = np.arange(3 * members).reshape(members, 3).T
    start = 20 * np.arange(3)
    groups = even_groups(ranks, start, start + 20, 80.0)
    demand = Demand("all_reduce", (60,) * 3 * members, 4)
    values = np.random.default_rng(0).integers(0, 1000, (3 * members, 60))
    for kind in HalvingDoubling.kinds:
        stage = algorithm.stage(kind, groups)
        held = values.copy()
        for group, begin, end in zip(ranks, groups.begin, groups.end, strict=True):
            if kind == "all_gather":  # a member has its chunk alone
                for member, low, high in zip(group, begin, end, strict=True):
                    held[member, :low] = held[member, high:] = 0
        result = run_on_values(schedule_of(demand, "a part", stage), held)
        for group, begin, end in zip(ranks, groups.begin, groups.end, strict=True):
            part = slice(begin[0], end[-1])
            summed = held[group, part].sum(axis=0)
            for member, low, high in zip(group, begin, end, strict=True):
                if kind == "reduce_scatter":
                    np.testing.assert_array_equal(result[member, low:high], summed[low - begin[0] : high - begin[0]])
                else:
                    np.testing.assert_array_equal(result[member, part], summed)


def test_links_carry_what_ranks_send(make_cluster, switch_fabric):
    cluster = make_cluster(12, switch_fabric)
    schedule = HalvingDoubling().schedule(Demand("all_reduce", (1000,) * 12, 4), cluster)
    # Up into the switch and down again.
    assert link_bytes(schedule, RoundTimes(cluster)).sum() == pytest.approx(2 * schedule.traffic()[0].sum())


def test_refusals():
    with pytest.raises(OptionError, match="distance=near is not one of near-first, far-first"):
        HalvingDoubling(distance="near")
