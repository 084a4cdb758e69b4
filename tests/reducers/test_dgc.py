"""Deep gradient compression: its three codings, its sampled threshold, and the preset with its momentum."""

import numpy as np
import pytest

from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once, reduce_steps, run_reducer
from s2sim.reducers.shared.selection import select_sampled
from s2sim.testing.reducer_properties import example_gradients

RANKS, SIZE = 4, 3000


def arrays():
    return [np.random.default_rng(rank).standard_normal(SIZE).astype(np.float32) for rank in range(RANKS)]


@pytest.mark.parametrize(("coding", "bytes_each"), [("int32", 8), ("int64", 12), ("distance16", 6)])
def test_codings_differ_in_bytes_alone(coding, bytes_each):
    k = SIZE // 100
    found = reduce_once(f"dgc-select:density=0.01,coding={coding}", arrays())
    assert found.bytes_sent == [bytes_each * k * (RANKS - 1)] * RANKS
    assert np.array_equal(found.values[0], reduce_once("topk:density=0.01", arrays()).values[0])


def test_the_preset_is_the_papers_step():
    density, factor = 0.001, np.float32(0.9)
    velocity, waiting = np.zeros((RANKS, SIZE), np.float32), np.zeros((RANKS, SIZE), np.float32)
    steps = [[np.roll(array, 7 * step) for array in arrays()] for step in range(5)]
    for step, found in zip(steps, reduce_steps("dgc", steps), strict=True):
        total = np.zeros(SIZE, np.float32)
        for rank, gradient in enumerate(step):
            velocity[rank] = factor * velocity[rank] + gradient
            waiting[rank] += velocity[rank]
            kept = np.argsort(-np.abs(waiting[rank]), kind="stable")[: int(SIZE * density)]
            total[kept] += waiting[rank][kept]
            waiting[rank][kept] = velocity[rank][kept] = 0
        np.testing.assert_allclose(found.values[0], total / RANKS, atol=1e-5)


@pytest.mark.parametrize("heavy", [False, True])
def test_the_sampled_threshold_finds_about_as_many(heavy):
    values = np.random.default_rng(1).standard_normal(200_000).astype(np.float32)
    values = values**5 if heavy else values
    k = 2000
    found, passes = select_sampled(values, k)
    assert 0.8 * k <= len(found) <= k
    assert 1 <= passes <= 10
    # None of them is small: what it takes is among the largest two in a hundred.
    assert np.abs(values[found]).min() >= np.sort(np.abs(values))[-2 * k]


def test_a_sample_that_misses_what_is_large_still_ends():
    values = np.full(1000, 1e-6, np.float32)
    values[1:4] = 1e3
    found, _ = select_sampled(values, 5)
    assert len(found) == 5
    assert select_sampled(np.zeros(1000, np.float32), 5)[0].tolist() == [0, 1, 2, 3, 4]
    assert len(select_sampled(np.zeros(0, np.float32), 5)[0]) == 0


def test_only_fixed_sizes_need_no_host():
    def from_data(text):
        return [call.size_from_data for call in run_reducer(make_reducer(text), example_gradients(2)).recording.calls]

    assert from_data("dgc-select") == from_data("dgc-select:coding=int64") == [False]
    assert from_data("dgc-select:coding=distance16") == from_data("dgc-select:threshold=sampled") == [True]
