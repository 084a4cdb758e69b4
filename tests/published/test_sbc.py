"""What SBC's authors report, and the lengths of its code, against real bit streams."""

import numpy as np
import pytest

from s2sim.codecs.integer_codes import encode_positions, rice_bits
from s2sim.reducers.run import reduce_once

N = 1_000_000

# Bits of a position by the density and b*: derived from the formula in the first author's later code, less its extra
# bit (shared notes on compressors, section C), and the rate that follows, 32 / (p b_pos), with one step a message.
TABLE = {
    0.1: (3, 4.756, 67.3),
    0.05: (4, 5.786, 110.6),
    0.02: (5, 7.100, 225.3),
    0.01: (6, 8.108, 394.7),
    0.005: (7, 9.112, 702.4),
    0.001: (9, 11.495, 2784),
    0.0001: (13, 14.788, 21639),
}


def bits_per_position(density, low_bits):
    """Return the expected bits of one position: b + 1 / (1 - (1 - p)^(2^b))."""
    return low_bits + 1 / (1 - (1 - density) ** (1 << low_bits))


@pytest.mark.parametrize(("density", "expected"), TABLE.items())
def test_bits_of_a_position(density, expected):
    low_bits, bits, rate = expected
    assert rice_bits(density) == low_bits
    assert bits_per_position(density, low_bits) == pytest.approx(bits, abs=6e-4)
    assert 32 / (density * bits_per_position(density, low_bits)) == pytest.approx(rate, rel=6e-4)
    # Exactly as many positions as a message has, anywhere.
    k = round(10 * N * density) if density < 0.001 else round(N * density)
    n = 10 * N if density < 0.001 else N
    positions = np.sort(np.random.default_rng(1).choice(n, k, replace=False))
    assert 8 * len(encode_positions(positions, low_bits)) / k == pytest.approx(bits, rel=0.01)


def rate(steps, low_bits=6):
    """Return how many times fewer bits a message of ``steps`` steps has than as many dense gradients of 32 bits."""
    return steps * 32 / (0.01 * bits_per_position(0.01, low_bits))


@pytest.mark.parametrize(
    ("steps", "by_formula", "reported", "off"),
    [
        # arXiv:1805.08768, abstract; which preset each figure belongs to is inferred from the code's length.
        (10, 3947, 3531, 0.12),
        (100, 39468, 37208, 0.07),
    ],
)
def test_rates_on_resnet_50(steps, by_formula, reported, off):
    assert rate(steps) == pytest.approx(by_formula, rel=1e-3)
    assert 0 < rate(steps) / reported - 1 < off


def test_a_real_message_has_the_rate_of_the_formula():
    once = reduce_once("sbc:density=0.01", [np.random.default_rng(0).standard_normal(N).astype(np.float32)])
    (size,) = once.recording.calls[0].bytes_by_rank
    assert 10 * 4 * N / size == pytest.approx(3947, rel=0.01)


def test_the_paper_s_example_of_a_hundredth():
    """8.38 bits a position, 1.9 times less than 16: recalled, and what seven low bits give."""
    assert bits_per_position(0.01, 7) == pytest.approx(8.38, abs=0.005)
    assert 16 / bits_per_position(0.01, 7) == pytest.approx(1.9, abs=0.05)
    assert rate(100, low_bits=7) == pytest.approx(38178, rel=1e-3)
