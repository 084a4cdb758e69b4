"""Elias' recursive code (omega) of whole numbers from 1 on, and streams of signed whole numbers most of which are zero.

P. Elias, "Universal codeword sets and representations of the integers", IEEE Transactions on Information Theory 21,
1975: a zero; before it the number in binary, unless it is 1; before that, likewise, how many bits it has less one.

Increasing positions as a stream of Golomb codes of their distances, with parameters that are powers of two (Rice).

S. W. Golomb, "Run-length encodings", IEEE Transactions on Information Theory 12, 1966. A distance of g >= 1 is
(g - 1) >> b zeros and a one, and then the b low bits of g - 1.
"""

from functools import cache
from math import floor, log, log1p, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Array, Bits, Ints
from s2sim.codecs.bits import code_starts, next_set_bit, read_words, write_words
from s2sim.errors import CodecError

_MAX_BITS = 31  # Bits of the largest number that has a code here

_TABLE_BITS = 16
_TABLE_NUMBERS = 512  # Numbers whose codes have at most 16 bits are below this, and are looked up


def elias_words(numbers: Array) -> tuple[NDArray[np.uint64], Ints]:
    """Return the codes of numbers, from 1 to below 2^31: words, uint64, and how many bits each has, int64.

    >>> words, widths = elias_words(np.array([1, 2, 3, 4, 9]))
    >>> [f"{word:0{width}b}" for word, width in zip(words.tolist(), widths.tolist())]
    ['0', '100', '110', '101000', '1110010']
    """
    rest = numbers.astype(np.int64)
    words, widths = np.zeros(len(rest), np.uint64), np.ones(len(rest), np.int64)
    while (more := np.flatnonzero(rest > 1)).size:
        number = rest[more]
        words[more] |= number.astype(np.uint64) << widths[more].astype(np.uint64)
        # The exponent of a float64 is exact below 2^53.
        length = np.frexp(number.astype(np.float64))[1].astype(np.int64)
        widths[more] += length
        rest[more] = length - 1
    return words, widths


@cache
def _short_numbers() -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return for every 16 bits the number whose code they begin with and that code's width; 0 if they do not end it."""
    numbers, lengths = np.zeros((2, 1 << _TABLE_BITS), np.int32)
    words, widths = elias_words(np.arange(1, _TABLE_NUMBERS))
    for number, (word, width) in enumerate(zip(words.tolist(), widths.tolist(), strict=True), 1):
        rest = _TABLE_BITS - width
        numbers[word << rest : (word + 1) << rest] = number
        lengths[word << rest : (word + 1) << rest] = width
    return numbers, lengths


