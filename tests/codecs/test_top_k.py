import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.top_k import select_top_k
from s2sim.errors import CodecError


def naive_top_k(values, k):
    """Sort by falling magnitude, then by index."""
    order = np.lexsort((np.arange(len(values)), -np.abs(values)))
    return np.sort(order[:k])


# Few distinct values, so that ties are everywhere.
vectors = st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1e-45, 3e38]), max_size=40)


@given(vectors, st.data())
def test_equals_a_sort(entries, data):
    values = np.array(entries, np.float32)
    k = data.draw(st.integers(0, len(values)))
    selected = select_top_k(values, k)
    assert selected.dtype == np.int64
    assert np.array_equal(selected, naive_top_k(values, k))


def test_large_random_vector():
    values = np.random.default_rng(0).standard_normal(200_000, np.float32).round(2)
    assert np.array_equal(select_top_k(values, 2_000), naive_top_k(values, 2_000))


@pytest.mark.parametrize("density", [0.0, 0.02, 0.4, 0.7])
@pytest.mark.parametrize("k", [1, 300, 5_000, 19_999])
def test_sparse_vector(density, k):
    generator = np.random.default_rng(1)
    values = np.where(generator.random(20_000) < density, generator.standard_normal(20_000), 0).astype(np.float32)
    assert np.array_equal(select_top_k(values, k), naive_top_k(values, k))


@pytest.mark.parametrize("k", [-1, 4])
def test_impossible_k_is_refused(k):
    with pytest.raises(CodecError, match="between 0 and 3"):
        select_top_k(np.ones(3, np.float32), k)
