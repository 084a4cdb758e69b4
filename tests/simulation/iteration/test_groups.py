"""Iterations of a rank that shares a model with others: it waits for stages, and its group shares links with others."""

import numpy as np
import pytest

from s2sim.collectives.timing.concurrent_groups import ConcurrentGroupsTimer
from s2sim.libraries.lowering import choose_library
from s2sim.reducers.script import Call, Post, Recording, Wait
from s2sim.simulation.accounting import IterationSettings
from s2sim.simulation.bucketing.policy import Bucket, BucketExchange
from s2sim.simulation.device import Compute
from s2sim.simulation.iteration import replay_iterations
from s2sim.simulation.plan import to_request
from s2sim.topology.hardware import load_gpu

MS, GROUPS, RANKS = 10**9, 3, 4


@pytest.fixture
def timer(make_cluster):
    """Return three groups with a rank in each of four nodes, which have one interface."""
    node, nvlink = f"gpus = {GROUPS}", '[nvlink]\nrate = "900GB/s"'
    cluster = make_cluster(
        GROUPS * RANKS, 'kind = "single-switch"', node=node, extra=nvlink, nic='rate = "25GB/s"\ncount = 1'
    )
    return ConcurrentGroupsTimer(cluster, np.arange(GROUPS * RANKS).reshape(RANKS, GROUPS).T, "ring")


def iterate(timer, elements, **conditions):
    call = Call("all_reduce", "sum", "float32", 4, (elements,) * RANKS, False, "x")
    recording = Recording((call,), ((Post(0), Wait((0,))),) * RANKS)
    compute = Compute(np.array([3, 4]) * MS, np.array([6, 8]) * MS, 2 * MS)
    found = replay_iterations(
        [BucketExchange(Bucket((0, 1)), recording)],
        compute,
        timer,
        load_gpu("a100"),
        choose_library("ideal"),
        IterationSettings(np.ones((2, RANKS)), **conditions),
    )
    return found, timer.time(to_request(call).demand).duration_ps


def test_what_is_exposed_is_what_all_groups_take_at_once(timer):
    found, exchange_ps = iterate(timer, 10**7)
    assert found.typical.exposed_communication == exchange_ps
    assert found.typical.iteration == 23 * MS + exchange_ps
    bytes_of_all = GROUPS * 2 * (RANKS - 1) / RANKS * 4e7
    assert exchange_ps / 1e12 == pytest.approx(bytes_of_all / 25e9, rel=1e-3)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_waiting_for_stages_is_waiting(timer, accumulate):
    """A pipeline's bubble is in every iteration once, however many mini-batches it has."""
    found, exchange_ps = iterate(timer, 10**7, idle_ps=5 * MS, accumulate=accumulate)
    for parts in found.parts:
        assert parts.waiting == 5 * MS
        assert (parts.forward, parts.backward) == (7 * MS * accumulate, 14 * MS * accumulate)
        assert parts.iteration == (21 * accumulate + 2 + 5) * MS + exchange_ps
