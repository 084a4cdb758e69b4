"""Eight bits an element: the two types of the OCP standard, and a scale that makes a tensor fill its type's range.

Values rounded at random to one of the two powers of two that they lie between: sign and exponent, without mantissa.

S. Horvath et al., "Natural Compression for Distributed Deep Learning", arXiv:1905.10988. A value goes up with the
probability that its mantissa is of a whole binade, so that it is its own amount on average; its square grows by 9/8 at
most (theorem there).
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Array, Bits, Floats32, Words
from s2sim.codecs.payload import DescribedCodec, Payload, float32_vector
from s2sim.errors import CodecError

_FLOAT32_EXPONENT = np.uint32(0x7F800000)
_FLOAT32_MANTISSA_BITS, _FLOAT32_BIAS = 23, 127


def round_magnitudes(magnitudes: Words, mantissa_bits: int, bias: int) -> Words:
    """Return the codes of float32 magnitudes, uint32 bits of any shape, in a type of IEEE 754 without its sign.

    The type stores so many bits of the mantissa, and adds ``bias`` to exponents. To nearest, ties to even. What is too
    large gets a code beyond those of finite numbers.
    """
    shift = _FLOAT32_MANTISSA_BITS - mantissa_bits
    smallest_normal = np.uint32((_FLOAT32_BIAS + 1 - bias) << _FLOAT32_MANTISSA_BITS)
    # Added to a number 2^shift times its leading bit (subnormal ones: that of the smallest normal one), a magnitude
    # is rounded to a whole number of the type's last places, which the sum's last bits then are.
    leading = np.maximum(magnitudes & _FLOAT32_EXPONENT, smallest_normal)
    larger = leading + np.uint32(shift << _FLOAT32_MANTISSA_BITS)
    rounded: Words = np.add(magnitudes.view(np.float32), larger.view(np.float32)).view(np.uint32)
    rounded -= larger
    leading -= smallest_normal
    leading >>= np.uint32(shift)
    rounded += leading
    return rounded


def magnitudes_of_codes(bits: int, mantissa_bits: int, bias: int) -> Floats32:
    """Return what each code of so many ``bits`` stands for, as `round_magnitudes` makes them, all taken as finite."""
    magnitude = np.arange(1 << bits)
    exponent, mantissa = magnitude >> mantissa_bits, magnitude & ((1 << mantissa_bits) - 1)
    whole = mantissa + (np.minimum(exponent, 1) << mantissa_bits)
    values: Floats32 = np.ldexp(whole.astype(np.float32), np.maximum(exponent, 1) - bias - mantissa_bits)
    return values


LARGEST_HALF = 65504.0
"""Largest finite value in half precision; float32 values from 65520 on round to infinity."""

# Bits of the first float32 magnitude that rounds to infinity.
_OVERFLOWING = np.uint32(0x477FF000)
_FLOAT32_MAGNITUDE = np.uint32(0x7FFFFFFF)
_HALF_SIGN = np.uint32(0x8000)

_HALF = 10, 15  # Bits of the mantissa, and bias

# Elements that are rounded at once.
_CHUNK = 1 << 15


def to_half(array: Floats32) -> NDArray[np.float16]:
    """Return ``array`` (float32, any shape) in half precision, rounded to nearest even.

    NumPy's own conversion takes ten times as long, and a hundred times where results are subnormal. `CodecError` for a
    finite value that is too large.
    """
    half = np.empty(array.shape, np.uint16)
    flat, out = np.ascontiguousarray(array).reshape(-1), half.reshape(-1)
    for start in range(0, len(flat), _CHUNK):
        values = flat[start : start + _CHUNK]
        bits = values.view(np.uint32)
        magnitudes = bits & _FLOAT32_MAGNITUDE
        if magnitudes.max() >= _OVERFLOWING:
            largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
            if largest >= _OVERFLOWING.view(np.float32):
                raise CodecError(
                    f"a value of magnitude {largest:.6g} does not fit in half precision, whose largest is "
                    f"{LARGEST_HALF:g}: scale the array down first"
                )
            out[start : start + _CHUNK] = values.astype(np.float16).view(np.uint16)
            continue
        rounded = round_magnitudes(magnitudes, *_HALF)
        rounded |= bits >> np.uint32(16) & _HALF_SIGN
        out[start : start + _CHUNK] = rounded
    return half.view(np.float16)


@cache
def _halves() -> Floats32:
    """Return every half as float32, by its bits: looking one up takes a fifth of the time of converting it."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def from_half(array: NDArray[np.float16]) -> Floats32:
    """Return half-precision ``array`` as float32, exactly."""
    return _halves().take(array.view(np.uint16))


@dataclass(frozen=True, slots=True)
class HalfCodec(DescribedCodec):
    """The codec that rounds every element to half precision."""

    def encode(self, array: Floats32) -> Payload:
        vector = float32_vector(array, self.name)
        return Payload.of(self, len(vector), values=to_half(vector))

    def decode(self, payload: Payload) -> Floats32:
        (values,) = payload.expect(self, "values")
        if values.dtype != np.float16 or values.shape != (payload.elements,):
            raise CodecError(
                f"an fp16 payload holds {payload.elements} float16 values; found {values.dtype} {values.shape}"
            )
        return from_half(values)


