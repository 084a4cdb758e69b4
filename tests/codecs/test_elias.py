"""Elias' codes against codes written out one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.integer_codes import decode_signed, elias_words, encode_signed
from s2sim.errors import CodecError


def omega(number):
    """Return the code as the paper tells it: a zero, before it the number, before it its length less one ..."""
    code = "0"
    while number > 1:
        binary = f"{number:b}"
        code, number = binary + code, len(binary) - 1
    return code


def naive(numbers):
    text, last = "", -1
    for place, number in enumerate(numbers):
        if number:
            text += omega(place - last) + ("1" if number < 0 else "0") + omega(abs(number))
            last = place
    text += "1" * (-len(text) % 8)
    return np.packbits(np.array(list(text), np.uint8)) if text else np.empty(0, np.uint8)


@given(st.lists(st.integers(1, (1 << 31) - 1) | st.integers(1, 600), min_size=1, max_size=10))
def test_codes_of_numbers(numbers):
    words, widths = elias_words(np.array(numbers))
    found = [f"{word:0{width}b}" for word, width in zip(words.tolist(), widths.tolist(), strict=True)]
    assert found == list(map(omega, numbers))


@given(st.lists(st.sampled_from([0, 0, 0, 1, -1, 2, -3, 7, -127, 700, -40_000]), max_size=200))
def test_the_stream_is_that_of_the_codes_one_after_the_other(numbers):
    stream = encode_signed(np.array(numbers, np.int32))
    assert np.array_equal(stream, naive(numbers))
    assert decode_signed(stream, len(numbers)).tolist() == numbers


def test_long_distances_come_back():
    numbers = np.zeros(300_000, np.int32)
    numbers[[3, 299_999]] = 5, -70_000
    assert np.array_equal(decode_signed(encode_signed(numbers), len(numbers)), numbers)


def test_a_stream_of_more_numbers_is_refused():
    with pytest.raises(CodecError, match="a stream of 3 numbers goes on to the one at 4"):
        decode_signed(encode_signed(np.ones(5, np.int32)), 3)
