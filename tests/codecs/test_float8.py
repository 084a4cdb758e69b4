"""Eight bits of floating point against the list of all their values."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.floats import LARGEST_FLOAT8, Float8Codec, encode_scaled, from_float8, full_range_scale, to_float8
from s2sim.errors import CodecError, OptionError

FORMS = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15)}


def finite_values(form):
    """Return all values that are not negative by their codes, as the standard defines them, until the largest."""
    _, mantissa_bits, bias = FORMS[form]
    values = []
    while not values or values[-1] < LARGEST_FLOAT8[form]:
        exponent, mantissa = divmod(len(values), 2**mantissa_bits)
        if exponent == 0:
            values.append(mantissa / 2**mantissa_bits * 2.0 ** (1 - bias))
        else:
            values.append((1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias))
    return values


def nearest(value, values):
    """Return the code of the nearest value, of two as near the even one."""
    return min(range(len(values)), key=lambda code: (abs(values[code] - abs(value)), code % 2))


@pytest.mark.parametrize(("form", "finite", "least"), [("e4m3", 127, 2.0**-9), ("e5m2", 124, 2.0**-16)])
def test_every_value_survives(form, finite, least):
    values = np.array(finite_values(form), np.float32)
    assert len(values) == finite
    assert values[1] == least
    codes = np.arange(finite, dtype=np.uint8)
    assert np.array_equal(from_float8(codes, form), values)
    assert np.array_equal(to_float8(values, form), codes)
    assert np.array_equal(to_float8(-values, form), codes | 128)
    assert np.isnan(from_float8(np.array([127], np.uint8), form))
    # Only the wider type has infinity.
    assert np.isinf(from_float8(np.array([124, 252], np.uint8), form)).all() == (form == "e5m2")


@pytest.mark.parametrize("form", FORMS)
def test_to_nearest_and_of_two_as_near_to_the_even_one(form):
    values = finite_values(form)
    middles = [(low + high) / 2 for low, high in pairwise(values)]
    drawn = np.random.default_rng(0).lognormal(0, 4, 500)
    tried = np.array([*middles, *drawn[drawn < LARGEST_FLOAT8[form]]], np.float32)
    tried = np.concatenate([tried, np.nextafter(tried, np.float32(0))])
    assert to_float8(tried, form).tolist() == [nearest(float(value), values) for value in tried]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.sampled_from(sorted(FORMS)))
def test_a_tensor_fills_the_range(largest, form):
    vector = np.array([largest, largest / 2, 0], np.float32)
    codec = Float8Codec(form)
    payload = codec.encode(vector)
    assert payload.body_bytes == 3 + 4
    found = codec.decode(payload)
    # A half of the last place, and what is below the least value.
    scale = float(full_range_scale(np.abs(vector).max(), form))
    allowed = np.abs(vector.astype(np.float64)) * 2.0 ** -(1 + FORMS[form][1]) * 1.001 + scale * 2.0**-16 + 2e-45
    assert (np.abs(found.astype(np.float64) - vector) <= allowed).all()


@pytest.mark.parametrize("value", [465.0, 1e30, np.inf, np.nan])
def test_what_does_not_fit_is_refused(value):
    assert to_float8(np.array([464.0], np.float32), "e4m3") == 126
    with pytest.raises(CodecError, match="does not fit in e4m3, whose largest is 448"):
        to_float8(np.array([1, value], np.float32), "e4m3")


def test_a_quotient_that_is_rounded_up_stays_in_range():
    for largest in np.random.default_rng(0).lognormal(0, 20, 300).astype(np.float32):
        vector = np.array([largest], np.float32)
        assert encode_scaled(vector, full_range_scale(np.abs(vector).max(), "e5m2"), "e5m2") == 123


def test_altered_payloads_are_refused():
    codec = Float8Codec()
    payload = codec.encode(np.ones(3, np.float32))
    scale, codes = payload.expect(codec, "scale", "codes")
    for changed in (
        {"scale": scale, "codes": codes[:2]},
        {"scale": scale * -1, "codes": codes},
        {"scale": scale, "codes": codes | np.uint8(127)},
    ):
        with pytest.raises(CodecError, match="an fp8 payload holds"):
            codec.decode(type(payload).of(codec, 3, **changed))
    with pytest.raises(OptionError, match="form=e3m4"):
        Float8Codec("e3m4")
