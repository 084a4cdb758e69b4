"""Eight bits of floating point: every element travels as one byte, in two phases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from s2sim.arrays import Floats32
from s2sim.codecs.floats import Float8, encode_scaled, from_float8, full_range_scale
from s2sim.reducers.rank import Traits
from s2sim.reducers.shared.gathered import Aggregate, Gathered, Message


@dataclass(slots=True)
class Fp8(Gathered):
    """An all-to-all of each tensor's chunks in eight bits, sums in float32, and an all-gather of these in eight bits.

    Each chunk has a scale of its own, its largest magnitude over that of the type, so that nothing overflows however
    many ranks there are. Sums are taken as libraries do that have no reduction in eight bits: every rank widens what
    comes to it, adds up in float32 in rank order, and rounds once more. A ring that adds in eight bits would round at
    every hop, and needs one scale for all ranks (H. Peng et al., FP8-LM, 2023, section 2.1, recalled). All that is lost
    is rounding, a sixteenth of a value with e4m3.

    Attributes
    ----------
    form : {"e4m3", "e5m2"}
        Three bits of mantissa over 2^-9 to 448, or two over 2^-16 to 57344.
    """

    form: Float8 = "e4m3"
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
