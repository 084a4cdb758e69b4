"""One bit an element: which of two values it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.bitmap import CHUNK_ELEMENTS, bitmap_bytes
from s2sim.errors import CodecError

if TYPE_CHECKING:
    from s2sim.arrays import Bits, Floats32


def pack_signs(vector: Floats32) -> Bits:
    """Return which elements are not negative, a bit each: uint8 of shape (ceil(n / 8),), first element lowest.

    >>> pack_signs(np.array([1.0, -1.0, 0.0, -0.0], np.float32))
    array([13], dtype=uint8)
    """
    packed = np.empty(bitmap_bytes(len(vector)), np.uint8)
    for start in range(0, len(vector), CHUNK_ELEMENTS):
        bits = np.packbits(vector[start : start + CHUNK_ELEMENTS] >= 0, bitorder="little")
        packed[start // 8 : start // 8 + len(bits)] = bits
    return packed


def unpack_signs(packed: Bits, count: int, negative: float, other: float) -> Floats32:
    """Return ``other`` for every set bit and ``negative`` for all else, float32 of shape (count,).

    >>> unpack_signs(np.array([13], np.uint8), 4, -2.0, 1.0)
    array([ 1., -2.,  1.,  1.], dtype=float32)
    """
    if packed.dtype != np.uint8 or packed.shape != (bitmap_bytes(count),):
        raise CodecError(f"{count} signs are {bitmap_bytes(count)} bytes; found {packed.dtype} of shape {packed.shape}")
    # What each byte stands for is looked up: eight values at once.
    meanings = np.where(_BITS_OF_BYTES, np.float32(other), np.float32(negative))
    return meanings.take(packed, axis=0).reshape(-1)[:count]


_BITS_OF_BYTES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").view(np.bool_)
