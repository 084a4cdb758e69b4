"""Sparse binary and ternary compression against naive oracles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.golomb import encode_positions
from s2sim.codecs.top_k import elements_kept
from s2sim.errors import OptionError
from s2sim.reducers.once import reduce_once
from s2sim.reducers.registry import make_reducer

RANKS = 5


def arrays(count=2000, ranks=RANKS):
    rng = np.random.default_rng(4)
    return [rng.standard_normal(count).astype(np.float32) for _ in range(ranks)]


def naive_sbc(vector, density):
    """Return what a tensor becomes, and where it is not zero."""
    k = elements_kept(len(vector), density)
    ordered = sorted(range(len(vector)), key=lambda place: (-abs(float(vector[place])), place))
    sides = []
    for sign in (1, -1):
        chosen = [place for place in ordered if sign * vector[place] > 0][:k]
        mean = float(np.mean(vector[chosen].astype(np.float64))) if chosen else 0.0
        sides.append((sign * mean, mean, sorted(chosen)))
    _, mean, chosen = max(sides, key=lambda side: side[0])
    decoded = np.zeros(len(vector))
    decoded[chosen] = mean
    return decoded, chosen


@pytest.mark.parametrize(("density", "low_bits"), [(0.01, 6), (0.05, 4), (0.001, 9), (1, 0)])
def test_sbc(density, low_bits):
    gradients = arrays()
    once = reduce_once(f"sbc:density={density}", gradients)
    naive = [naive_sbc(gradient, density) for gradient in gradients]
    assert once.values[0] == pytest.approx(np.mean([decoded for decoded, _ in naive], axis=0), abs=1e-6)
    (call,) = once.recording.calls
    assert call.size_from_data
    assert call.bytes_by_rank == tuple(len(encode_positions(np.array(chosen), low_bits)) + 4 for _, chosen in naive)


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 1e-45, 3e38]), min_size=1, max_size=30))
def test_sbc_of_few_and_equal_values(values):
    vector = np.array(values, np.float32)
    decoded, _ = naive_sbc(vector, 0.2)
    assert reduce_once("sbc:density=0.2", [vector]).values[0] == pytest.approx(decoded, rel=1e-6)


def test_the_paper_s_low_bits():
    gradients = arrays(100_000, ranks=1)
    six, seven = (reduce_once(text, gradients) for text in ("sbc", "sbc:low_bits=7"))
    assert np.array_equal(six.values[0], seven.values[0])
    sizes = [8 * (once.recording.calls[0].bytes_by_rank[0] - 4) / 1000 for once in (six, seven)]
    assert sizes == pytest.approx([8.108, 8.382], rel=0.01)


@pytest.mark.parametrize("text", ["sbc:density=0", "sbc:density=2", "sbc:low_bits=-1"])
def test_options_out_of_range(text):
    with pytest.raises(OptionError, match="sbc: "):
        make_reducer(text)
