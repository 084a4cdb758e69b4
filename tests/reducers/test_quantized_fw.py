"""Quantised Frank-Wolfe's exchange: unbiased codes on the grid of their levels, through a star."""

import numpy as np
import pytest

from s2sim.errors import OptionError
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import reduce_once

N = 50


def arrays_of(ranks):
    random = np.random.default_rng(2)
    return [random.standard_normal(N).astype(np.float32) for _ in range(ranks)]


@pytest.mark.parametrize("partitions", [1, 3, 4])
def test_one_rank_ends_on_the_grid_of_twice_rounded_values(partitions):
    (array,) = arrays_of(1)
    (value,) = reduce_once(f"quantized-fw:partitions={partitions}", [array]).values
    scale = np.abs(array).max()
    levels = value / scale * partitions
    # The largest magnitude is on a level, so that the second code has the same grid and rounds nothing.
    assert levels == pytest.approx(np.rint(levels), abs=1e-5)
    assert (np.abs(value - array) <= scale / partitions * 1.0001).all()


@pytest.mark.slow
def test_the_mean_is_unbiased():
    arrays = arrays_of(3)
    runs = np.array([reduce_once("quantized-fw", arrays, seed=seed).values[0] for seed in range(400)])
    spread = runs.std(axis=0, ddof=1) / np.sqrt(len(runs))
    assert (np.abs(runs.mean(axis=0) - np.mean(arrays, axis=0)) <= 5 * spread + 1e-6).all()


@pytest.mark.parametrize(("partitions", "bits"), [(1, 2), (2, 3), (3, 3), (4, 4), (7, 4)])
def test_bytes_are_those_of_the_formula(partitions, bits):
    once = reduce_once(f"quantized-fw:partitions={partitions}", arrays_of(4))
    message = 4 + -(-N * bits // 8)
    assert once.bytes_sent == [3 * message, message, message, message]
    assert once.bytes_received == [3 * message, message, message, message]


def test_partitions_are_few():
    for partitions in (0, 1 << 15):
        with pytest.raises(OptionError, match="partitions"):
            make_reducer(f"quantized-fw:partitions={partitions}")
