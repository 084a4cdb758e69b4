"""Encodings of values: levels with a shared scale in an all-reduce, and codes of a sparse vector's values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats32
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.codecs.deepreduce import DEGREE, decode_fit, encode_fit
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
    """Return the levels on either side of zero that leave room for a sum over ranks; `S2SimError` if there are none."""
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
    """All-reduce the largest magnitude of each layer's vector, its scale, then the elements as integer levels.

    An element is rounded to one of ``levels`` on either side of zero, of which the last is the scale. Random numbers
    are sampled for each rank and step.
    """
    sizes = [len(vector) for vector in vectors]
    rank.work(cost.find_scale(sum(sizes)))
    largest = np.array([largest_magnitude(vector) for vector in vectors], np.float32)
    scales = rank.all_reduce(largest, "max", label="scales")
    yield scales
    random = named_generator(rank.seed, "shared scale", rank.step, rank.index) if rounding == "stochastic" else None
    scale_of = list(scales.value[:, None])
    own = tuple(
        (to_levels(vector, scale, max(1, len(vector)), levels, random).astype(np.int32) - levels).astype(dtype)
        for vector, scale in zip(vectors, scale_of, strict=True)
    )
    rank.work(cost.write_codes(sum(sizes), sum(part.nbytes for part in own)))
    total = rank.all_reduce(own, label="levels")
    yield total
    rank.work(cost.add_codes(sum(sizes), 1, sum(part.nbytes for part in own)))

    def decoded(parts: Sequence[NDArray[np.signedinteger]], most: int) -> list[Floats32]:
        # The scale is level ``most``.
        return [
            from_levels(part.astype(np.int32) + most, scale, max(1, len(part)), most)
            for part, scale in zip(parts, scale_of, strict=True)
        ]

    mean = rank.replicated(lambda: from_layer_vectors(decoded(total.value, levels * rank.size), gradient))
    return Reduced(mean, sent=lambda: from_layer_vectors(decoded(own, levels), gradient))


Values: TypeAlias = Literal["raw", "qsgd", "poly"]
Codes: TypeAlias = "tuple[NDArray[Any], ...]"

_BITS, _BUCKET = 7, 512
"""DeepReduce's settings of QSGD: six bits of magnitude and a sign, a norm for 512 values."""

_LEVELS = (1 << (_BITS - 1)) - 1


@dataclass(frozen=True, slots=True)
class ValueCode:
    """The code of a sparse vector's values.

    raw: the values themselves, of the gradient dtype. qsgd: random levels of the norms of buckets, of 7 bits each;
    unbiased. poly: a curve through the values in falling order, and the order; see `s2sim.codecs.deepreduce`.
    """

    values: Values
    held: GradientDtype
    pieces: int  # Polynomials of a curve

    def encode(self, values: Floats32, random: np.random.Generator) -> Codes:
        """Return the codes of values, float32 of shape (n,)."""
        if self.values == "raw":
            return (round_to_dtype(values, self.held),)
        if self.values == "poly":
            return encode_fit(values, self.pieces)
        norms = bucket_norms(values, _BUCKET)
        return norms, pack_integers(to_levels(values, norms, _BUCKET, _LEVELS, random), _BITS)

    def decode(self, codes: Codes, count: int) -> Floats32:
        """Return the ``count`` decoded values."""
        if self.values == "raw":
            return widen(codes[0])
        if self.values == "poly":
            knots, coefficients, order = codes
            return decode_fit(knots, coefficients, order)
        norms, packed = codes
        return from_levels(unpack_integers(packed, _BITS, count), norms, _BUCKET, _LEVELS)

    def work(self, count: int) -> Work:
        """Return the cost of encoding so many values."""
        if self.values == "raw":
            return Work("encode", 8 * count)
        if self.values == "qsgd":
            return Work("encode", 9 * count, launches=2)  # Find norms, then write levels.
        # A radix sort (four passes over values and indices), a search of each knot, and normal equations.
        terms = (DEGREE + 1) * (DEGREE + 2)
        moved = (4 * 16 + 4 * self.pieces + 4) * count
        return Work("encode", moved, launches=8 + 2 * self.pieces, flops=count * (terms + 6 * self.pieces))
