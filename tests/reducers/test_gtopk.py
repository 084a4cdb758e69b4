"""gTop-k against a naive tree of dictionaries, and its bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.top_k import elements_kept
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once, run_reducer
from s2sim.testing.reducer_properties import example_gradients


def largest(pairs, k):
    """The k of largest magnitude of a dictionary from index to value, without zeros."""
    return dict(sorted(pairs.items(), key=lambda item: (-abs(item[1]), item[0]))[:k])


def gtopk(vectors, k):
    """Neighbours merge, then neighbours among those that are left, until there is one."""
    left = [largest({i: value for i, value in enumerate(vector) if value}, k) for vector in vectors]
    while len(left) > 1:
        merged = []
        for one, other in zip(left[::2], [*left[1::2], {}], strict=False):
            sums = {i: one.get(i, np.float32(0)) + other.get(i, np.float32(0)) for i in one.keys() | other.keys()}
            merged.append(largest({i: value for i, value in sums.items() if value}, k))
        left = merged
    mean = np.zeros_like(vectors[0])
    for i, value in left[0].items():
        mean[i] = value / np.float32(len(vectors))
    return mean


@given(st.integers(1, 9), st.integers(0, 60), st.floats(0.01, 1), st.integers(0, 2**32))
def test_it_is_the_tree(ranks, n, density, seed):
    rng = np.random.default_rng(seed)
    # Few distinct values: ties, zeros and sums that cancel.
    vectors = [rng.integers(-4, 5, n).astype(np.float32) for _ in range(ranks)]
    once = reduce_once(f"gtopk:density={density}", vectors)
    assert np.array_equal(once.values[0], gtopk(vectors, elements_kept(n, density)))


@pytest.mark.parametrize("ranks", [2, 8, 16, 64])
def test_a_rank_sends_its_pairs_up_and_the_result_on(ranks):
    rng = np.random.default_rng(1)
    k = 20
    once = reduce_once("gtopk:density=0.02", [rng.standard_normal(1000, np.float32) for _ in range(ranks)])
    *up, down = once.recording.calls
    assert len(up) == np.log2(ranks)
    assert [sum(map(sum, call.blocks)) for call in up] == [8 * k * ranks // 2**level for level in range(1, len(up) + 1)]
    assert (down.kind, down.bytes_by_rank) == ("broadcast", (8 * k,) + (0,) * (ranks - 1))
    assert max(once.bytes_sent) == (8 * k if ranks == 2 else 16 * k)


def test_two_ranks_send_what_the_mean_has():
    gradients = example_gradients(2)
    ran = run_reducer(make_reducer("gtopk:density=0.1"), gradients)
    for layers in zip(ran.results[0].mean.layers, *(result.sent().layers for result in ran.results), strict=True):
        mean, one, other = (layer.to_dense() if hasattr(layer, "rows") else layer for layer in layers)
        np.testing.assert_allclose(one + other, 2 * mean, atol=1e-6)


def test_what_a_branch_drops_is_not_sent_again():
    # Index 1 is dropped by ranks 0 and 1, survives by way of ranks 2 and 3, and counts as sent by all that chose it.
    vectors = [np.array(values, np.float32) for values in ([0, 2], [3, 1], [0, 9], [0, 8])]
    gradients = [Gradient(("all",), (vector,)) for vector in vectors]
    ran = run_reducer(make_reducer("gtopk:density=0.5"), gradients)
    assert ran.results[0].mean.layers[0].tolist() == [0, 17 / 4]
    assert [result.sent().layers[0].tolist() for result in ran.results] == [[0, 2], [0, 0], [0, 9], [0, 8]]
