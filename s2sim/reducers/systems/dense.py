"""Dense all-reduces of the whole gradient: with which all others are compared, in half precision, in eight bits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Array, Floats32, split_sizes
from s2sim.codecs import bits, quantize
from s2sim.codecs.floats import NARROW, Float8, encode_scaled, from_float8, full_range_scale, narrow, widen
from s2sim.errors import OptionError, S2SimError
from s2sim.gradients.gradient import Gradient, average
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import GradientDtype, Program, Rank, Reduced, Reducer, Traits
from s2sim.reducers.script import Work
from s2sim.reducers.shared import gathered
from s2sim.seeds import named_generator

SentDtype: TypeAlias = Literal["fp32", "bf16", "fp16"]


@dataclass(slots=True)
class Dense(Reducer):
    """One all-reduce of the whole gradient in the type that training has it in, zeros included.

    It costs the GPU nothing beside the collective: backward fills one buffer, tables included, and the library
    divides while it sums (``ncclAvg``).
    """

    dtype: SentDtype | None = None
    collective: str | None = None
    cast: bool = False

    def __post_init__(self) -> None:
        Reducer.__post_init__(self)
        if self.cast and self.dtype is None:
            raise OptionError("dense: cast=true changes nothing without a dtype: add dtype=bf16 or fp16")

    @property
    def traits(self) -> Traits:
        """Rounding to fewer bytes than gradients are held in is what it loses, if anything."""
        loses = self.sent_dtype in NARROW and self.sent_dtype != self.held
        formula = "4n(P-1)/P" if self.sent_dtype in NARROW else self.about.formula
        if self.collective is not None:
            formula = f"what {self.collective} sends"
        baseline = self.about.baseline and self.collective is None and self.sent_dtype == self.held
        return replace(self.about, baseline=baseline, lossless=not loses, rounds_only=loses, formula=formula)

    @property
    def runs_by(self) -> str | None:
        return self.collective

    @property
    def sent_dtype(self) -> SentDtype:
        """The type that travels."""
        return self.dtype or self.held

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        if self.cast and self.sent_dtype != self.held:
            return (yield from reduce_cast(rank, gradient, self.sent_dtype))
        return (yield from reduce_as(rank, gradient, self.sent_dtype))

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        return tuple(range(len(gradient.layers))) if self.sent_dtype in NARROW else ()

    def options(self) -> dict[str, Any]:
        return {"dtype": self.sent_dtype, "collective": self.collective, "cast": self.cast}


@dataclass(slots=True)
class Fp16(Reducer):
    """One all-reduce of the whole gradient in float16.

    Every rank divides by the number of ranks before it rounds, so that the sum stays in range; the sum itself is
    taken in float32 and rounded once (the pinned meaning). A value or sum too large for float16 is an error.
    """

    compresses_all = True

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        return (yield from reduce_cast(rank, gradient, "fp16"))


def summed_dtype(reducer: Reducer) -> GradientDtype | Literal["fp16"] | None:
    """Return the type in which a reducer's sums of whole gradients travel; None if it does anything else."""
    if isinstance(reducer, Fp16):
        return "fp16"
    return reducer.sent_dtype if isinstance(reducer, Dense) and reducer.collective is None else None


def reduce_cast(rank: Rank, gradient: Gradient, dtype: SentDtype) -> Program:
    """Sum in another type than that in which the buffer is held that backward fills, zeros included."""
    rank.work(cost.cast(gradient.size, "encode"))
    reduced = yield from reduce_as(rank, gradient, dtype)
    rank.work(cost.cast(gradient.size, "decode"))
    return reduced


def reduce_as(rank: Rank, gradient: Gradient, dtype: SentDtype) -> Program:
    """Sum and divide; for a type of two bytes, divide, round to it, sum, widen."""
    if dtype not in NARROW:
        total = yield from rank.all_reduce(gradient, label="gradient", spreads=True)
        return Reduced(rank.replicated(lambda: average(total, rank.size)), sent=lambda: gradient)

    def share(values: Floats32) -> Array:
        return narrow(np.divide(values, rank.size, dtype=np.float32), NARROW[dtype])

    total = yield from rank.all_reduce(gradient.map(share), label="gradient", spreads=True)
    mean = rank.replicated(lambda: total.map(widen))
    return Reduced(mean, sent=lambda: gradient.map(lambda values: widen(share(values)) * rank.size))


Rounding: TypeAlias = Literal["stochastic", "nearest"]

Signed: TypeAlias = Literal["int8", "int16"]


def all_reduce_scaled(
    rank: Rank,
    gradient: Gradient,
    vectors: Sequence[Floats32],
    *,
    levels: int,
    dtype: Signed | None = None,
    rounding: Rounding = "stochastic",
) -> Program:
    """All-reduce the largest magnitude of each layer's vector, its scale, then the elements as integer levels.

    An element is rounded to one of ``levels`` on either side of zero, of which the last is the scale. Random numbers
    are sampled for each rank and step. The type is the shortest one in which no sum overflows, unless it is given.
    """
    dtype = dtype or ("int8" if levels * rank.size <= np.iinfo(np.int8).max else "int16")
    sizes = [len(vector) for vector in vectors]
    rank.work(Work("encode", cost.VALUE_BYTES * sum(sizes)))
    largest = np.array([quantize.largest_magnitude(vector) for vector in vectors], np.float32)
    scales = yield from rank.all_reduce(largest, "max", label="scales")
    random = named_generator(rank.seed, "shared scale", rank.step, rank.index) if rounding == "stochastic" else None
    scale_of = list(scales[:, None])
    own = tuple(
        (quantize.to_levels(vector, scale, max(1, len(vector)), levels, random).astype(np.int32) - levels).astype(dtype)
        for vector, scale in zip(vectors, scale_of, strict=True)
    )
    rank.work(cost.write_codes(sum(sizes), sum(part.nbytes for part in own)))
    total = yield from rank.all_reduce(own, label="levels", spreads=True)
    rank.work(cost.add_codes(sum(sizes), 1, sum(part.nbytes for part in own)))

    def decoded(parts: Sequence[NDArray[np.signedinteger]], most: int) -> list[Floats32]:
        # The scale is level ``most``.
        return [
            quantize.from_levels(part.astype(np.int32) + most, scale, max(1, len(part)), most)
            for part, scale in zip(parts, scale_of, strict=True)
        ]

    mean = rank.replicated(lambda: gathered.from_layer_vectors(decoded(total, levels * rank.size), gradient))
    return Reduced(mean, sent=lambda: gathered.from_layer_vectors(decoded(own, levels), gradient))


