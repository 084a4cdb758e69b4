"""Numbers of a few bits against their bits written out one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.bits import pack_integers, packed_bytes, unpack_integers
from s2sim.errors import CodecError


def bits_of(number, bits):
    return [number >> place & 1 for place in range(bits)]


@given(st.integers(1, 8), st.lists(st.integers(0, 255), max_size=40))
def test_numbers_of_up_to_eight_bits_follow_each_other_without_a_gap(bits, numbers):
    numbers = [number % (1 << bits) for number in numbers]
    packed = pack_integers(np.array(numbers, np.uint8), bits)
    flat = [bit for number in numbers for bit in bits_of(number, bits)]
    assert np.array_equal(packed, np.packbits(np.array(flat, np.uint8), bitorder="little"))
    assert unpack_integers(packed, bits, len(numbers)).tolist() == numbers


@pytest.mark.parametrize("bits", range(1, 33))
def test_every_width_comes_back_and_takes_its_bits(bits):
    dtype = np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32
    for count in (0, 1, 7, 8, 9, 70_001):
        numbers = np.random.default_rng(bits).integers(0, 1 << bits, count, dtype=np.uint64).astype(dtype)
        packed = pack_integers(numbers, bits)
        assert packed.nbytes == packed_bytes(count, bits) == -(-count * bits // 8)
        found = unpack_integers(packed, bits, count)
        assert found.dtype == dtype
        assert np.array_equal(found, numbers)


def test_bytes_that_do_not_fit_are_refused():
    with pytest.raises(CodecError, match="5 numbers of 3 bits are 2 bytes; found uint8 of shape"):
        unpack_integers(np.zeros(3, np.uint8), 3, 5)
    with pytest.raises(CodecError, match="0 bits"):
        pack_integers(np.zeros(3, np.uint8), 0)
