"""Streams of codes of different lengths, written and read without a loop over codes.

Codes follow each other without a gap, the most significant bit of each first. Where one begins is known to whoever
writes it by a cumulative sum of lengths. Whoever reads finds for every bit where a code that began there would end, and
then follows these jumps from the first bit on: in rounds that double how far is seen, and not code by code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.arrays import Bits, Ints

_WORD = 64


def write_words(words: NDArray[np.uint64], widths: Ints | int, starts: Ints, bits: int) -> Bits:
    """Return a stream of ``bits`` bits with some words in it and zeros between them, uint8 of shape (ceil(bits / 8),).

    Parameters
    ----------
    words : uint64 array, shape (k,)
        Each below 2^width.
    widths : int64 array, shape (k,), or int
        Bits of each, 1 to 64.
    starts : int64 array, shape (k,)
        Where each begins; increasing, and no word reaches into the next one.
    bits : int
        Length of the stream.
    """
    stream = np.zeros(bits // _WORD + 2, np.uint64)
    at, shift = starts // _WORD, (starts % _WORD).astype(np.uint64)
    left = words << (_WORD - np.asarray(widths)).astype(np.uint64)
    _combine(stream, at, left >> shift)
    # Shifting by a whole word is not defined, so it is done in two goes.
    _combine(stream, at + 1, (left << np.uint64(1)) << (np.uint64(_WORD - 1) - shift))
    return stream.astype(">u8").view(np.uint8)[: (bits + 7) // 8].copy()


def _combine(stream: NDArray[np.uint64], at: Ints, parts: NDArray[np.uint64]) -> None:
    """Add to words of the stream what belongs there; places increase, and each run of the same one is one store."""
    if len(at):
        first = np.flatnonzero(np.diff(at, prepend=-1))
        stream[at[first]] |= np.bitwise_or.reduceat(parts, first)


def read_words(stream: Bits, starts: NDArray[np.integer], widths: Ints | int) -> NDArray[np.uint64]:
    """Return the words of up to 57 bits that begin at some bits of a stream, uint64 of the shape of ``starts``.

    Beyond the stream's end there are zeros.
    """
    padded = np.zeros(len(stream) + _WORD // 8, np.uint8)
    padded[: len(stream)] = stream
    # The eight bytes from each byte on, seen in place.
    windows: NDArray[np.uint64] = np.ndarray((len(stream) + 1,), ">u8", padded, strides=(1,))
    words: NDArray[np.uint64] = windows[np.minimum(starts >> 3, len(stream))].astype(np.uint64)
    words <<= (starts & 7).astype(np.uint64)
    words >>= np.uint64(1)
    words >>= (_WORD - 1 - np.asarray(widths)).astype(np.uint64)
    return words


def to_bits(stream: Bits) -> Bits:
    """Return the bits of a stream, uint8 of zeros and ones."""
    return np.unpackbits(stream)


def next_one(bits: Bits) -> NDArray[np.int32]:
    """Return for every bit where the first one is, itself or after it: int32 of shape (n + 1,), also for the end.

    Where there is none, it is n.

    >>> next_one(np.array([0, 1, 0, 0, 1, 0], np.uint8))
    array([1, 1, 4, 4, 4, 6, 6], dtype=int32)
    """
    found = np.append(np.flatnonzero(bits), len(bits)).astype(np.int32)
    before = np.zeros(len(bits) + 1, np.int32)
    np.cumsum(bits, out=before[1:])
    return found[before]


def follow(jumps: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return where the codes of a stream begin, int32, increasing.

    ``jumps``, int32 of shape (n,), are where a code that began at each of n bits would end: behind itself, at most at
    n; or beyond n, where it is not complete. The first code begins at 0; what is not complete is none.

    >>> follow(np.array([2, 3, 3, 4, 6, 6], np.int32))
    array([0, 2, 3, 4], dtype=int32)
    >>> follow(np.array([2, 3, 3, 4, 7, 7], np.int32))
    array([0, 2, 3], dtype=int32)
    """
    end = len(jumps)
    ahead = np.append(np.minimum(jumps, end + 1), [end + 1, end + 1]).astype(np.int32)
    met = np.zeros(1, np.int32)
    # Each round doubles both the places that are known and how many codes a jump passes.
    while met[-1] <= end:
        met = np.concatenate((met, ahead[met]))
        ahead = ahead[ahead]
    starts = met[: np.searchsorted(met, end)]
    return starts[jumps[starts] <= end] if end else starts
