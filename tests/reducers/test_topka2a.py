"""topka2a against selecting shard by shard, its bytes and messages, and what it says of itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.top_k import elements_kept
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once
from s2sim.reducers.script import count_rounds
from s2sim.reducers.wrappers.error_feedback import ErrorFeedback


def naive(arrays, density):
    """Keep the largest of each shard, by magnitude, then by index; average."""
    n, ranks = len(arrays[0]), len(arrays)
    total = np.zeros(n, np.float32)
    for array in arrays:
        for shard in range(ranks):
            start, stop = shard * n // ranks, (shard + 1) * n // ranks
            order = sorted(range(start, stop), key=lambda i: (-abs(float(array[i])), i))
            for i in order[: elements_kept(stop - start, density)]:
                total[i] += array[i]
    return total / np.float32(ranks)


@given(st.integers(1, 6), st.integers(0, 50), st.floats(0.02, 1), st.integers(0, 2**32))
def test_it_averages_the_largest_of_each_shard(ranks, n, density, seed):
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-3, 4, n).astype(np.float32) for _ in range(ranks)]
    assert np.array_equal(reduce_once(f"topka2a:density={density!r}", arrays).values[0], naive(arrays, density))


@pytest.mark.parametrize(("calls", "posts"), [("separate", 3), ("together", 2)])
def test_bytes_and_messages_are_those_of_its_formula(calls, posts):
    ranks, n, k = 4, 400, 40
    arrays = [np.random.default_rng(rank).standard_normal(n, np.float32) for rank in range(ranks)]
    once = reduce_once(f"topka2a:density=0.1,calls={calls}", arrays)
    assert once.bytes_sent == [(8 * k + 4 * n) * (ranks - 1) // ranks] * ranks
    # P-1 messages a rank in each of them.
    assert count_rounds(once.recording) == (0, posts, 0)
    assert [call.kind for call in once.recording.calls] == ["all_to_all"] * (posts - 1) + ["all_gather"]


def notes(text, ranks):
    gradients = [Gradient(("w",), (np.ones(100, np.float32),))] * ranks
    return make_reducer(text).fitted(gradients, 0).notes()


def test_it_says_whether_its_density_is_one_to_use_it_at():
    assert notes("topka2a:density=0.02", 1) == ()
    (note,) = notes("topka2a:density=0.02", 16)
    assert "above a density of 0.0333, 1/(2(P-1))," in note
    assert note.endswith("at 0.02 topk sends less")
    assert notes("topka2a:density=0.05", 16)[0].endswith("at 0.05 it does")
    assert notes("topka2a:density=0.5", 16)[0].endswith("at 0.5 dense sends less")
    assert isinstance(make_reducer("topka2a:ef=true"), ErrorFeedback)
    assert notes("topka2a:ef=true", 8)[0].endswith("topk sends less")
