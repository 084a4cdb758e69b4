"""ScaleCom against a naive oracle over several leaders, its bytes, and what is sent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.top_k import elements_kept
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once


@given(st.integers(1, 5), st.integers(1, 60), st.floats(0.01, 1), st.integers(0, 9), st.integers(0, 2**32))
def test_each_rank_chooses_in_turn(ranks, n, density, step, seed):
    rng = np.random.default_rng(seed)
    vectors = [rng.integers(-4, 5, n).astype(np.float32) for _ in range(ranks)]
    instances = make_instances(make_reducer(f"scalecom:density={density}"), ranks)
    results, _ = run_group(instances, [Gradient(("all",), (vector,)) for vector in vectors], step=step)

    leader = vectors[step % ranks]
    chosen = sorted(range(n), key=lambda i: (-abs(float(leader[i])), i))[: elements_kept(n, density)]
    for rank, vector in enumerate(vectors):
        sent = np.zeros(n, np.float32)
        sent[chosen] = vector[chosen]
        assert np.array_equal(results[rank].sent().layers[0], sent)
    mean = np.zeros(n, np.float32)
    mean[chosen] = np.sum(vectors, axis=0)[chosen] / np.float32(ranks)
    assert np.array_equal(results[0].mean.layers[0], mean)


@pytest.mark.parametrize("ranks", [2, 4, 64])
def test_bytes_are_an_all_reduce_of_the_values_and_the_indices_once(ranks):
    rng = np.random.default_rng(ranks)
    once = reduce_once("scalecom:density=0.064", [rng.standard_normal(10_000, np.float32) for _ in range(ranks)])
    k = 640
    values = 8 * k * (ranks - 1) // ranks
    # The indices go around the ring; the rank before the leader passes nothing on.
    assert once.bytes_sent == [values + 4 * k] * (ranks - 1) + [values]


def test_a_leader_that_holds_little_fills_up():
    vectors = [np.array([0, 0, 5, 0], np.float32), np.array([1, 2, 3, 4], np.float32)]
    once = reduce_once("scalecom:density=0.75", vectors)
    assert once.values[0].tolist() == [0.5, 0, 4, 0]
    assert once.recording.calls[0].elements == (3, 3)
