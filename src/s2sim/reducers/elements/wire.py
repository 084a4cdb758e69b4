"""How numbers of a few bits travel: packed, or one a byte, as most implementations send them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from s2sim.codecs.bit_packing import pack_integers, unpack_integers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.arrays import Bits, Floats32

Wire: TypeAlias = Literal["packed", "byte"]


def write_numbers(numbers: NDArray[Any], bits: int, wire: Wire) -> Bits:
    """Return numbers below 2^bits, at most 8 bits each if ``wire`` is a byte, as they travel."""
    return pack_integers(numbers, bits) if wire == "packed" else numbers.astype(np.uint8, copy=False)


def read_numbers(written: Bits, bits: int, wire: Wire, count: int) -> NDArray[Any]:
    """Return the ``count`` numbers that `write_numbers` wrote."""
    return unpack_integers(written, bits, count) if wire == "packed" else written


def write_signs(vector: Floats32, wire: Wire) -> Bits:
    """Return which elements are not negative, as they travel: a bit has no third value, so zeros count as positive."""
    return write_numbers((vector >= 0).view(np.uint8), 1, wire)


def read_signs(written: Bits, wire: Wire, count: int, *, negative: np.float32, positive: np.float32) -> Floats32:
    """Return ``positive`` or ``negative`` for every sign that `write_signs` wrote, float32 of shape (count,)."""
    return np.where(read_numbers(written, 1, wire, count).view(np.bool_), positive, negative)
