"""Golomb's codes against codes written out one by one, and their length against the expected one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.codecs.bits import read_words, write_words
from s2sim.codecs.integer_codes import decode_positions, encode_positions, rice_bits
from s2sim.errors import CodecError


def bits_per_position(density, low_bits):
    """Return the expected bits of one position: b + 1 / (1 - (1 - p)^(2^b))."""
    return low_bits + 1 / (1 - (1 - density) ** (1 << low_bits))


def naive(positions, low_bits):
    text, last = "", -1
    for position in positions:
        gap = position - last - 1
        text += "0" * (gap >> low_bits) + "1"
        text += f"{gap % (1 << low_bits):0{low_bits}b}" if low_bits else ""
        last = position
    return np.packbits(np.array(list(text), np.uint8)) if text else np.empty(0, np.uint8)


@given(st.sets(st.integers(0, 3000), max_size=60), st.integers(0, 12))
def test_the_stream_is_that_of_the_codes_one_after_the_other(chosen, low_bits):
    positions = np.array(sorted(chosen), np.int64)
    stream = encode_positions(positions, low_bits)
    assert np.array_equal(stream, naive(positions.tolist(), low_bits))
    assert np.array_equal(decode_positions(stream, low_bits), positions)


def test_long_runs_of_zeros_come_back():
    positions = np.array([5, 1_000_000, 1_000_001])
    assert np.array_equal(decode_positions(encode_positions(positions, 1), 1), positions)


@pytest.mark.parametrize("density", [0.1, 0.02, 0.01, 0.001])
def test_random_positions_take_the_expected_bits(density):
    positions = np.flatnonzero(np.random.default_rng(7).random(2_000_000) < density)
    low_bits = rice_bits(density)
    bits = 8 * encode_positions(positions, low_bits).nbytes / len(positions)
    # Three standard deviations of the runs of zeros, each of which is geometric.
    assert bits == pytest.approx(bits_per_position(density, low_bits), abs=3 / np.sqrt(len(positions)))


@pytest.mark.parametrize("density", [0.3, 0.1, 0.05, 0.02, 0.01, 0.001, 0.0001])
def test_no_other_number_of_low_bits_is_shorter_by_much(density):
    best = min(bits_per_position(density, low_bits) for low_bits in range(20))
    assert bits_per_position(density, rice_bits(density)) <= 1.01 * best


def test_all_positions_need_no_low_bits():
    assert rice_bits(1.0) == 0
    assert rice_bits(1e-300) == 31
    assert encode_positions(np.arange(16), 0).nbytes == 2


def test_widths_out_of_range_are_refused():
    with pytest.raises(CodecError, match="40 low bits"):
        encode_positions(np.arange(3), 40)


@given(st.lists(st.tuples(st.integers(1, 57), st.integers(0, 1 << 57), st.integers(0, 70)), max_size=20))
def test_words_are_read_where_they_were_written(parts):
    widths = np.array([width for width, _, _ in parts], np.int64)
    words = np.array([word % (1 << width) for width, word, _ in parts], np.uint64)
    ends = np.cumsum(widths + np.array([gap for _, _, gap in parts], np.int64))
    stream = write_words(words, widths, ends - widths, int(ends[-1]) if parts else 0)
    assert np.array_equal(read_words(stream, ends - widths, widths), words)
