"""Bits an element that papers and implementations of quantisers state, against real messages."""

import numpy as np
import pytest

from s2sim.codecs.integer_codes import encode_signed
from s2sim.codecs.quantize import bucket_norms, to_levels
from s2sim.reducers.run import reduce_once

N = 64_000


def gaussian(count=N):
    return np.random.default_rng(0).standard_normal(count).astype(np.float32)


def bits_an_element(text, array):
    (size,) = reduce_once(text, [array]).recording.calls[0].bytes_by_rank
    return 8 * size / len(array)


def test_natural_compression_saves_a_factor_of_3_56():
    """S. Horvath et al., arXiv:1905.10988, abstract."""
    assert 32 / bits_an_element("natural", gaussian()) == pytest.approx(3.56, abs=0.005)


def test_qsgd_of_grace_has_8_25_bits():
    """One int8 an element and a float32 norm for 128 (github.com/sands-lab/grace)."""
    assert bits_an_element("qsgd:bits=8,bucket=128", gaussian()) == 8.25


def test_terngrad_has_two_bits_where_entropy_would_have_1_585():
    assert bits_an_element("terngrad", gaussian()) == pytest.approx(2, abs=1e-3)


def levels_of(vector, levels):
    norm = bucket_norms(vector, len(vector))
    return to_levels(vector, norm, len(vector), levels, np.random.default_rng(1)).astype(np.int32) - levels


@pytest.mark.parametrize("count", [1 << 12, 1 << 16])
def test_elias_codes_of_one_level_take_about_the_root_of_n_times_its_logarithm(count):
    """D. Alistarh et al., QSGD, theorem 3.2, recalled: for s = 1 about sqrt(n) (log2 n + O(1)) bits."""
    vector = gaussian(count)
    numbers = levels_of(vector, 1)
    assert np.count_nonzero(numbers) <= np.sqrt(count)
    bits = 8 * len(encode_signed(numbers))
    assert bits <= np.sqrt(count) * (np.log2(count) + 3)


def test_elias_codes_of_as_many_levels_as_the_root_of_n_take_2_8_bits():
    """D. Alistarh et al., QSGD, corollary 3.3, recalled: at most 2.8 n + 32 bits for s = sqrt(n)."""
    count = 1 << 14
    bits = 8 * len(encode_signed(levels_of(gaussian(count), 128))) / count
    assert 2.4 < bits <= 2.8


P = 8


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        # Shared notes on compressors, section G; what a tensor's scales and a bucket's norms add is in them.
        ("qsgd:bits=8,bucket=128", N * (8 / 8 + 4 / 128) * (P - 1)),
        ("qsgd:bits=4,aggregate=two-phase", 2 * N * (4 / 8 + 4 / 512) * (P - 1) / P),
        ("terngrad", N / 4 * (P - 1)),
        ("onebit-sgd", 2 * (N / 8 + 8 * P) * (P - 1) / P),
        ("signsgd-vote:aggregate=server", N / 8 + N / 8),
        ("ef-signsgd", (N / 8 + 4) * (P - 1)),
        ("natural", 9 * N / 8 * (P - 1)),
        ("natural:aggregate=two-phase", 9 * N / 4 * (P - 1) / P),
    ],
)
def test_bytes_are_those_of_the_formulas(text, formula):
    sent = reduce_once(text, [gaussian()] * P).bytes_sent
    assert max(sent) == pytest.approx(formula, rel=1e-3)