BFLOAT16 = np.dtype([("bfloat16", "<u2")])
"""bfloat16 by its bits; a type of its own, so that nobody takes it for whole numbers."""

NARROW: dict[str, np.dtype[Any]] = {"bf16": BFLOAT16, "fp16": np.dtype(np.float16)}
"""Types of two bytes by the names that options have."""

_BFLOAT16_CHUNK = 1 << 16
_UPPER_HALF = np.uint32(16)


def to_bfloat16(array: Floats32) -> Array:
    """Return ``array`` in bfloat16, to nearest, ties to even; `CodecError` for a finite value that is too large.

    >>> from_bfloat16(to_bfloat16(np.array([1.0, 1.003, 1.005], np.float32)))
    array([1.       , 1.       , 1.0078125], dtype=float32)
    """
    bits = np.empty(array.shape, "<u2")
    flat, out = np.ascontiguousarray(array).reshape(-1), bits.reshape(-1)
    for start in range(0, len(flat), _BFLOAT16_CHUNK):
        chunk = flat[start : start + _BFLOAT16_CHUNK]
        whole = chunk.view(np.uint32)
        # Half of the last place that is kept, less one where that is even, carries into it from the middle on.
        rounded = (whole + np.uint32(0x7FFF) + ((whole >> _UPPER_HALF) & np.uint32(1))) >> _UPPER_HALF
        finite = np.isfinite(chunk)
        if (finite & ((rounded & np.uint32(0x7F80)) == 0x7F80)).any():
            raise CodecError(
                f"a value of magnitude {float(np.abs(chunk[finite]).max()):.6g} does not fit in bfloat16: "
                "scale the array down first"
            )
        if not finite.all():
            # The bits of infinity stay; a NaN keeps its first bits, one of them set so that it stays one.
            kept = (whole >> _UPPER_HALF) | np.where(np.isnan(chunk), np.uint32(0x40), np.uint32(0))
            rounded = np.where(finite, rounded, kept)
        out[start : start + _BFLOAT16_CHUNK] = rounded
    return bits.view(BFLOAT16)


def from_bfloat16(array: Array) -> Floats32:
    """Return bfloat16 ``array`` as float32, exactly."""
    whole = array.view("<u2").astype(np.uint32)
    whole <<= _UPPER_HALF
    return whole.view(np.float32)


def narrow(array: Floats32, dtype: np.dtype[Any]) -> Array:
    """Return ``array`` rounded to a type of two bytes, one of `NARROW`."""
    return to_bfloat16(array) if dtype == BFLOAT16 else to_half(array)


def round_to_dtype(array: Floats32, held: str) -> Array:
    """Return values as they travel that training holds in this type: float32, or rounded to one of `NARROW`."""
    return narrow(array, NARROW[held]) if held in NARROW else array


def widen(array: Array) -> Array:
    """Return an array of a type of two bytes as float32, exactly; any other as it is."""
    return from_bfloat16(array) if array.dtype == BFLOAT16 else from_half(array) if array.dtype == np.float16 else array


Float8: TypeAlias = Literal["e4m3", "e5m2"]
"""Four bits of exponent and three of mantissa, up to 448; or five and two, up to 57344."""

_FLOAT8_FORMATS = {"e4m3": (3, 7), "e5m2": (2, 15)}
LARGEST_FLOAT8: dict[str, float] = {"e4m3": 448.0, "e5m2": 57344.0}
"""Largest finite values."""

_FLOAT8_SIGN = np.uint32(0x80)
_MIN_SCALE = np.float32(1e-45)


def to_float8(values: Floats32, form: Float8) -> Bits:
    """Return float32 values, shape (n,), rounded to nearest even, by their bits: uint8 of shape (n,).

    `CodecError` for a value that is no finite one of the type after it is rounded.

    >>> from_float8(to_float8(np.array([1.0, 1.0625, 1.1875, -500.0], np.float32) / 2, "e4m3"), "e4m3")
    array([   0.5  ,    0.5  ,    0.625, -256.   ], dtype=float32)
    """
    codes = np.empty(len(values), np.uint8)
    largest = np.array([LARGEST_FLOAT8[form]], np.float32).view(np.uint32)
    most = int(round_magnitudes(largest, *_FLOAT8_FORMATS[form])[0])
    for start in range(0, len(values), _CHUNK):
        bits = np.ascontiguousarray(values[start : start + _CHUNK]).view(np.uint32)
        magnitudes = bits & _FLOAT32_MAGNITUDE
        # Beyond it codes would run over; NaN has more bits than infinity.
        if magnitudes.max() >= np.array(2 * LARGEST_FLOAT8[form], np.float32).view(np.uint32):
            raise _overflow_error(form)
        rounded = round_magnitudes(magnitudes, *_FLOAT8_FORMATS[form])
        if rounded.max() > most:
            raise _overflow_error(form)
        codes[start : start + _CHUNK] = rounded | (bits >> np.uint32(24)) & _FLOAT8_SIGN
    return codes


