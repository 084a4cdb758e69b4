"""Increasing positions as a stream of Golomb codes of their distances, with parameters that are powers of two (Rice).

S. W. Golomb, "Run-length encodings", IEEE Transactions on Information Theory 12, 1966. A distance of g >= 1 is
(g - 1) >> b zeros and a one, and then the b low bits of g - 1.
"""

from __future__ import annotations

from math import floor, log, log1p, log2, sqrt
from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.bit_stream import follow, next_one, read_words, to_bits, write_words
from s2sim.errors import CodecError

if TYPE_CHECKING:
    from s2sim.arrays import Bits, Ints

_GOLDEN = (1 + sqrt(5)) / 2

MOST_LOW_BITS = 31


def rice_bits(density: float) -> int:
    """Return b, the number of low bits that suits positions that are set with this probability, in (0, 1).

    b = 1 + floor(log2(ln(phi - 1) / ln(1 - p))) with the golden ratio phi (F. Sattler et al., "Sparse Binary
    Compression", arXiv:1805.08768; read in the first author's later code), from 0 to 31.

    >>> [rice_bits(density) for density in (0.1, 0.05, 0.02, 0.01, 0.005, 0.001, 0.0001)]
    [3, 4, 5, 6, 7, 9, 13]
    """
    if density >= 1:
        return 0
    return max(0, min(MOST_LOW_BITS, 1 + floor(log2(-log(_GOLDEN - 1)) - log2(-log1p(-density)))))


def bits_per_position(density: float, low_bits: int) -> float:
    """Return the expected bits of one position: b + 1 / (1 - (1 - p)^(2^b)).

    >>> round(bits_per_position(0.01, 6), 3), round(bits_per_position(0.01, 7), 3)
    (8.108, 8.382)
    """
    return low_bits + 1 / (1 - (1 - density) ** (1 << low_bits))


def encode_positions(positions: Ints, low_bits: int) -> Bits:
    """Return the stream of positions, int64, increasing, from 0 on; uint8, filled up to a whole byte with zeros.

    >>> encode_positions(np.array([0, 9]), 2)
    array([132], dtype=uint8)
    """
    _check(low_bits)
    gaps = np.diff(positions, prepend=-1) - 1
    zeros = gaps >> low_bits
    ends = np.cumsum(zeros + (1 + low_bits))
    low = gaps & ((1 << low_bits) - 1)
    words = (low | (1 << low_bits)).astype(np.uint64)
    return write_words(words, 1 + low_bits, ends - (1 + low_bits), int(ends[-1]) if len(ends) else 0)


def decode_positions(stream: Bits, low_bits: int) -> Ints:
    """Return the positions that `encode_positions` made a stream of, int64.

    >>> decode_positions(np.array([132], np.uint8), 2)
    array([0, 9])
    """
    _check(low_bits)
    bits = to_bits(stream)
    ones = next_one(bits)
    # Zeros that no one ends are what fills up the last byte: not a code.
    starts = follow(np.where(ones < len(bits), ones + np.int32(1 + low_bits), len(bits) + 1)[:-1].astype(np.int32))
    at = ones[starts]
    low = read_words(stream, at + 1, low_bits).astype(np.int64)
    gaps = ((at - starts).astype(np.int64) << low_bits) | low
    return np.cumsum(gaps + 1) - 1


def _check(low_bits: int) -> None:
    if not 0 <= low_bits <= MOST_LOW_BITS:
        raise CodecError(f"Golomb codes with {low_bits} low bits were asked for: 0 to {MOST_LOW_BITS} are possible")
