"""Packed bitmaps of which elements are non-zero: one bit an element, least significant bit first."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from s2sim.arrays import Bits, Floats32, Ints, Mask
from s2sim.codecs.payload import DescribedCodec, Payload, float32_vector
from s2sim.errors import CodecError

CHUNK_ELEMENTS = 1 << 18
"""Elements streamed at once: a chunk of float32 and what is made of it stay in a core's second-level cache. Smaller
chunks cost more calls, larger ones more cache misses; a multiple of 8, so that every chunk begins on a whole byte."""

BLOCK_ELEMENTS = 1 << 19
"""Elements whose positions are found at once where few are set: fewer calls, and still little memory."""

_DENSE_BYTES = 0.65
"""Fraction of non-zero bytes above which unpacking the whole bitmap is faster than unpacking the non-zero bytes. It
leaves 12 % of the bits set or more where they are spread at random: with fewer than 10 %, NumPy looks for true flags
by another loop, which takes three times as long at such densities."""

_SPARSE_BYTES = 0.1
"""Fraction of non-zero bytes below which it is faster to find the non-zero words of eight bytes first."""

_SMALL_BYTES = 1 << 10  # Bytes of a bitmap that is unpacked in less time than its non-zero bytes are found


N = TypeVar("N", int, Ints)


def bitmap_bytes(n: N) -> N:
    """Return the bytes of a bitmap of ``n`` elements, or of several.

    >>> bitmap_bytes(9)
    2
    """
    return (n + 7) // 8


def pack_nonzero(array: Floats32) -> Bits:
    """Return the bitmap of the non-zero elements of a vector, float32 of shape (n,); -0.0 is a zero.

    It is uint8 of shape (ceil(n / 8),): bit i % 8 of byte i // 8 is set where element i is not zero, and bits beyond n
    are zero.

    >>> pack_nonzero(np.array([0.0, 1.5, -0.0, -2.0], np.float32))
    array([10], dtype=uint8)
    """
    n = len(array)
    bitmap = np.empty(bitmap_bytes(n), np.uint8)
    nonzero = np.empty(min(n, CHUNK_ELEMENTS), np.bool_)
    for start in range(0, n, CHUNK_ELEMENTS):
        piece = array[start : start + CHUNK_ELEMENTS]
        packed = np.packbits(np.not_equal(piece, 0, out=nonzero[: len(piece)]), bitorder="little")
        bitmap[start // 8 : start // 8 + len(packed)] = packed
    return bitmap


def count_nonzero(array: Floats32) -> int:
    """Return the number of non-zero elements of a vector, float32 of shape (n,).

    A comparison in cache-sized chunks takes an eighth of the time of NumPy's count of floats.

    >>> count_nonzero(np.array([0.0, 1.5, -0.0, -2.0], np.float32))
    2
    """
    nonzero = np.empty(min(len(array), CHUNK_ELEMENTS), np.bool_)
    total = 0
    for start in range(0, len(array), CHUNK_ELEMENTS):
        piece = array[start : start + CHUNK_ELEMENTS]
        total += int(np.count_nonzero(np.not_equal(piece, 0, out=nonzero[: len(piece)])))
    return total


def pack_positions(positions: Ints, n: int) -> Bits:
    """Return the bitmap of ``n`` elements with the bits at ``positions`` set, uint8 of shape (ceil(n / 8),).

    Positions are int64 of shape (k,), strictly increasing, each in [0, n).
    """
    if not len(positions):
        return np.zeros(bitmap_bytes(n), np.uint8)
    if positions[0] < 0 or positions[-1] >= n:
        raise CodecError(f"positions {positions[0]} to {positions[-1]} do not lie in a bitmap of {n} elements")
    if n <= CHUNK_ELEMENTS:
        flags = np.zeros(n, np.bool_)
        flags[positions] = True
        return np.packbits(flags, bitorder="little")
    bitmap = np.zeros(bitmap_bytes(n), np.uint8)
    bytes_at = positions >> 3
    bits = np.left_shift(np.uint8(1), (positions & 7).astype(np.uint8))
    # Sorted positions of one byte are neighbours: combine each run, then store every byte once.
    first = np.flatnonzero(np.diff(bytes_at, prepend=-1))
    bitmap[bytes_at[first]] = np.bitwise_or.reduceat(bits, first)
    return bitmap


def check_bitmap(bitmap: Bits, n: int) -> None:
    """Raise `CodecError` unless ``bitmap`` is a bitmap of exactly ``n`` elements."""
    if bitmap.dtype != np.uint8 or bitmap.shape != (bitmap_bytes(n),):
        raise CodecError(
            f"a bitmap of {n} elements is {bitmap_bytes(n)} bytes of uint8; "
            f"found {bitmap.dtype} of shape {bitmap.shape}"
        )
    if n % 8 and bitmap[-1] >> (n % 8):
        raise CodecError(f"the bitmap has bits set beyond its {n} elements")


def unpack_positions(bitmap: Bits, n: int) -> Ints:
    """Return the positions of the set bits of a bitmap of ``n`` elements, int64, in increasing order.

    Only the non-zero bytes are unpacked, unless most are: at a density of 1 % that is 8 % of them.
    """
    check_bitmap(bitmap, n)
    if len(bitmap) <= _SMALL_BYTES:
        return np.flatnonzero(np.unpackbits(bitmap, bitorder="little"))
    parts = list(iterate_positions(bitmap))
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])


def iterate_positions(bitmap: Bits) -> Iterator[Ints]:
    """Yield the positions of the set bits in increasing order, int64, at most `CHUNK_ELEMENTS` at once."""
    for start in range(0, len(bitmap), BLOCK_ELEMENTS // 8):
        block = bitmap[start : start + BLOCK_ELEMENTS // 8]
        # So few bytes cannot hold more bits than one chunk does.
        step = len(block) if 8 * np.count_nonzero(block) <= CHUNK_ELEMENTS else CHUNK_ELEMENTS // 8
        for offset in range(0, len(block), step):
            positions = _positions(block[offset : offset + step])
            positions += 8 * (start + offset)
            yield positions


def _positions(bitmap: Bits) -> Ints:
    nonzero = bitmap != 0
    count = np.count_nonzero(nonzero)
    if count > _DENSE_BYTES * len(bitmap) or len(bitmap) <= _SMALL_BYTES:
        return np.flatnonzero(np.unpackbits(bitmap, bitorder="little").view(np.bool_))
    if count < _SPARSE_BYTES * len(bitmap) and len(bitmap) % 8 == 0:
        words = np.ascontiguousarray(bitmap).view(np.uint64)
        words_at = np.flatnonzero(words != 0)
        bytes_at = _expand_positions(words_at, words.take(words_at).view(np.uint8) != 0)
    else:
        bytes_at = np.flatnonzero(nonzero)
    return _expand_positions(bytes_at, np.unpackbits(bitmap.take(bytes_at), bitorder="little").view(np.bool_))


def _expand_positions(found: Ints, flags: Mask) -> Ints:
    """Return where ``flags`` are true, eight of which belong to each position in ``found``, which is overwritten."""
    inner = np.flatnonzero(flags)
    found <<= 3
    positions: Ints = found.take(inner >> 3)
    inner &= 7
    positions += inner
    return positions


@dataclass(frozen=True, slots=True)
class Bitmap(DescribedCodec):
    """The codec that keeps only which elements are non-zero; it decodes to ones and zeros."""

    def encode(self, array: Floats32) -> Payload:
        vector = float32_vector(array, self.name)
        return Payload.of(self, len(vector), support=pack_nonzero(vector))

    def decode(self, payload: Payload) -> Floats32:
        """Return 1.0 where a bit is set and 0.0 elsewhere, float32 of shape (n,)."""
        (support,) = payload.expect(self, "support")
        check_bitmap(support, payload.elements)
        return np.unpackbits(support, count=payload.elements, bitorder="little").astype(np.float32)
