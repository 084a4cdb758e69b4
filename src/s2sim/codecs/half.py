"""Half precision: float32 values rounded to IEEE 754 binary16 and back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from s2sim.codecs.base import Combination, float32_vector
from s2sim.codecs.payload import Payload
from s2sim.codecs.small_floats import SmallFloat
from s2sim.errors import CodecError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.arrays import Floats32

LARGEST = 65504.0
"""Largest finite value in half precision; float32 values from 65520 on round to infinity."""

# Bits of the first float32 magnitude that rounds to infinity.
_OVERFLOWING = np.uint32(0x477FF000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_HALF_SIGN = np.uint32(0x8000)

_HALF = SmallFloat(mantissa_bits=10, bias=15)

_CHUNK_ELEMENTS = 1 << 15


def to_half(array: Floats32) -> NDArray[np.float16]:
    """Return ``array`` (float32, any shape) in half precision, rounded to nearest even.

    NumPy's own conversion takes ten times as long, and a hundred times where results are subnormal. `CodecError` for a
    finite value that is too large.
    """
    half = np.empty(array.shape, np.uint16)
    flat, out = np.ascontiguousarray(array).reshape(-1), half.reshape(-1)
    for start in range(0, len(flat), _CHUNK_ELEMENTS):
        chunk = slice(start, start + _CHUNK_ELEMENTS)
        out[chunk] = _half_bits(flat[chunk])
    return half.view(np.float16)


def _half_bits(values: Floats32) -> NDArray[Any]:
    bits = values.view(np.uint32)
    magnitudes = bits & _MAGNITUDE
    if magnitudes.max() >= _OVERFLOWING:
        _refuse_overflow(values)
        return values.astype(np.float16).view(np.uint16)
    rounded = _HALF.round_magnitudes(magnitudes)
    signs = bits >> np.uint32(16)
    signs &= _HALF_SIGN
    rounded |= signs
    return rounded


def _refuse_overflow(values: Floats32) -> None:
    """Raise `CodecError` if a finite value is too large for half precision."""
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    if largest >= _OVERFLOWING.view(np.float32):
        raise CodecError(
            f"a value of magnitude {largest:.6g} does not fit in half precision, whose largest is {LARGEST:g}: "
            "scale the array down first"
        )


def from_half(array: NDArray[np.float16]) -> Floats32:
    """Return half-precision ``array`` as float32, exactly."""
    return _all_halves().take(array.view(np.uint16))


@cache
def _all_halves() -> Floats32:
    """Return every half as float32, by its bits: looking one up takes a fifth of the time of converting it."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Half:
    """The codec that rounds every element to half precision."""

    name: ClassVar[str] = "fp16"
    summary: ClassVar[str] = "every element rounded to half precision"
    source: ClassVar[str] = "IEEE 754-2019, binary16"
    combine: ClassVar[Combination] = {"values": "sum"}

    def encode(self, array: Floats32) -> Payload:
        """Return the payload of ``array``, float32 of shape (n,)."""
        vector = float32_vector(array, self.name)
        return Payload.of(self, len(vector), values=to_half(vector))

    def decode(self, payload: Payload) -> Floats32:
        """Return the rounded elements, float32 of shape (n,)."""
        (values,) = payload.expect(self, "values")
        if values.dtype != np.float16 or values.shape != (payload.elements,):
            raise CodecError(
                f"an fp16 payload holds {payload.elements} float16 values; found {values.dtype} {values.shape}"
            )
        return from_half(values)
