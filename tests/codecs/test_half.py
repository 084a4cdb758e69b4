import numpy as np
import pytest

from s2sim.codecs.floats import from_half, to_half
from s2sim.errors import CodecError


def test_every_half_value_survives_the_round_trip():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    assert np.array_equal(to_half(from_half(halves)).view(np.uint16), halves.view(np.uint16))


def test_all_is_rounded_as_numpy_rounds_it():
    halves = np.arange(0x7BFF, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[1:] + halves[:-1]) / 2
    near = [np.nextafter(ties, np.float32(side)) for side in (0, 1e9)]
    bits = np.random.default_rng(0).integers(0, 2**32, 1 << 18, np.uint32).view(np.float32)
    values = np.concatenate([ties, *near, bits[np.abs(bits) < 65519]])
    for signed in (values, -values):
        assert np.array_equal(to_half(signed).view(np.uint16), signed.astype(np.float16).view(np.uint16))


def test_relative_error_is_at_most_half_a_unit_in_the_last_place():
    values = np.random.default_rng(0).standard_normal(10_000, np.float32)
    values = values[np.abs(values) > 2.0**-14]
    assert np.max(np.abs(from_half(to_half(values)) - values) / np.abs(values)) <= 2.0**-11


@pytest.mark.parametrize("value", [65519.99, -65519.99])
def test_largest_values_round_down(value):
    assert abs(float(to_half(np.array([value], np.float32))[0])) == 65504


@pytest.mark.parametrize("value", [65520.0, -1e38])
def test_overflow_is_refused_with_its_magnitude(value):
    with pytest.raises(CodecError, match=f"{abs(value):.6g}".replace("+", r"\+")):
        to_half(np.array([1.0, value, 2.0], np.float32))


def test_infinities_and_nan_pass():
    values = np.array([np.inf, -np.inf, np.nan], np.float32)
    assert np.array_equal(to_half(values).astype(np.float32), values, equal_nan=True)


def test_underflow_is_silent():
    assert to_half(np.array([1e-30], np.float32))[0] == 0
