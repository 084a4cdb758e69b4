"""How the values of a sparse vector travel, whatever tells their indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from s2sim.codecs.bfloat16 import as_held, widen
from s2sim.codecs.bit_packing import pack_integers, unpack_integers
from s2sim.codecs.fit_poly import DEGREE, decode_fit, encode_fit
from s2sim.codecs.levels import bucket_norms, from_levels, to_levels
from s2sim.reducers.scripts.script import Work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from s2sim.arrays import Floats32
    from s2sim.reducers.rank import Held

Values: TypeAlias = Literal["raw", "qsgd", "poly"]
Codes: TypeAlias = "tuple[NDArray[Any], ...]"

_BITS, _BUCKET = 7, 512
"""DeepReduce's settings of QSGD: six bits of magnitude and a sign, a norm for 512 values."""


class ValueCode(Protocol):
    """A way to write down some values."""

    def encode(self, values: Floats32, random: np.random.Generator) -> Codes:
        """Return what stands for ``values``, float32 of shape (n,)."""

    def decode(self, codes: Codes, count: int) -> Floats32:
        """Return what codes of ``count`` values stand for, float32 of shape (count,)."""

    def work(self, count: int) -> Work:
        """Return the cost of encoding so many values."""


@dataclass(frozen=True, slots=True)
class Raw:
    """The values themselves, of the type that training holds gradients in."""

    held: Held

    def encode(self, values: Floats32, random: np.random.Generator) -> Codes:
        """Return the values."""
        return (as_held(values, self.held),)

    def decode(self, codes: Codes, count: int) -> Floats32:
        """Return the values."""
        return widen(codes[0])

    def work(self, count: int) -> Work:
        """Read and write them."""
        return Work("encode", 8 * count)


@dataclass(frozen=True, slots=True)
class Quantised:
    """Random levels of the norms of buckets, as in QSGD, of 7 bits each; unbiased."""

    def encode(self, values: Floats32, random: np.random.Generator) -> Codes:
        """Return norms and levels."""
        norms = bucket_norms(values, _BUCKET)
        numbers = to_levels(values, norms, _BUCKET, self._levels, random)
        return norms, pack_integers(numbers, _BITS)

    def decode(self, codes: Codes, count: int) -> Floats32:
        """Return every level's share of its norm."""
        norms, packed = codes
        return from_levels(unpack_integers(packed, _BITS, count), norms, _BUCKET, self._levels)

    def work(self, count: int) -> Work:
        """Find norms, then write levels."""
        return Work("encode", 9 * count, launches=2)

    @property
    def _levels(self) -> int:
        return (1 << (_BITS - 1)) - 1


@dataclass(frozen=True, slots=True)
class Fitted:
    """A curve through the values in falling order, and the order; see `s2sim.codecs.fit_poly`."""

    pieces: int

    def encode(self, values: Floats32, random: np.random.Generator) -> Codes:
        """Return knots, coefficients and order."""
        return encode_fit(values, self.pieces)

    def decode(self, codes: Codes, count: int) -> Floats32:
        """Return the curve's values."""
        knots, coefficients, order = codes
        return decode_fit(knots, coefficients, order)

    def work(self, count: int) -> Work:
        """Sort by radix (four passes over values and places), look for each knot, solve normal equations."""
        terms = (DEGREE + 1) * (DEGREE + 2)
        moved = (4 * 16 + 4 * self.pieces + 4) * count
        return Work("encode", moved, launches=8 + 2 * self.pieces, flops=count * (terms + 6 * self.pieces))


def make_value_code(values: Values, held: Held, pieces: int) -> ValueCode:
    """Return the code of a name."""
    if values == "raw":
        return Raw(held)
    return Quantised() if values == "qsgd" else Fitted(pieces)
