"""Dense all-reduces of the whole gradient: with which all others are compared, in half precision, in eight bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats32
from s2sim.codecs.floats import NARROW, Float8, encode_scaled, from_float8, full_range_scale, narrow, widen
from s2sim.codecs.quantize import from_levels, largest_magnitude, to_levels
from s2sim.errors import S2SimError
from s2sim.gradients.gradient import Gradient, average
from s2sim.options import option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits
from s2sim.reducers.script import Work
from s2sim.reducers.shared.gathered import Aggregate, Gathered, from_layer_vectors, layer_vectors
from s2sim.reducers.shared.row_sparse import Message
from s2sim.seeds import named_generator


@dataclass(slots=True)
class Dense(Reducer):
    """One all-reduce of the whole gradient in the type that training has it in, zeros included.

    It costs the GPU nothing beside the collective: backward fills one buffer, tables included, and the library
    divides while it sums (``ncclAvg``).
    """

    dtype: Literal["fp32", "bf16", "fp16"] | None = option(
        None,
        "Type of the gradients, where it is to be another than that which they are held in. In two bytes every rank "
        "divides by the number of ranks before it rounds; the sum is taken in float32 and rounded once. A value or "
        "sum that is too large for the type is an error.",
    )
    collective: str | None = option(
        None,
        "The algorithm of the all-reduce, one of ``s2sim list collectives``, whatever ``--collective`` says. What "
        "others are compared with is the all-reduce without.",
    )

    about = Traits(
        name="dense",
        summary="one all-reduce of the whole gradient in the type that training has it in, zeros included",
        source="Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, JPDC 2009",
        baseline=True,
        lossless=True,
        formula="8n(P-1)/P",
        certainty="paper read",
        size_only=True,
    )

    @property
    def traits(self) -> Traits:
        """Rounding to fewer bytes than gradients are held in is what it loses, if anything."""
        loses = self._sent in NARROW and self._sent != self.held
        formula = "4n(P-1)/P" if self._sent in NARROW else self.about.formula
        if self.collective is not None:
            formula = f"what {self.collective} sends"
        baseline = self.about.baseline and self.collective is None and self._sent == self.held
        return replace(self.about, baseline=baseline, lossless=not loses, rounds_only=loses, formula=formula)

    @property
    def runs_by(self) -> str | None:
        """``collective``."""
        return self.collective

    @property
    def _sent(self) -> str:
        return self.dtype or self.held

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Sum everything, divide by the number of ranks."""
        if self._sent in NARROW:
            return (yield from reduce_narrow(rank, gradient, NARROW[self._sent]))
        total = rank.all_reduce(gradient, label="gradient")
        yield total
        mean = rank.replicated(lambda: average(total.value, rank.size))
        return Reduced(mean, sent=lambda: gradient)

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return all layers where they are rounded."""
        return tuple(range(len(gradient.layers))) if self._sent in NARROW else ()

    def options(self) -> dict[str, Any]:
        """Return the type in effect, and the algorithm."""
        return {"dtype": self._sent, "collective": self.collective}


@dataclass(slots=True)
class Fp16(Reducer):
    """One all-reduce of the whole gradient in float16.

    Every rank divides by the number of ranks before it rounds, so that the sum stays in range; the sum itself is
    taken in float32 and rounded once (the pinned meaning). A value or sum too large for float16 is an error.
    """

    compresses_all = True

    about = Traits(
        name="fp16",
        summary="one all-reduce of the whole gradient in float16, divided before it is summed",
        source="PyTorch torch.distributed.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_hook",
        rounds_only=True,
        formula="4n(P-1)/P",
        certainty="code read",
        size_only=True,
    )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Divide, round, sum, widen."""
        # The whole buffer that backward fills, zeros included.
        rank.work(cost.cast(gradient.size, "encode"))
        reduced = yield from reduce_narrow(rank, gradient, NARROW["fp16"])
        rank.work(cost.cast(gradient.size, "decode"))
        return reduced