def from_float8(codes: Bits, form: Float8) -> Floats32:
    """Return what codes stand for, float32 of their shape; NaN and infinity for those of them that do."""
    return _decode_table(form).take(codes)


@cache
def _decode_table(form: Float8) -> Floats32:
    values = magnitudes_of_codes(7, *_FLOAT8_FORMATS[form])
    beyond = np.flatnonzero(values > LARGEST_FLOAT8[form])
    values[beyond] = np.nan
    if form == "e5m2":
        values[beyond[0]] = np.inf
    return np.concatenate([values, -values])


def full_range_scale(largest: Floats32 | np.float32, form: Float8) -> Any:
    """Return the numbers by which tensors are divided so that their largest magnitudes, float32, are that of the type.

    Never zero, nor so large that a product with the type's largest value overflows.

    >>> float(full_range_scale(np.float32(896), "e4m3"))
    2.0
    """
    most = np.nextafter(np.float32(np.finfo(np.float32).max / LARGEST_FLOAT8[form]), np.float32(0))
    return np.clip(largest / np.float32(LARGEST_FLOAT8[form]), _MIN_SCALE, most)


def encode_scaled(vector: Floats32, scale: np.float32 | Floats32, form: Float8) -> Bits:
    """Return elements over their `full_range_scale`, in eight bits; quotients that are rounded up stay in range."""
    largest = np.float32(LARGEST_FLOAT8[form])
    return to_float8(np.clip(vector / scale, -largest, largest), form)


def _overflow_error(form: Float8) -> CodecError:
    return CodecError(
        f"a value does not fit in {form}, whose largest is {LARGEST_FLOAT8[form]:g}: scale the array down first, and "
        "look for NaN"
    )


@dataclass(frozen=True, slots=True)
class Float8Codec(DescribedCodec):
    """The codec that scales a vector to the range of eight bits, rounds it, and says by how much it was scaled."""

    form: Float8 = "e4m3"  # Type of an element

    def encode(self, array: Floats32) -> Payload:
        vector = float32_vector(array, self.name)
        scale = full_range_scale(np.abs(vector).max(initial=0.0), self.form)
        return Payload.of(self, len(vector), scale=np.array([scale]), codes=encode_scaled(vector, scale, self.form))

    def decode(self, payload: Payload) -> Floats32:
        scale, codes = payload.expect(self, "scale", "codes")
        if codes.dtype != np.uint8 or codes.shape != (payload.elements,):
            raise CodecError(f"an fp8 payload holds {payload.elements} codes, uint8; found {codes.dtype} {codes.shape}")
        if scale.dtype != np.float32 or scale.shape != (1,) or not np.isfinite(scale[0]) or scale[0] <= 0:
            raise CodecError(f"an fp8 payload holds one positive float32 scale; found {scale.dtype} {scale}")
        values: Floats32 = from_float8(codes, self.form) * scale[0]
        if not np.isfinite(values).all():
            raise CodecError("an fp8 payload holds a code that is not finite")
        return values


_MANTISSA_BITS = np.uint32(23)
_MANTISSA = np.uint32((1 << 23) - 1)
_POWER_EXPONENT = np.uint32(0xFF)


def to_powers(vector: Floats32, random: np.random.Generator) -> NDArray[np.uint16]:
    """Return the sign bit and the eight exponent bits of what each element is rounded to, uint16 below 2^9, shape (n,).

    Subnormal numbers go to 2^-126 or to zero. `CodecError` for an element above 2^127, as the next power of two is no
    float32.
    """
    codes = np.empty(len(vector), np.uint16)
    for start in range(0, len(vector), _CHUNK):
        bits = vector[start : start + _CHUNK].view(np.uint32)
        draws: Words = np.frombuffer(random.bytes(bits.nbytes), np.uint32) & _MANTISSA
        # The mantissa and a draw of as many bits carry into the exponent with just the right probability.
        draws += bits
        draws >>= _MANTISSA_BITS
        codes[start : start + _CHUNK] = draws
    if len(codes) and (codes & np.uint16(0xFF)).max() == _POWER_EXPONENT:
        raise CodecError("an element above 2^127 has no power of two above it in float32: scale the gradients down")
    return codes


def from_powers(codes: NDArray[np.uint16]) -> Floats32:
    """Return what the codes of `to_powers` stand for, float32 of shape (n,).

    >>> from_powers(np.array([0, 127, 256 + 128], np.uint16))
    array([ 0.,  1., -2.], dtype=float32)
    """
    return _POWERS.take(codes)


_POWERS = (np.arange(1 << 9, dtype=np.uint32) << _MANTISSA_BITS).view(np.float32)
