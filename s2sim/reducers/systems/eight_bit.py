"""Eight bits a value: FP8 as Transformer Engine, and INT8 with a shared scale."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from s2sim.arrays import Floats32
from s2sim.codecs.floats import Float8, encode_scaled, from_float8, full_range_scale
from s2sim.gradients.gradient import Gradient
from s2sim.options import check_options, option
from s2sim.reducers.rank import Program, Rank, Reducer, Traits
from s2sim.reducers.shared.gathered import Aggregate, Gathered, Message, layer_vectors
from s2sim.reducers.shared.quantized_values import Rounding, Signed, all_reduce_scaled, signed_levels


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

    def __post_init__(self) -> None:
        check_options(self, "int8")

    @property
    def traits(self) -> Traits:
        """Rounding to the nearest wants feedback."""
        return self.about if self.rounding == "stochastic" else replace(self.about, feedback="needed")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Divide the range among the ranks; agree on scales, round, sum."""
        levels = signed_levels(rank.size, self.dtype, "int8")
        vectors = layer_vectors(gradient)
        return (
            yield from all_reduce_scaled(
                rank, gradient, vectors, levels=levels, dtype=self.dtype, rounding=self.rounding
            )
        )
