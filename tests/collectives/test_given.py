"""Rings and trees in a given order: they compute what they should, and in rank order take what made ones take."""

import numpy as np
import pytest

from s2sim.collectives.algorithms.registry import ExplicitRings, ExplicitTrees, make_algorithm
from s2sim.collectives.algorithms.tree import trees_over_nodes
from s2sim.collectives.schedules.check import check_schedule
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.timer import Timer
from s2sim.libraries.nccl import NcclProfile
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

RANKS = 12


@pytest.fixture(scope="module")
def cluster():
    return build_cluster(load_shape("dgx-h100"), RANKS)


@pytest.mark.parametrize("kind", ExplicitRings.kinds)
def test_rings_in_any_order_compute_the_collective(cluster, kind):
    generator = np.random.default_rng(3)
    orders = tuple(tuple(generator.permutation(RANKS).tolist()) for _ in range(3))
    elements = (101,) * RANKS if kind != "barrier" else (0,) * RANKS
    check_schedule(ExplicitRings(3, orders=orders).schedule(Demand(kind, elements, 4), cluster))


@pytest.mark.parametrize("trees", [1, 2, 5])
def test_trees_of_any_shape_compute_the_all_reduce(cluster, trees):
    generator = np.random.default_rng(4)
    parents = []
    for _ in range(trees):
        order = generator.permutation(RANKS)
        parent = np.empty(RANKS, np.int64)
        parent[order[0]] = -1
        parent[order[1:]] = [order[generator.integers(at)] for at in range(1, RANKS)]
        parents.append(tuple(parent.tolist()))
    schedule = ExplicitTrees(None, 3, parents=tuple(parents)).schedule(Demand("all_reduce", (101,) * RANKS, 4), cluster)
    check_schedule(schedule)


@pytest.mark.parametrize("profile", [NcclProfile("nccl"), NcclProfile("nccl", only="LL")])
def test_what_is_given_as_it_is_made_takes_as_long(cluster, profile):
    demand = Demand("all_reduce", (1 << 20,) * RANKS, 4)
    rank_order = tuple(range(RANKS))
    parents = tuple(tuple(each.tolist()) for each in trees_over_nodes(cluster.node_of_rank))
    for given, made in (
        (ExplicitRings(orders=(rank_order,)), "ring:channels=1"),
        (ExplicitTrees(None, 4, parents=parents), "double-binary-tree:channels=1,chunks=4"),
    ):
        times = [
            Timer(cluster, each, profile=profile).time(demand) for each in (given, make_algorithm(made, "all_reduce"))
        ]
        assert times[0].duration_ps == times[1].duration_ps
        assert times[0].schedule.algorithm == times[1].schedule.algorithm
