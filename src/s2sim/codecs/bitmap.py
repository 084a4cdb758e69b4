"""Packed bitmaps of which elements are non-zero: one bit an element, least significant bit first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.codecs.base import Combination, float32_vector
from s2sim.codecs.payload import Payload
from s2sim.errors import CodecError

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK_ELEMENTS = 1 << 18
"""Elements streamed at once: a chunk of float32 and what is made of it stay in a core's second-level cache. Smaller
chunks cost more calls, larger ones more cache misses; a multiple of 8, so that every chunk begins on a whole byte."""

_DENSE_BYTES = 0.45
"""Fraction of non-zero bytes above which unpacking the whole bitmap is faster than unpacking the non-zero bytes."""


def bitmap_bytes(n: int) -> int:
    """Return the bytes of a bitmap of ``n`` elements.

    >>> bitmap_bytes(9)
    2
    """
    return (n + 7) // 8


def pack_nonzero(array: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return the bitmap of the non-zero elements of a vector; -0.0 is a zero.

    Parameters
    ----------
    array : float32 array, shape (n,)
        The vector; it is streamed through once.

    Returns
    -------
    uint8 array, shape (ceil(n / 8),)
        Bit i % 8 of byte i // 8 is set where element i is not zero; bits beyond n are zero.

    Examples
    --------
    >>> pack_nonzero(np.array([0.0, 1.5, -0.0, -2.0], np.float32))
    array([10], dtype=uint8)
    """
    n = len(array)
    bitmap = np.empty(bitmap_bytes(n), np.uint8)
    nonzero = np.empty(min(n, CHUNK_ELEMENTS), np.bool_)
    for start in range(0, n, CHUNK_ELEMENTS):
        piece = array[start : start + CHUNK_ELEMENTS]
        bits = np.not_equal(piece, 0, out=nonzero[: len(piece)])
        packed = np.packbits(bits, bitorder="little")
        bitmap[start // 8 : start // 8 + len(packed)] = packed
    return bitmap


def pack_positions(positions: NDArray[np.int64], n: int) -> NDArray[np.uint8]:
    """Return the bitmap of ``n`` elements with the bits at ``positions`` set.

    Parameters
    ----------
    positions : int64 array, shape (k,)
        Which bits to set, strictly increasing, each in [0, n).
    n : int
        Number of elements.

    Returns
    -------
    uint8 array, shape (ceil(n / 8),)
    """
    bitmap = np.zeros(bitmap_bytes(n), np.uint8)
    if not len(positions):
        return bitmap
    if positions[0] < 0 or positions[-1] >= n:
        raise CodecError(f"positions {positions[0]} to {positions[-1]} do not lie in a bitmap of {n} elements")
    bytes_at = positions >> 3
    bits = np.left_shift(np.uint8(1), (positions & 7).astype(np.uint8))
    # Sorted positions of one byte are neighbours: combine each run, then store every byte once.
    first = np.flatnonzero(np.diff(bytes_at, prepend=-1))
    bitmap[bytes_at[first]] = np.bitwise_or.reduceat(bits, first)
    return bitmap


def check_bitmap(bitmap: NDArray[np.uint8], n: int) -> None:
    """Raise `CodecError` unless ``bitmap`` is a bitmap of exactly ``n`` elements."""
    if bitmap.dtype != np.uint8 or bitmap.shape != (bitmap_bytes(n),):
        raise CodecError(
            f"a bitmap of {n} elements is {bitmap_bytes(n)} bytes of uint8; "
            f"found {bitmap.dtype} of shape {bitmap.shape}"
        )
    if n % 8 and bitmap[-1] >> (n % 8):
        raise CodecError(f"the bitmap has bits set beyond its {n} elements")


def unpack_positions(bitmap: NDArray[np.uint8], n: int) -> NDArray[np.int64]:
    """Return the positions of the set bits, in increasing order.

    Only the non-zero bytes are unpacked, unless most are: at a density of 1 % that is 8 % of them.

    Parameters
    ----------
    bitmap : uint8 array, shape (ceil(n / 8),)
        As `pack_nonzero` makes it.
    n : int
        Number of elements.

    Returns
    -------
    int64 array, shape (count(bitmap),)
    """
    check_bitmap(bitmap, n)
    # A long bitmap is unpacked in chunks, or eight bytes of temporaries an element would be needed.
    chunk_bytes = CHUNK_ELEMENTS // 8
    if len(bitmap) <= chunk_bytes:
        return _positions(bitmap)
    parts = []
    for start in range(0, len(bitmap), chunk_bytes):
        part = _positions(bitmap[start : start + chunk_bytes])
        part += start * 8
        parts.append(part)
    return np.concatenate(parts)


def _positions(bitmap: NDArray[np.uint8]) -> NDArray[np.int64]:
    bytes_at = np.flatnonzero(bitmap.astype(np.bool_))
    if len(bytes_at) > _DENSE_BYTES * len(bitmap):
        return np.flatnonzero(np.unpackbits(bitmap, bitorder="little").view(np.bool_))
    bits = np.flatnonzero(np.unpackbits(bitmap.take(bytes_at), bitorder="little").view(np.bool_))
    bytes_at <<= 3
    positions: NDArray[np.int64] = bytes_at.take(bits >> 3)
    bits &= 7
    positions += bits
    return positions


def count(bitmap: NDArray[np.uint8]) -> int:
    """Return the number of set bits.

    >>> count(np.array([255, 1], np.uint8))
    9
    """
    # Unpacking and counting booleans are both vectorised; in chunks, because bits unpack to eight times the memory.
    chunk_bytes = CHUNK_ELEMENTS // 8
    return sum(
        int(np.count_nonzero(np.unpackbits(bitmap[start : start + chunk_bytes]).view(np.bool_)))
        for start in range(0, len(bitmap), chunk_bytes)
    )


@dataclass(frozen=True, slots=True)
class Bitmap:
    """The codec that keeps only which elements are non-zero; it decodes to ones and zeros."""

    name: ClassVar[str] = "bitmap"
    summary: ClassVar[str] = "one bit an element: is it zero or not"
    source: ClassVar[str] = "Ge et al., S2 Reducer, arXiv:2110.02140"
    combine: ClassVar[Combination] = {"support": "or"}

    def encode(self, array: NDArray[np.float32]) -> Payload:
        """Return the payload of ``array``, float32 of shape (n,)."""
        vector = float32_vector(array, self.name)
        return Payload.of(self, len(vector), support=pack_nonzero(vector))

    def decode(self, payload: Payload) -> NDArray[np.float32]:
        """Return 1.0 where a bit is set and 0.0 elsewhere, float32 of shape (n,)."""
        (support,) = payload.expect(self, "support")
        check_bitmap(support, payload.elements)
        ones: NDArray[np.float32] = np.unpackbits(support, count=payload.elements, bitorder="little").astype(np.float32)
        return ones
