"""bfloat16 against the definition of its rounding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from s2sim.codecs.floats import BFLOAT16, from_bfloat16, narrow, to_bfloat16, widen
from s2sim.errors import CodecError

# What is larger rounds to 2^128, which bfloat16 has not.
LARGEST = float(np.float32((2 - 2.0**-7) * 2.0**127))
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-LARGEST, max_value=LARGEST)


@pytest.mark.slow
@given(arrays(np.float32, st.integers(0, 50), elements=FLOATS))
def test_no_bfloat16_is_nearer_and_ties_are_even(values):
    found = from_bfloat16(to_bfloat16(values))
    bits = to_bfloat16(values).view("<u2").astype(np.int64)
    for value, own, at in zip(values.astype(np.float64), found.astype(np.float64), bits, strict=True):
        for other in (at - 1, at + 1):
            if other & 0x7FFF < 0x7F80 and 0 <= other <= 0xFFFF and (other ^ at) & 0x8000 == 0:
                beside = float(from_bfloat16(np.array([other], "<u2").view(BFLOAT16))[0])
                assert abs(own - value) < abs(beside - value) or (
                    abs(own - value) == abs(beside - value) and at % 2 == 0
                )


def test_every_bfloat16_comes_back():
    every = np.arange(1 << 16, dtype="<u2").view(BFLOAT16)
    back = to_bfloat16(from_bfloat16(every)).view("<u2")
    numbers = ~np.isnan(from_bfloat16(every))
    assert np.array_equal(back[numbers], every.view("<u2")[numbers])
    assert np.isnan(from_bfloat16(back.view(BFLOAT16)[~numbers])).all()


def test_shapes_stay_and_chunks_join():
    values = np.linspace(-3, 3, 200_003, dtype=np.float32)
    whole = from_bfloat16(to_bfloat16(values))
    assert np.array_equal(whole[70_000:70_010], from_bfloat16(to_bfloat16(values[70_000:70_010])))
    assert to_bfloat16(values[:200_000].reshape(1000, 200)[:, ::2]).shape == (1000, 100)
    assert (np.abs(whole - values) <= np.abs(values) * 2.0**-8).all()


def test_what_is_too_large_is_refused():
    with pytest.raises(CodecError, match=r"3.40\d+e\+38 does not fit in bfloat16"):
        to_bfloat16(np.array([1.0, np.finfo(np.float32).max], np.float32))


def test_types_of_two_bytes_are_told_apart():
    values = np.array([1.0009765625, -2.0], np.float32)
    assert widen(narrow(values, BFLOAT16)).tolist() == [1.0, -2.0]
    assert widen(narrow(values, np.dtype(np.float16))).tolist() == values.tolist()
    assert widen(values) is values


def test_a_number_too_large_is_said_beside_infinities_too():
    with pytest.raises(CodecError, match=r"3\.4\d*e\+38 does not fit"):
        to_bfloat16(np.array([np.inf, 3.4e38, np.nan], np.float32))
