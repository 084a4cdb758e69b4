"""Eight bits an element: the two types of the OCP standard, and a scale that makes a tensor fill its type's range."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import numpy as np

from s2sim.codecs.base import Combination, float32_vector
from s2sim.codecs.payload import Payload
from s2sim.codecs.small_floats import SmallFloat
from s2sim.errors import CodecError
from s2sim.options import check_options

if TYPE_CHECKING:
    from s2sim.arrays import Bits, Floats32

Float8: TypeAlias = Literal["e4m3", "e5m2"]
"""Four bits of exponent and three of mantissa, up to 448; or five and two, up to 57344."""

_FORMS: dict[str, SmallFloat] = {"e4m3": SmallFloat(3, 7), "e5m2": SmallFloat(2, 15)}
LARGEST: dict[str, float] = {"e4m3": 448.0, "e5m2": 57344.0}
"""Largest finite values."""

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_SIGN = np.uint32(0x80)
_LEAST_SCALE = np.float32(1e-45)
_CHUNK_ELEMENTS = 1 << 15


def to_float8(values: Floats32, form: Float8) -> Bits:
    """Return float32 values, shape (n,), rounded to nearest even, by their bits: uint8 of shape (n,).

    `CodecError` for a value that is no finite one of the type after it is rounded.

    >>> from_float8(to_float8(np.array([1.0, 1.0625, 1.1875, -500.0], np.float32) / 2, "e4m3"), "e4m3")
    array([   0.5  ,    0.5  ,    0.625, -256.   ], dtype=float32)
    """
    codes = np.empty(len(values), np.uint8)
    most = int(_FORMS[form].round_magnitudes(np.array([LARGEST[form]], np.float32).view(np.uint32))[0])
    for start in range(0, len(values), _CHUNK_ELEMENTS):
        bits = np.ascontiguousarray(values[start : start + _CHUNK_ELEMENTS]).view(np.uint32)
        magnitudes = bits & _MAGNITUDE
        # Beyond it codes would run over; NaN has more bits than infinity.
        if magnitudes.max() >= np.array(2 * LARGEST[form], np.float32).view(np.uint32):
            raise _too_large(form)
        rounded = _FORMS[form].round_magnitudes(magnitudes)
        if rounded.max() > most:
            raise _too_large(form)
        codes[start : start + _CHUNK_ELEMENTS] = rounded | (bits >> np.uint32(24)) & _SIGN
    return codes


def from_float8(codes: Bits, form: Float8) -> Floats32:
    """Return what codes stand for, float32 of their shape; NaN and infinity for those of them that do."""
    return _all_values(form).take(codes)


@cache
def _all_values(form: Float8) -> Floats32:
    """Return what each of the 256 codes stands for."""
    kind = _FORMS[form]
    magnitude = np.arange(128)
    exponent, mantissa = magnitude >> kind.mantissa_bits, magnitude & ((1 << kind.mantissa_bits) - 1)
    whole = mantissa + (np.minimum(exponent, 1) << kind.mantissa_bits)
    values = np.ldexp(whole.astype(np.float32), np.maximum(exponent, 1) - kind.bias - kind.mantissa_bits)
    beyond = np.flatnonzero(values > LARGEST[form])
    values[beyond] = np.nan
    if form == "e5m2":
        values[beyond[0]] = np.inf
    return np.concatenate([values, -values])


def scale_to_fill(vector: Floats32, form: Float8) -> np.float32:
    """Return the number by which a tensor is divided so that its largest magnitude is that of the type.

    Never zero, nor so large that a product with the type's largest value overflows.

    >>> float(scale_to_fill(np.array([1.0, -896.0], np.float32), "e4m3"))
    2.0
    """
    most = np.nextafter(np.float32(np.finfo(np.float32).max / LARGEST[form]), np.float32(0))
    largest = np.abs(vector).max(initial=0.0)
    return np.float32(np.clip(largest / np.float32(LARGEST[form]), _LEAST_SCALE, most))


def fill(vector: Floats32, scale: np.float32, form: Float8) -> Bits:
    """Return a tensor divided by its `scale_to_fill`, in eight bits; quotients that are rounded up stay in range."""
    largest = np.float32(LARGEST[form])
    return to_float8(np.clip(vector / scale, -largest, largest), form)


def _too_large(form: Float8) -> CodecError:
    return CodecError(
        f"a value does not fit in {form}, whose largest is {LARGEST[form]:g}: scale the array down first, and look for "
        "NaN"
    )


@dataclass(frozen=True, slots=True)
class FloatEight:
    """The codec that scales a vector to the range of eight bits, rounds it, and says by how much it was scaled.

    Attributes
    ----------
    form : {"e4m3", "e5m2"}
        Type of an element.
    """

    form: Float8 = "e4m3"

    name: ClassVar[str] = "fp8"
    summary: ClassVar[str] = "every element in eight bits of floating point, with one scale"
    source: ClassVar[str] = "OCP 8-bit Floating Point Specification 1.0; Micikevicius et al., FP8 Formats, 2022"
    combine: ClassVar[Combination] = {"scale": "gather", "codes": "gather"}

    def __post_init__(self) -> None:
        check_options(self, self.name)

    def encode(self, array: Floats32) -> Payload:
        """Return the payload of ``array``, float32 of shape (n,)."""
        vector = float32_vector(array, self.name)
        scale = scale_to_fill(vector, self.form)
        return Payload.of(self, len(vector), scale=np.array([scale]), codes=fill(vector, scale, self.form))

    def decode(self, payload: Payload) -> Floats32:
        """Return the rounded elements, float32 of shape (n,)."""
        scale, codes = payload.expect(self, "scale", "codes")
        if codes.dtype != np.uint8 or codes.shape != (payload.elements,):
            raise CodecError(f"an fp8 payload holds {payload.elements} codes, uint8; found {codes.dtype} {codes.shape}")
        if scale.dtype != np.float32 or scale.shape != (1,) or not np.isfinite(scale[0]) or scale[0] <= 0:
            raise CodecError(f"an fp8 payload holds one positive float32 scale; found {scale.dtype} {scale}")
        values: Floats32 = from_float8(codes, self.form) * scale[0]
        if not np.isfinite(values).all():
            raise CodecError("an fp8 payload holds a code that is not finite")
        return values
