"""fp8 against an oracle written for reading, its bytes and its error."""

from itertools import pairwise

import numpy as np
import pytest

from s2sim.codecs.floats import LARGEST_FLOAT8, from_float8, to_float8
from s2sim.reducers.run import reduce_once
from s2sim.reducers.script import chunk_bounds


def rounded(vector, form):
    """Return what a vector is after it has travelled."""
    largest = np.float32(LARGEST_FLOAT8[form])
    scale = max(np.abs(vector).max() / largest, np.float32(1e-45))
    return from_float8(to_float8(np.clip(vector / scale, -largest, largest), form), form) * scale


def two_phases(vectors, form):
    ranks, mean = len(vectors), np.empty_like(vectors[0])
    cuts = chunk_bounds(len(mean), ranks)
    for start, stop in pairwise(cuts):
        if stop > start:
            total = np.zeros(stop - start, np.float32)
            for vector in vectors:
                total += rounded(vector[start:stop], form)
            mean[start:stop] = rounded(total, form) / np.float32(ranks)
    return mean


def draw(ranks, n=1000, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(n, np.float32) for _ in range(ranks)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("form", LARGEST_FLOAT8)
def test_chunks_are_rounded_summed_and_rounded_again(ranks, form):
    vectors = draw(ranks, n=201)
    found = reduce_once(f"fp8:form={form}", vectors).values
    expected = two_phases(vectors, form)
    assert all(np.array_equal(each, expected) for each in found)


def test_ranks_do_not_overflow_and_lose_some_per_cent():
    vectors = draw(40, n=400)
    mean = np.mean(vectors, axis=0)
    for form, most in (("e4m3", 0.04), ("e5m2", 0.08)):
        found = reduce_once(f"fp8:form={form}", vectors).values[0]
        assert 0.01 < np.linalg.norm(found - mean) / np.linalg.norm(mean) < most


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_one_byte_an_element_and_a_scale_a_chunk_in_each_phase(ranks):
    n = 80 * ranks
    assert reduce_once("fp8", draw(ranks, n)).bytes_sent == [2 * (ranks - 1) * (n // ranks + 4)] * ranks
    assert reduce_once("fp8:aggregate=gather", draw(ranks, n)).bytes_sent == [(ranks - 1) * (n + 4)] * ranks
