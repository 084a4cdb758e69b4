"""Floating-point types of few bits: magnitudes rounded to nearest even, as whole numbers of the type's last places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from s2sim.arrays import Words

_EXPONENT = np.uint32(0x7F800000)
_FLOAT32_MANTISSA_BITS = 23
_FLOAT32_BIAS = 127


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """A type with a sign, an exponent and a mantissa, with subnormal numbers, as IEEE 754 has them.

    Attributes
    ----------
    mantissa_bits, bias : int
        Bits of the mantissa that are stored, and what is added to exponents.
    """

    mantissa_bits: int
    bias: int

    def round_magnitudes(self, magnitudes: Words) -> Words:
        """Return the codes of float32 magnitudes, uint32 bits of any shape, in the type without its sign.

        To nearest, ties to even. What is too large gets a code beyond those of finite numbers.
        """
        shift = _FLOAT32_MANTISSA_BITS - self.mantissa_bits
        smallest_normal = np.uint32((_FLOAT32_BIAS + 1 - self.bias) << _FLOAT32_MANTISSA_BITS)
        # Added to a number 2^shift times its leading bit (subnormal ones: that of the smallest normal one), a magnitude
        # is rounded to a whole number of the type's last places, which the sum's last bits then are.
        leading = np.maximum(magnitudes & _EXPONENT, smallest_normal)
        larger = leading + np.uint32(shift << _FLOAT32_MANTISSA_BITS)
        rounded: Words = np.add(magnitudes.view(np.float32), larger.view(np.float32)).view(np.uint32)
        rounded -= larger
        leading -= smallest_normal
        leading >>= np.uint32(shift)
        rounded += leading
        return rounded
