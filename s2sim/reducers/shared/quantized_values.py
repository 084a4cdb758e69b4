"""How the values of a sparse vector travel, whatever tells their indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats32
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.codecs.fit_poly import DEGREE, decode_fit, encode_fit
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.quantize import bucket_norms, from_levels, largest_magnitude, to_levels
from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import GradientDtype, Program, Rank, Reduced
from s2sim.reducers.script import Work
from s2sim.reducers.shared.gathered import from_layer_vectors
from s2sim.seeds import named_generator

Rounding: TypeAlias = Literal["stochastic", "nearest"]
Signed: TypeAlias = Literal["int8", "int16"]


def signed_levels(ranks: int, dtype: Signed, owner: str) -> int:
    """Return how many levels on either side of zero a sum over ranks has room for; `S2SimError` if there is none."""
    levels = int(np.iinfo(dtype).max) // ranks
    if not levels:
        raise S2SimError(f"{owner}: a sum over {ranks} ranks has no room in {dtype} for one level each: take int16")
    return levels


def all_reduce_scaled(
    rank: Rank,
    gradient: Gradient,
    vectors: Sequence[Floats32],
    *,
    levels: int,
    dtype: Signed,
    rounding: Rounding = "stochastic",
) -> Program:
    """All-reduce the largest magnitude in each of the layers' ``vectors``, then sum multiples of its share.

    An element is rounded to one of ``levels`` on either side of zero, of which the last is the scale. What is random is
    drawn for each rank and step.
    """
    sizes = [len(vector) for vector in vectors]
    rank.work(cost.find_scale(sum(sizes)))
    largest = np.array([largest_magnitude(vector) for vector in vectors], np.float32)
    scales = rank.all_reduce(largest, "max", label="scales")
    yield scales
    random = named_generator(rank.seed, "shared scale", rank.step, rank.index) if rounding == "stochastic" else None
    each_scale = [scales.value[index : index + 1] for index in range(len(sizes))]
    own = tuple(
        _as_signed(to_levels(vector, scale, max(1, len(vector)), levels, random), levels, dtype)
        for vector, scale in zip(vectors, each_scale, strict=True)
    )
    rank.work(cost.write_codes(sum(sizes), sum(part.nbytes for part in own)))
    total = rank.all_reduce(own, label="levels")
    yield total
    rank.work(cost.add_codes(sum(sizes), 1, sum(part.nbytes for part in own)))

    def decoded(parts: Sequence[NDArray[np.signedinteger]], most: int) -> list[Floats32]:
        """Return the share of its scale that every number has of ``most``."""
        return [
            from_levels(part.astype(np.int32) + most, scale, max(1, len(part)), most)
            for part, scale in zip(parts, each_scale, strict=True)
        ]

    mean = rank.replicated(lambda: from_layer_vectors(decoded(total.value, levels * rank.size), gradient))
    return Reduced(mean, sent=lambda: from_layer_vectors(decoded(own, levels), gradient))


def _as_signed(numbers: NDArray[np.unsignedinteger], levels: int, dtype: Signed) -> NDArray[np.signedinteger]:
    return (numbers.astype(np.int32) - levels).astype(dtype)


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
class RawCode:
    """The values themselves, of the type that training holds gradients in."""

    held: GradientDtype

    def encode(self, values: Floats32, random: np.random.Generator) -> Codes:
        """Return the values."""
        return (round_to_dtype(values, self.held),)

    def decode(self, codes: Codes, count: int) -> Floats32:
        """Return the values."""
        return widen(codes[0])

    def work(self, count: int) -> Work:
        """Read and write them."""
        return Work("encode", 8 * count)


@dataclass(frozen=True, slots=True)
class QuantisedCode:
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
class FittedCurveCode:
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


def make_value_code(values: Values, held: GradientDtype, pieces: int) -> ValueCode:
    """Return the code of a name."""
    if values == "raw":
        return RawCode(held)
    return QuantisedCode() if values == "qsgd" else FittedCurveCode(pieces)
