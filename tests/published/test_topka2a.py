"""The condition of use that TopKA2A's authors state (ICPP 2024, as summarised), against the bytes of real messages."""

import numpy as np
import pytest

from s2sim.reducers.run import reduce_once
from s2sim.reducers.systems.topk import MAX_DENSITY, least_density

PUBLISHED = {4: 0.167, 8: 0.0714, 16: 0.0333, 32: 0.0161, 64: 0.0079, 128: 0.0039}
"""Density from which on TopKA2A sends less than an all-gather of pairs, by the number of ranks."""


@pytest.mark.parametrize(("ranks", "density"), PUBLISHED.items())
def test_the_least_densities(ranks, density):
    # Published with three digits or two.
    assert least_density(ranks) == pytest.approx(density, rel=0.01)


def bytes_sent(text, ranks, n):
    arrays = [np.ones(n, np.float32)] * ranks
    return max(reduce_once(text, arrays).bytes_sent)


@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_it_sends_less_than_gathered_pairs_from_that_density_on(ranks):
    n = 1000 * ranks
    for density, wins in ((0.95 * least_density(ranks), False), (1.05 * least_density(ranks), True)):
        sent = {name: bytes_sent(f"{name}:density={density:.6f}", ranks, n) for name in ("topka2a", "topk")}
        assert (sent["topka2a"] < sent["topk"]) == wins


@pytest.mark.parametrize("ranks", [4, 8])
def test_it_sends_less_than_dense_up_to_one_half(ranks):
    n = 1000 * ranks
    dense = bytes_sent("dense", ranks, n)
    assert bytes_sent(f"topka2a:density={MAX_DENSITY - 0.01}", ranks, n) < dense
    assert bytes_sent(f"topka2a:density={MAX_DENSITY}", ranks, n) == dense
    assert bytes_sent(f"topka2a:density={MAX_DENSITY + 0.01}", ranks, n) > dense