@dataclass(slots=True)
class Fp8(gathered.Gathered):
    """An all-to-all of each tensor's chunks in eight bits, sums in float32, and an all-gather of these in eight bits.

    Each chunk has a scale of its own, its largest magnitude over that of the type, so that nothing overflows however
    many ranks there are. Sums are taken as libraries do that have no reduction in eight bits: every rank widens what
    comes to it, adds up in float32 in rank order, and rounds once more. A ring that adds in eight bits would round at
    every hop, and needs one scale for all ranks (H. Peng et al., FP8-LM, 2023, section 2.1, recalled). All that is lost
    is rounding, a sixteenth of a value with e4m3.
    """

    form: Float8 = "e4m3"
    aggregate: gathered.Aggregate = "two-phase"

    def encode(self, vector: Floats32, random: np.random.Generator) -> gathered.Message:
        return self.encode_each([vector], random)[0]

    def encode_each(self, vectors: Sequence[Floats32], random: np.random.Generator) -> list[gathered.Message]:
        """Return the scale and the codes of each vector; of all at once, as chunks are many and short."""
        if not vectors:
            return []
        values, counts = np.concatenate(vectors), list(map(len, vectors))
        first = np.cumsum([0, *counts[:-1]], dtype=np.int64)
        scales = full_range_scale(np.maximum.reduceat(np.abs(values), first), self.form)
        codes = encode_scaled(values, scales.repeat(counts), self.form)
        return [(scales[i : i + 1], part) for i, part in enumerate(split_sizes(codes, counts))]

    def decode(self, message: gathered.Message, elements: int) -> Floats32:
        return self.decode_each([message], [elements])[0]

    def decode_each(self, messages: Sequence[gathered.Message], sizes: Sequence[int]) -> list[Floats32]:
        if not messages:
            return []
        scales, codes = map(np.concatenate, zip(*messages, strict=True))
        return split_sizes(from_float8(codes, self.form) * scales.repeat(sizes), sizes)

    def add_each(self, messages: Sequence[gathered.Message], totals: Sequence[Floats32]) -> None:
        for total, values in zip(totals, self.decode_each(messages, list(map(len, totals))), strict=True):
            np.add(total, values, out=total)


@dataclass(slots=True)
class Int8(Reducer):
    """Agree on each layer's largest magnitude over all ranks, then all-reduce every element as a multiple of its share.

    So that no sum overflows, P ranks have 127 // P levels on either side of zero: 15 for 8 ranks, one for 64, and none
    for more than 127, which are refused. That the range is divided, instead of sending sums in wider types, follows the
    integer all-reduces of in-network aggregation (A. Sapio et al., SwitchML, NSDI 2021, recalled), where all is divided
    among ranks likewise.
    """

    compresses_all = True
    rounding: Rounding = "stochastic"
    dtype: Signed = "int8"

    @property
    def traits(self) -> Traits:
        return self.about if self.rounding == "stochastic" else replace(self.about, feedback="needed")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        if not (levels := int(np.iinfo(self.dtype).max) // rank.size):
            raise S2SimError(
                f"int8: a sum over {rank.size} ranks has no room in {self.dtype} for one level each: take int16"
            )
        own = gathered.layer_vectors(gradient)
        program = all_reduce_scaled(rank, gradient, own, levels=levels, dtype=self.dtype, rounding=self.rounding)
        return (yield from program)


@dataclass(slots=True)
class BlockScaled(gathered.Gathered):
    """An all-to-all of each tensor's chunks in a microscaling format, and an all-gather of their sums in it.

    A power of two for 32 neighbours keeps one outlier from coarsening a whole tensor; sums are taken in float32, in
    rank order, and rounded once more. Rounding to nearest of fewer than eight bits is biased, so that ``mx:form=e2m1``
    wants feedback (``ef=true``).
    """

    form: quantize.BlockForm = "e4m3"
    aggregate: gathered.Aggregate = "two-phase"

    @property
    def traits(self) -> Traits:
        """Fewer than eight bits lose more than rounding that nobody would keep."""
        loses = quantize.ELEMENTS[self.form].bits < 8
        return replace(self.about, rounds_only=False, feedback="needed") if loses else self.about

    def encode(self, vector: Floats32, random: np.random.Generator) -> gathered.Message:
        """Return the exponents of scales and the packed codes."""
        scales, codes = quantize.to_block_scaled(vector, self.form)
        return scales, bits.pack_integers(codes, quantize.ELEMENTS[self.form].bits)

    def decode(self, message: gathered.Message, elements: int) -> Floats32:
        scales, packed = message
        codes = bits.unpack_integers(packed, quantize.ELEMENTS[self.form].bits, elements)
        return quantize.from_block_scaled(scales, codes, self.form)
