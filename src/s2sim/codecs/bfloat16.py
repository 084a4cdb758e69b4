"""bfloat16: the upper half of a float32, for which NumPy has no type, and what is common to both types of two bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.codecs.half import from_half, to_half
from s2sim.errors import CodecError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.arrays import Floats32

BFLOAT16 = np.dtype([("bfloat16", "<u2")])
"""bfloat16 by its bits; a type of its own, so that nobody takes it for whole numbers."""

NARROW: dict[str, np.dtype[Any]] = {"bf16": BFLOAT16, "fp16": np.dtype(np.float16)}
"""Types of two bytes by the names that options have."""

_CHUNK_ELEMENTS = 1 << 16
_UPPER = np.uint32(16)


def to_bfloat16(array: Floats32) -> NDArray[Any]:
    """Return ``array`` in bfloat16, to nearest, ties to even; `CodecError` for a finite value that is too large.

    >>> from_bfloat16(to_bfloat16(np.array([1.0, 1.003, 1.005], np.float32)))
    array([1.       , 1.       , 1.0078125], dtype=float32)
    """
    bits = np.empty(array.shape, "<u2")
    flat, out = np.ascontiguousarray(array).reshape(-1), bits.reshape(-1)
    for start in range(0, len(flat), _CHUNK_ELEMENTS):
        chunk = flat[start : start + _CHUNK_ELEMENTS]
        whole = chunk.view(np.uint32)
        # Half of the last place that is kept, less one where that is even, carries into it from the middle on.
        rounded = (whole + np.uint32(0x7FFF) + ((whole >> _UPPER) & np.uint32(1))) >> _UPPER
        finite = np.isfinite(chunk)
        if finite.all():
            if ((rounded & np.uint32(0x7F80)) == 0x7F80).any():
                raise CodecError(
                    f"a value of magnitude {float(np.abs(chunk).max()):.6g} does not fit in bfloat16: "
                    "scale the array down first"
                )
        else:
            # The bits of infinity stay; a NaN keeps its first bits, one of them set so that it stays one.
            kept = (whole >> _UPPER) | np.where(np.isnan(chunk), np.uint32(0x40), np.uint32(0))
            rounded = np.where(finite, rounded, kept)
        out[start : start + _CHUNK_ELEMENTS] = rounded
    return bits.view(BFLOAT16)


def from_bfloat16(array: NDArray[Any]) -> Floats32:
    """Return bfloat16 ``array`` as float32, exactly."""
    whole = array.view("<u2").astype(np.uint32)
    whole <<= _UPPER
    return whole.view(np.float32)


def narrow(array: Floats32, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return ``array`` rounded to a type of two bytes, one of `NARROW`."""
    return to_bfloat16(array) if dtype == BFLOAT16 else to_half(array)


def as_held(array: Floats32, held: str) -> NDArray[Any]:
    """Return values as they travel that training holds in this type: float32, or rounded to one of `NARROW`."""
    return narrow(array, NARROW[held]) if held in NARROW else array


def widen(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of a type of two bytes as float32, exactly; any other as it is."""
    if array.dtype == BFLOAT16:
        return from_bfloat16(array)
    return from_half(array) if array.dtype == np.float16 else array