def elias_ends(stream: Bits) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return for every bit of a stream the number whose code begins there, and where that code ends, both int32.

    A code that the stream does not hold to its end, or that is none here, ends behind the stream, at n + 1. Both are of
    shape (n + 2,), for what begins there too.
    """
    total = 8 * len(stream)
    starts = np.arange(total + 2, dtype=np.int32)
    windows = read_words(stream, starts, _TABLE_BITS)
    short_numbers, short_widths = _short_numbers()
    numbers, ends = short_numbers.take(windows), short_widths.take(windows)
    long = np.flatnonzero(ends == 0)
    ends += starts
    numbers[long], ends[long] = _long_codes(stream, long)
    # Zeros behind the end have been read along.
    ends[ends > total] = total + 1
    return numbers, ends


def _long_codes(stream: Bits, at: Ints) -> tuple[Ints, Ints]:
    """Return the numbers whose codes begin at some bits, and where these codes end; too far where they are none."""
    numbers, at, active = np.ones(len(at), np.int64), at.copy(), np.arange(len(at))
    while len(active):
        active = active[read_words(stream, at[active], 1) == 1]
        width = numbers[active] + 1
        # Numbers that are longer than any that is written come from bits that begin no code.
        fits = (at[active] + width < 8 * len(stream)) & (width <= _MAX_BITS)
        at[active[~fits]] = 8 * len(stream) + 1
        active, width = active[fits], width[fits]
        numbers[active] = read_words(stream, at[active], width).astype(np.int64)
        at[active] += width
    return numbers, at + 1


def encode_signed(numbers: Array) -> Bits:
    """Return the stream of signed whole numbers, shape (n,): uint8, filled up to a whole byte with ones.

    For each that is not zero: how far it is behind the last one, as an Elias code; its sign; its magnitude, as an Elias
    code (D. Alistarh et al., "QSGD", NeurIPS 2017, section 3.1, recalled). Ones begin a code that they do not end, so
    that nobody needs to know how many codes there are.
    """
    places = np.flatnonzero(numbers)
    chosen = numbers[places].astype(np.int64)
    words, widths = np.empty((len(places), 2), np.uint64), np.empty((len(places), 2), np.int64)
    words[:, 0], widths[:, 0] = elias_words(np.diff(places, prepend=-1))
    words[:, 1], widths[:, 1] = elias_words(np.abs(chosen))
    words[:, 1] |= (chosen < 0).astype(np.uint64) << widths[:, 1].astype(np.uint64)
    widths[:, 1] += 1
    ends = np.cumsum(widths.reshape(-1))
    bits = int(ends[-1]) if len(ends) else 0
    stream = write_words(words.reshape(-1), widths.reshape(-1), ends - widths.reshape(-1), bits)
    if bits % 8:
        stream[-1] |= (1 << (8 - bits % 8)) - 1
    return stream


def decode_signed(stream: Bits, count: int) -> NDArray[np.int32]:
    """Return the numbers that `encode_signed` made a stream of, int32 of shape (count,)."""
    total = 8 * len(stream)
    numbers, ends = elias_ends(stream)
    # A magnitude begins one bit behind a distance's end, after the sign.
    magnitude_at = np.minimum(ends + 1, total + 1)
    starts = code_starts(ends[magnitude_at][:total])
    places = np.cumsum(numbers[starts], dtype=np.int64) - 1
    if len(places) and places[-1] >= count:
        raise CodecError(f"a stream of {count} numbers goes on to the one at {places[-1]}")
    values = numbers[magnitude_at[starts]]
    values[np.unpackbits(stream)[ends[starts]] == 1] *= -1
    decoded = np.zeros(count, np.int32)
    decoded[places] = values
    return decoded


_GOLDEN = (1 + sqrt(5)) / 2

MAX_LOW_BITS = 31


def rice_bits(density: float) -> int:
    """Return b, the number of low bits that suits positions that are set with this probability, in (0, 1).

    b = 1 + floor(log2(ln(phi - 1) / ln(1 - p))) with the golden ratio phi (F. Sattler et al., "Sparse Binary
    Compression", arXiv:1805.08768; read in the first author's later code), from 0 to 31.

    >>> [rice_bits(density) for density in (0.1, 0.05, 0.02, 0.01, 0.005, 0.001, 0.0001)]
    [3, 4, 5, 6, 7, 9, 13]
    """
    if density >= 1:
        return 0
    return max(0, min(MAX_LOW_BITS, 1 + floor(log2(-log(_GOLDEN - 1)) - log2(-log1p(-density)))))


def encode_positions(positions: Ints, low_bits: int) -> Bits:
    """Return the stream of positions, int64, increasing, from 0 on; uint8, filled up to a whole byte with zeros.

    >>> encode_positions(np.array([0, 9]), 2)
    array([132], dtype=uint8)
    """
    _check(low_bits)
    gaps = np.diff(positions, prepend=-1) - 1
    ends = np.cumsum((gaps >> low_bits) + (1 + low_bits))
    low = gaps & ((1 << low_bits) - 1)
    words = (low | (1 << low_bits)).astype(np.uint64)
    return write_words(words, 1 + low_bits, ends - (1 + low_bits), int(ends[-1]) if len(ends) else 0)


def decode_positions(stream: Bits, low_bits: int) -> Ints:
    """Return the positions that `encode_positions` made a stream of, int64.

    >>> decode_positions(np.array([132], np.uint8), 2)
    array([0, 9])
    """
    _check(low_bits)
    bits = np.unpackbits(stream)
    ones = next_set_bit(bits)
    # Zeros that no one ends are what fills up the last byte: not a code.
    starts = code_starts(np.where(ones < len(bits), ones + np.int32(1 + low_bits), len(bits) + 1)[:-1].astype(np.int32))
    at = ones[starts]
    low = read_words(stream, at + 1, low_bits).astype(np.int64)
    gaps = ((at - starts).astype(np.int64) << low_bits) | low
    return np.cumsum(gaps + 1) - 1


def _check(low_bits: int) -> None:
    if not 0 <= low_bits <= MAX_LOW_BITS:
        raise CodecError(f"Golomb codes with {low_bits} low bits were asked for: 0 to {MAX_LOW_BITS} are possible")
