"""Packed bitmaps of which elements are non-zero: one bit an element, least significant bit first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from s2sim.arrays import Bits, Floats32, Ints
from s2sim.codecs.payload import Combination, Payload, float32_vector
from s2sim.errors import CodecError


def bitmap_bytes(n: int) -> int:
    """Return the bytes of a bitmap of ``n`` elements.

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
    return np.packbits(array != 0, bitorder="little")


def pack_positions(positions: Ints, n: int) -> Bits:
    """Return the bitmap of ``n`` elements with the bits at ``positions`` set, uint8 of shape (ceil(n / 8),).

    Positions are int64 of shape (k,), strictly increasing, each in [0, n).
    """
    if not len(positions):
        return np.zeros(bitmap_bytes(n), np.uint8)
    if positions[0] < 0 or positions[-1] >= n:
        raise CodecError(f"positions {positions[0]} to {positions[-1]} do not lie in a bitmap of {n} elements")
    flags = np.zeros(n, np.bool_)
    flags[positions] = True
    return np.packbits(flags, bitorder="little")


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
    """Return the positions of the set bits of a bitmap of ``n`` elements, int64, in increasing order."""
    check_bitmap(bitmap, n)
    return np.flatnonzero(np.unpackbits(bitmap, bitorder="little").view(np.bool_))


@dataclass(frozen=True, slots=True)
class Bitmap:
    """The codec that keeps only which elements are non-zero; it decodes to ones and zeros."""

    name: ClassVar[str] = "bitmap"
    summary: ClassVar[str] = "one bit an element: is it zero or not"
    source: ClassVar[str] = "Ge et al., S2 Reducer, arXiv:2110.02140"
    combine: ClassVar[Combination] = {"support": "or"}

    def encode(self, array: Floats32) -> Payload:
        """Return the payload of ``array``, float32 of shape (n,)."""
        vector = float32_vector(array, self.name)
        return Payload.of(self, len(vector), support=pack_nonzero(vector))

    def decode(self, payload: Payload) -> Floats32:
        """Return 1.0 where a bit is set and 0.0 elsewhere, float32 of shape (n,)."""
        (support,) = payload.expect(self, "support")
        check_bitmap(support, payload.elements)
        ones: Floats32 = np.unpackbits(support, count=payload.elements, bitorder="little").astype(np.float32)
        return ones
