"""Simulated iterations beside the closed form of their exchanges, for every discipline."""

import numpy as np
import pytest

from s2sim.collectives.timing.timer import Timer
from s2sim.libraries.lowering import choose_library
from s2sim.reducers.script import Call, Post, Recording, Wait
from s2sim.simulation.accounting import IterationSettings
from s2sim.simulation.bucketing.policy import (
    DISCIPLINES,
    Bucket,
    BucketExchange,
    ReadyTensors,
    finish_ps,
    make_discipline,
)
from s2sim.simulation.device import Compute
from s2sim.simulation.iteration import replay_iterations
from s2sim.topology.hardware import load_gpu

WORKERS = 4
FORWARD_PS = 5 * 10**9


def dense(elements):
    call = Call("all_reduce", "sum", "float32", 4, (elements,) * WORKERS, False, "gradients")
    return Recording((call,), ((Post(0), Wait((0,))),) * WORKERS)


@pytest.fixture
def iterate(make_cluster, switch_fabric):
    """Return what an iteration takes whose network takes one bucket at a time and nothing of the GPU."""
    timer, gpu = Timer(make_cluster(WORKERS, switch_fabric), "ring"), load_gpu("a100")
    library = choose_library("nccl:timing=wire")

    def run(buckets, elements, compute):
        exchange = [BucketExchange(bucket, dense(int(elements[list(bucket.tensors)].sum()))) for bucket in buckets]
        found = replay_iterations(exchange, compute, timer, gpu, library, IterationSettings(np.ones((1, WORKERS))))
        return found.typical.iteration

    return run


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", DISCIPLINES.names())
def test_an_iteration_ends_with_its_last_exchange(iterate, name, seed):
    generator = np.random.default_rng(seed)
    elements = np.exp(generator.uniform(0, np.log(3 * 10**7), 40)).astype(np.int64)
    backward_ps = generator.integers(0, 2 * 10**9, 40)
    tensors = ReadyTensors(elements * 4, np.cumsum(backward_ps), generator.random(40) < 0.1)
    forward_ps = np.zeros(40, np.int64)
    forward_ps[-1] = FORWARD_PS

    def exchange_ps(size_bytes):
        return iterate([Bucket((0,))], np.array([size_bytes // 4]), Compute(*np.zeros((2, 1), np.int64)))

    buckets = make_discipline(name).buckets(tensors, exchange_ps)
    ends_ps = int(finish_ps(buckets, tensors, exchange_ps).max())
    assert iterate(buckets, elements, Compute(forward_ps, backward_ps)) == FORWARD_PS + ends_ps
