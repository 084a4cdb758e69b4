"""Reducers between real processes end with what they end with in memory."""

import numpy as np
import pytest

pytest.importorskip("torch")

from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient, RowSparse, to_dense
from s2sim.pytorch.launch import ProcessPlace, run_job
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer

RANKS = 3
STEPS = 2
SEED = 5
EXACT = (
    "topk",
    "qsgd",
    "sparcml",
    "gtopk",
    "choco",
    "stc",
    "int8",
    "fp8",
    "fedavg",
    "spardl",
    "wangni",
    "onebit-sgd:ef=true",
    "qgz",
)
SUMMED = (
    "dense",
    "union",
    "node-union",
    "s2:cells=2,rows=3",
    "s2-exact",
    "owner-reduce",
    "embrace",
    "powersgd",
    "arc-topk",
    "scalecom",
    "fetchsgd",
    "hierarchical-union",
)


def gradient_of(rank, step):
    random = np.random.default_rng((rank, step))
    rows = np.sort(random.choice(90, 20 + 3 * rank, replace=False))
    values = random.standard_normal((len(rows), 8)).astype(np.float32)
    dense = random.standard_normal((17, 12)).astype(np.float32)
    return Gradient(("table", "dense"), (RowSparse(rows, values, (90, 8)), dense))


def flat(gradient):
    return np.concatenate([to_dense(layer).ravel() for layer in gradient.layers])


def instance(text):
    return make_reducer(text).placed([0, 0, 1])


def reduce_all(rank, ranks, arguments, _tell):
    from s2sim.pytorch.rank import reduce_here

    means = {}
    for text in arguments["reducers"]:
        reducer = instance(text)
        for step in range(STEPS):
            here = reduce_here(reducer, gradient_of(rank, step), seed=SEED, step=step)
            assert 0 <= here.waited_s <= here.total_s
        means[text] = flat(here.reduced.mean).tolist()
    return [means, post_wrongly(rank, ranks)]


@pytest.fixture(scope="module")
def found():
    arguments = {"reducers": [*EXACT, *SUMMED]}
    return run_job(f"{__name__}:reduce_all", arguments, [ProcessPlace()] * RANKS, timeout_s=100)


# tests/pytorch/test_check.py compares some of each way to send, and their bytes, without the marker.
@pytest.mark.slow
@pytest.mark.parametrize("text", [*EXACT, *SUMMED])
def test_every_process_ends_with_what_its_rank_ends_with_in_memory(found, text):
    instances = make_instances(instance(text), RANKS)
    for step in range(STEPS):
        expected, _ = run_group(instances, [gradient_of(rank, step) for rank in range(RANKS)], seed=SEED, step=step)
    for rank in range(RANKS):
        mean = flat(expected[rank].mean)
        here = np.array(found[rank][0][text], np.float32)
        if text in EXACT:
            np.testing.assert_array_equal(here, mean)
        else:
            assert np.linalg.norm(here - mean) <= 1e-6 * np.linalg.norm(mean)


def post_wrongly(rank, ranks):
    from s2sim.pytorch.members import group_members
    from s2sim.pytorch.rank import ProcessRank, _WaitClock, drive

    here = ProcessRank(group_members(), 0, 0, _WaitClock())
    pending = here.all_reduce(np.ones(2, np.float32), label="a sum")
    said = []
    for wrong in (
        lambda: pending.value,
        lambda: here.subgroup([(rank + 1) % ranks]),
        lambda: here.all_reduce(np.ones(1), op="xor", label="x"),
        lambda: here.all_to_all([np.ones(1)], label="x"),
        lambda: here.broadcast(np.ones(1), root=ranks, label="x"),
        lambda: here.all_reduce((np.ones(1), np.ones(1, np.int32)), label="x"),
    ):
        try:
            wrong()
        except S2SimError as error:
            said.append(str(error))

    def program():
        yield pending
        return pending.value.tolist()

    return [*said, drive(program())]


@pytest.mark.slow
def test_what_a_program_does_wrongly_is_said(found):
    *said, total = found[0][1]
    assert total == [3.0, 3.0]
    for words, text in zip(
        (
            "before the program waited",
            "itself and others",
            "'xor'; known",
            "one for each of 3",
            "there are 3",
            "one for each",
        ),
        said,
        strict=True,
    ):
        assert words in text
