import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.bitmap import (
    BLOCK_ELEMENTS,
    CHUNK_ELEMENTS,
    bitmap_bytes,
    count_nonzero,
    iterate_positions,
    pack_nonzero,
    pack_positions,
    unpack_positions,
)
from s2sim.errors import CodecError
from s2sim.testing.codecs import example_vector

SIZES = [0, 1, 7, 8, 9, 1000, CHUNK_ELEMENTS - 1, CHUNK_ELEMENTS, CHUNK_ELEMENTS + 1, 2 * CHUNK_ELEMENTS + 13]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("density", [0.0, 0.003, 0.05, 0.3, 1.0])
def test_all_ways_agree_with_packbits(n, density):
    array = example_vector(n, density=density)
    expected = np.packbits(array != 0, bitorder="little")
    positions = np.flatnonzero(array)
    assert np.array_equal(pack_nonzero(array), expected)
    assert np.array_equal(pack_positions(positions, n), expected)
    unpacked = unpack_positions(expected, n)
    assert unpacked.dtype == np.int64
    assert np.array_equal(unpacked, positions)
    assert count_nonzero(array) == len(positions)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_positions_round_trip(case):
    n, chosen = case
    positions = np.array(sorted(chosen), np.int64)
    bitmap = pack_positions(positions, n)
    assert bitmap.shape == (bitmap_bytes(n),)
    assert np.array_equal(unpack_positions(bitmap, n), positions)


def test_negative_zero_is_zero_and_denormals_are_not():
    array = np.array([-0.0, 1e-45, -1e-45, 0.0], np.float32)
    assert pack_nonzero(array).tolist() == [0b0110]


@pytest.mark.parametrize("density", [0.001, 0.02, 0.05, 0.3, 1.0])
def test_parts_are_bounded_and_together_all_positions(density):
    array = example_vector(2 * BLOCK_ELEMENTS + 77, density=density)
    # Rows of ones beside random elements: as many bits in few bytes as there can be.
    array[: BLOCK_ELEMENTS // 8] = 1
    parts = list(iterate_positions(pack_nonzero(array)))
    assert max(map(len, parts)) <= CHUNK_ELEMENTS
    assert np.array_equal(np.concatenate(parts), np.flatnonzero(array))


def test_strided_input():
    array = example_vector(1000, density=0.2)
    assert np.array_equal(pack_nonzero(array[::3]), np.packbits(array[::3] != 0, bitorder="little"))


def test_bits_beyond_the_end_are_refused():
    with pytest.raises(CodecError, match="beyond"):
        unpack_positions(np.array([0, 0b1000], np.uint8), 11)


def test_bitmap_of_another_size_is_refused():
    with pytest.raises(CodecError, match="3 bytes"):
        unpack_positions(np.zeros(2, np.uint8), 17)


@pytest.mark.parametrize("positions", [[-1, 3], [3, 17]])
def test_positions_outside_are_refused(positions):
    with pytest.raises(CodecError, match="bitmap of 17"):
        pack_positions(np.array(positions), 17)


def test_or_of_bitmaps_is_the_union():
    left, right = example_vector(5000, density=0.02, seed=1), example_vector(5000, density=0.02, seed=2)
    merged = pack_nonzero(left) | pack_nonzero(right)
    assert np.array_equal(unpack_positions(merged, 5000), np.flatnonzero((left != 0) | (right != 0)))
