"""omnireduce: exact, its blocks and bytes, and how many blocks are not all zero."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import OptionError
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once, run_reducer
from s2sim.reducers.shared.gathered import flat_vector
from s2sim.testing.reducer_properties import example_gradients


def blocks_of(array, block):
    """Return (number, elements) of the blocks that are not all zero."""
    found = {}
    for number in range(-(-len(array) // block)):
        part = array[number * block : (number + 1) * block]
        if part.any():
            found[number] = part
    return found


def naive_bytes(arrays, block):
    """Return what every rank sends: its blocks to other aggregators, and in a ring all sums but its successor's."""
    ranks = len(arrays)
    held = [blocks_of(array, block) for array in arrays]
    union = {number: part for own in held for number, part in own.items()}
    sent = []
    for rank, own in enumerate(held):
        up = sum(4 * len(part) + 4 for number, part in own.items() if number % ranks != rank)
        down = sum(4 * len(part) + 4 for number, part in union.items() if number % ranks != (rank + 1) % ranks)
        sent.append(up + down if ranks > 1 else 0)
    return sent


@given(st.integers(1, 6), st.integers(0, 60), st.integers(1, 9), st.integers(0, 2**32))
def test_it_is_exact_and_only_blocks_that_are_not_all_zero_travel(ranks, n, block, seed):
    rng = np.random.default_rng(seed)
    arrays = [(rng.integers(-3, 4, n) * (rng.random(n) < 0.2)).astype(np.float32) for _ in range(ranks)]
    once = reduce_once(f"omnireduce:block={block}", arrays)
    assert np.array_equal(once.values[0], np.sum(arrays, axis=0, dtype=np.float32) / np.float32(ranks))
    assert once.bytes_sent == naive_bytes(arrays, block)


@pytest.mark.parametrize("ranks", [2, 4])
def test_bytes_are_those_of_its_formula(ranks):
    blocks = 6 * ranks
    n = 256 * blocks
    arrays = np.zeros((ranks, blocks, 256), np.float32)
    # Each rank has half of the blocks, of every aggregator as many; together they have two thirds: D + D_union = 7/6.
    for rank in range(ranks):
        for number in range(blocks):
            arrays[rank, number, 7] = number // ranks in ((0, 1, 2) if rank % 2 else (1, 2, 3))
    once = reduce_once("omnireduce", list(arrays.reshape(ranks, n)))
    assert once.bytes_sent == [(4 * n + n // 64) * 7 * (ranks - 1) // (6 * ranks)] * ranks


def test_all_layers_are_cut_into_blocks_and_may_be_summed_in_nodes_first():
    gradients = example_gradients(4)
    reducer = make_reducer("omnireduce:hierarchical=true,node=2")
    assert reducer.inner.compresses(gradients[0]) == tuple(range(len(gradients[0].layers)))
    plain, nodes = (run_reducer(each, gradients) for each in (make_reducer("omnireduce"), reducer))
    for one, other in zip(plain.results, nodes.results, strict=True):
        np.testing.assert_allclose(flat_vector(one.mean), flat_vector(other.mean), atol=1e-6)
    assert len(nodes.recording.calls) > len(plain.recording.calls)


def test_a_block_has_an_element():
    with pytest.raises(OptionError, match="block=0 must be at least 1"):
        make_reducer("omnireduce:block=0")
