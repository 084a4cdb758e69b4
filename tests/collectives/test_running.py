"""Rounds that pass without a message leave the same times as the plain path, whatever comes in between."""

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from s2sim.collectives.algorithms.registry import make_algorithm
from s2sim.collectives.schedules.demand import Demand
from s2sim.collectives.timing.collective_run import CollectiveRun
from s2sim.collectives.timing.rounds import RoundTimes
from s2sim.network.fluid import FluidNetwork
from s2sim.topology.cluster import build_cluster
from s2sim.topology.read_file import load_shape

WORKERS = 8
ALGORITHMS = [("ring", "all_reduce"), ("double-binary-tree:chunks=5", "all_reduce"), ("ring", "all_gather")]


def run(cluster, collectives, transfers, *, fast):
    """Return when each collective and each transfer ends, and how often the network had to solve for rates."""
    env = simpy.Environment(initial_time=0)
    network = FluidNetwork(env, cluster.fabric)
    ends = {}

    def begin(name, start_ps, schedule):
        yield env.timeout(start_ps)
        passing = RoundTimes(cluster) if fast else None
        CollectiveRun(network, schedule, cluster, lambda: ends.update({name: env.now}), passing=passing).start()

    def transfer(name, start_ps, src, dst, size):
        yield env.timeout(start_ps)
        owner = network.add_owner(lambda _: ends.update({name: env.now}))
        routes = network.add_routes(cluster.routes(np.array([src]), np.array([dst])))
        network.send(routes, np.array([size]), owner, np.array([0]))

    for number, (start_ps, schedule) in enumerate(collectives):
        env.process(begin(f"collective {number}", start_ps, schedule))
    for number, each in enumerate(transfers):
        env.process(transfer(f"transfer {number}", *each))
    env.run()
    return ends, network.solves


@pytest.fixture(scope="module")
def cluster():
    return build_cluster(load_shape("leaf-spine", ["node.gpus=2"]), WORKERS)


def schedule_of(cluster, text, kind, elements):
    sizes = tuple(elements + 100 * rank for rank in range(WORKERS)) if kind == "all_gather" else (elements,) * WORKERS
    return make_algorithm(text, kind).schedule(Demand(kind, sizes, 4), cluster)


def test_undisturbed_rounds_pass_without_a_message(cluster):
    schedule = schedule_of(cluster, "ring", "all_reduce", 100_000)
    plain, solves = run(cluster, [(0, schedule)], [], fast=False)
    quick, none = run(cluster, [(0, schedule)], [], fast=True)
    assert quick == plain
    assert solves > 0
    assert none == 0


@pytest.mark.slow
@given(
    chosen=st.lists(st.sampled_from(ALGORITHMS), min_size=1, max_size=3),
    starts=st.lists(st.integers(0, 400_000_000), min_size=3, max_size=3),
    elements=st.sampled_from([0, 10, 10_000, 1_000_000]),
    transfers=st.lists(
        st.tuples(
            st.integers(0, 2_000_000_000), st.integers(0, 3), st.integers(4, 7), st.floats(0, 1e7, allow_nan=False)
        ),
        max_size=3,
    ),
)
def test_what_comes_in_the_middle_finds_the_network_as_on_the_plain_path(cluster, chosen, starts, elements, transfers):
    collectives = [
        (start, schedule_of(cluster, text, kind, elements)) for start, (text, kind) in zip(starts, chosen, strict=False)
    ]
    plain = run(cluster, collectives, transfers, fast=False)[0]
    assert run(cluster, collectives, transfers, fast=True)[0] == plain


@pytest.mark.parametrize("offset_ps", [-1, 0, 1])
@pytest.mark.parametrize("rounds", [0, 1, 5, 13, 14])
def test_a_transfer_at_the_border_of_two_rounds(cluster, rounds, offset_ps):
    schedule = schedule_of(cluster, "ring", "all_reduce", 100_000)
    round_ps = RoundTimes(cluster).time_ps(schedule.steps[0].round)
    start_ps = max(0, rounds * round_ps + offset_ps)
    transfers = [(start_ps, 0, 5, 3e5)]
    plain = run(cluster, [(0, schedule)], transfers, fast=False)[0]
    assert run(cluster, [(0, schedule)], transfers, fast=True)[0] == plain