def reduce_narrow(rank: Rank, gradient: Gradient, dtype: np.dtype[Any]) -> Program:
    """Divide, round to a type of two bytes, sum, widen."""

    def share(values: Floats32) -> NDArray[Any]:
        return narrow(np.divide(values, rank.size, dtype=np.float32), dtype)

    total = rank.all_reduce(gradient.map(share), label="gradient")
    yield total
    mean = rank.replicated(lambda: total.value.map(widen))
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


@dataclass(slots=True)
class Fp8(Gathered):
    """An all-to-all of each tensor's chunks in eight bits, sums in float32, and an all-gather of these in eight bits.

    Each chunk has a scale of its own, its largest magnitude over that of the type, so that nothing overflows however
    many ranks there are. Sums are taken as libraries do that have no reduction in eight bits: every rank widens what
    comes to it, adds up in float32 in rank order, and rounds once more. A ring that adds in eight bits would round at
    every hop, and needs one scale for all ranks (H. Peng et al., FP8-LM, 2023, section 2.1, recalled). All that is lost
    is rounding, a sixteenth of a value with e4m3.
    """

    form: Float8 = option("e4m3", "Three bits of mantissa over 2^-9 to 448, or two over 2^-16 to 57344.")
    aggregate: Aggregate = "two-phase"

    about = Traits(
        name="fp8",
        summary="an all-to-all and an all-gather of elements in eight bits of floating point, summed in float32",
        source="Micikevicius et al., FP8 Formats for Deep Learning, 2022; OCP 8-bit Floating Point Specification 1.0",
        rounds_only=True,
        formula="2n(P-1)/P, and 4 for each chunk of a layer",
        certainty="recalled",
    )

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return the scale and the codes."""
        scale = full_range_scale(vector, self.form)
        return np.array([scale]), encode_scaled(vector, scale, self.form)

    def decode(self, message: Message, elements: int) -> Floats32:
        """Return the codes' values times the scale."""
        scale, codes = message
        values: Floats32 = from_float8(codes, self.form) * scale[0]
        return values


@dataclass(slots=True)
class Int8(Reducer):
    """Agree on each layer's largest magnitude over all ranks, then all-reduce every element as a multiple of its share.

    So that no sum overflows, P ranks have 127 // P levels on either side of zero: 15 for 8 ranks, one for 64, and none
    for more than 127, which are refused. That the range is divided, instead of sending sums in wider types, follows the
    integer all-reduces of in-network aggregation (A. Sapio et al., SwitchML, NSDI 2021, recalled), where all is divided
    among ranks likewise.
    """

    compresses_all = True
    rounding: Rounding = option(
        "stochastic", "At random, so that it is unbiased, or to the nearest level, which wants feedback (``ef=true``)."
    )
    dtype: Signed = option("int8", "Type of an element on the wire.")

    about = Traits(
        name="int8",
        summary="an all-reduce of integers of one byte, 127 // P levels of a scale that all share",
        source="Sapio et al., Scaling Distributed Machine Learning with In-Network Aggregation, NSDI 2021",
        formula="2(n + 4L)(P-1)/P",
        certainty="recalled",
        size_only=True,
    )

    @property
    def traits(self) -> Traits:
        """Rounding to the nearest wants feedback."""
        return self.about if self.rounding == "stochastic" else replace(self.about, feedback="needed")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Divide the range among the ranks; agree on scales, round, sum."""
        levels = int(np.iinfo(self.dtype).max) // rank.size
        if not levels:
            raise S2SimError(
                f"int8: a sum over {rank.size} ranks has no room in {self.dtype} for one level each: take int16"
            )
        own = layer_vectors(gradient)
        program = all_reduce_scaled(rank, gradient, own, levels=levels, dtype=self.dtype, rounding=self.rounding)
        return (yield from program)
