"""Pairs of index and value: merged, cut, selected and put back, against arrays; and top-k by layer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.top_k import elements_kept
from s2sim.errors import OptionError, S2SimError
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import run_reducer
from s2sim.reducers.shared.gathered import flat_vector
from s2sim.reducers.shared.pairs import Pairs, add_pairs, merge_pairs, read_pairs
from s2sim.reducers.shared.selection import keep_only_pairs
from s2sim.testing.reducer_properties import example_gradients

from .naive import top


def pairs_of(vector):
    indices = np.flatnonzero(vector)
    return Pairs(indices, vector[indices])


def vectors(seed, ranks, n):
    return np.random.default_rng(seed).integers(-2, 3, (ranks, n)).astype(np.float32)


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(0, 40))
def test_a_merge_is_the_sum_in_rank_order(seed, ranks, n):
    arrays = vectors(seed, ranks, n) * np.float32(0.1)
    merged = merge_pairs([pairs_of(array) for array in arrays])
    total = np.zeros(n, np.float32)
    for array in arrays:
        total += array
    assert np.array_equal(merged.indices, np.flatnonzero((arrays != 0).any(axis=0)))
    assert np.array_equal(merged.values, total[merged.indices])
    assert np.array_equal(add_pairs(np.zeros(n, np.float32), [pairs_of(array).message() for array in arrays]), total)


@given(st.integers(0, 2**32), st.integers(0, 40), st.lists(st.integers(0, 40), max_size=4))
def test_ranges_are_cut_and_counted_from_their_beginning(seed, n, inner):
    (array,) = vectors(seed, 1, n)
    cuts = [0, *sorted(min(cut, n) for cut in inner), n]
    for part, start, stop in zip(pairs_of(array).split(cuts), cuts, cuts[1:], strict=False):
        assert np.array_equal(add_pairs(np.zeros(stop - start, np.float32), [part.message()]), array[start:stop])


def test_a_message_of_fixed_length_is_filled_with_zeros_that_change_nothing():
    pairs = Pairs(np.array([0, 7]), np.array([2.0, -3.0], np.float32))
    message = pairs.message(length=5)
    assert [array.nbytes for array in message] == [20, 20]
    assert add_pairs(np.zeros(8, np.float32), [message]).tolist() == [2, 0, 0, 0, 0, 0, 0, -3]
    assert np.array_equal(merge_pairs([read_pairs(message)]).values, pairs.values)


def test_the_largest_pairs_are_kept_ties_to_the_lower_index():
    pairs = Pairs(np.array([2, 3, 5, 9]), np.array([1.0, -2.0, 1.0, 0.5], np.float32))
    assert pairs.largest(2).indices.tolist() == [2, 3]
    assert pairs.largest(7) is pairs


def test_a_merge_refuses_overflow():
    pairs = Pairs(np.array([4]), np.array([3e38], np.float32))
    with pytest.raises(S2SimError, match="overflows"):
        merge_pairs([pairs, pairs])


def test_pairs_are_put_back_where_a_gradient_stores_values():
    (gradient,) = example_gradients(1)
    vector = flat_vector(gradient)
    kept = pairs_of(vector)
    some = Pairs(kept.indices[::3], kept.values[::3])
    alone = keep_only_pairs(gradient, some)
    assert np.array_equal(flat_vector(alone), add_pairs(np.zeros_like(vector), [some.message()]))
    # An element of a row that is not stored is left out.
    free = int(np.flatnonzero(vector == 0)[0])
    assert not flat_vector(keep_only_pairs(gradient, Pairs(np.array([free]), np.ones(1, np.float32)))).any()


def test_top_k_by_layer_takes_the_largest_of_each():
    gradients = example_gradients(5)
    ran = run_reducer(make_reducer("topk:density=0.05,granularity=layer"), gradients)
    sizes = [layer.size for layer in gradients[0].layers]
    kept = [elements_kept(size, 0.05) for size in sizes]
    cuts = np.cumsum(sizes)[:-1]

    def selected(gradient):
        layers = np.split(flat_vector(gradient), cuts)
        return np.concatenate([top(layer, k) for layer, k in zip(layers, kept, strict=True)])

    expected = np.mean([selected(gradient) for gradient in gradients], axis=0)
    np.testing.assert_allclose(flat_vector(ran.results[0].mean), expected, rtol=1e-6)
    for gradient, result in zip(gradients, ran.results, strict=True):
        assert np.array_equal(flat_vector(result.sent()), selected(gradient))
    (call,) = ran.recording.calls
    assert call.bytes_by_rank == (8 * sum(kept),) * 5


def test_no_such_granularity():
    with pytest.raises(OptionError, match="granularity=tensor is not one of layer, global"):
        make_reducer("topk:granularity=tensor")
