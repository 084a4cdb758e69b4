"""Values rounded at random to one of the two powers of two that they lie between: sign and exponent, without mantissa.

S. Horvath et al., "Natural Compression for Distributed Deep Learning", arXiv:1905.10988. A value goes up with the
probability that its mantissa is of a whole binade, so that it is its own amount on average; its square grows by 9/8 at
most (theorem there).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import CodecError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.arrays import Floats32, Words

_MANTISSA_BITS = np.uint32(23)
_MANTISSA = np.uint32((1 << 23) - 1)
_EXPONENT = np.uint32(0xFF)
_CHUNK = 1 << 15


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
    if len(codes) and (codes & np.uint16(0xFF)).max() == _EXPONENT:
        raise CodecError("an element above 2^127 has no power of two above it in float32: scale the gradients down")
    return codes


def from_powers(codes: NDArray[np.uint16]) -> Floats32:
    """Return what the codes of `to_powers` stand for, float32 of shape (n,).

    >>> from_powers(np.array([0, 127, 256 + 128], np.uint16))
    array([ 0.,  1., -2.], dtype=float32)
    """
    return _POWERS.take(codes)


_POWERS = (np.arange(1 << 9, dtype=np.uint32) << _MANTISSA_BITS).view(np.float32)
