"""TernGrad: every element as -1, 0 or 1 times the largest magnitude, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from s2sim.arrays import Floats32
from s2sim.codecs.quantize import from_levels, largest_magnitude, to_levels
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.options import check_options
from s2sim.reducers.rank import Program, Rank, Traits
from s2sim.reducers.shared.gathered import (
    Aggregate,
    Gathered,
    Message,
    NumberFormat,
    layer_vectors,
    read_numbers,
    write_numbers,
)
from s2sim.reducers.shared.quantized_values import Signed, all_reduce_scaled


@dataclass(slots=True)
class TernGrad(Gathered):
    """An element keeps its sign and gets the tensor's largest magnitude s with probability |x| / s, else 0: unbiased.

    W. Wen et al., "TernGrad", NeurIPS 2017, section 3, with a scale for each tensor; read in GRACE's code, which clips
    always and sends a byte an element.

    Attributes
    ----------
    clip : float
        Standard deviations of a tensor that elements are cut to first; 0 (default) for none. The paper's training and
        GRACE have 2.5, with which it is not unbiased any more.
    shared : bool
        Whether ranks first agree on the largest scale of all, so that levels are summed by an all-reduce of integers:
        of one byte up to 127 ranks, else of two. ``wire`` and ``aggregate`` then have no effect, and are refused.
    wire : {"packed", "byte"}
        Two bits an element, or a byte, as implemented in GRACE.
    aggregate : {"gather", "two-phase", "server"}
        All messages go to all; or chunks to their owners, or all to rank 0, who add up, encode the sums and send these
        to all. The paper's server sends sums of levels, in more bits.
    """

    clip: float = 0.0
    shared: bool = False
    wire: NumberFormat = "packed"
    aggregate: Aggregate = "gather"

    about = Traits(
        name="terngrad",
        summary="each element as -1, 0 or 1 times the largest magnitude, at random: two bits",
        source="Wen et al., TernGrad, NeurIPS 2017; github.com/sands-lab/grace",
        formula="(n/4 + 4L)(P-1)",
        certainty="code read",
    )

    def __post_init__(self) -> None:
        check_options(self, "terngrad")
        if not 0 <= self.clip < np.inf:
            raise OptionError(f"terngrad: clip={self.clip} is no number of standard deviations from 0 on")
        if self.shared and (self.wire, self.aggregate) != ("packed", "gather"):
            raise OptionError("terngrad: shared=true sums bytes by an all-reduce: leave wire and aggregate out")

    @property
    def traits(self) -> Traits:
        """What is clipped is not unbiased, and wants feedback."""
        return replace(self.about, feedback="needed") if self.clip else self.about

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Encode and gather; or agree on scales first, and sum levels."""
        if not self.shared:
            return (yield from Gathered.reduce(self, rank, gradient))
        vectors = [self._clipped(vector) for vector in layer_vectors(gradient)]
        dtype: Signed = "int8" if rank.size <= np.iinfo(np.int8).max else "int16"
        return (yield from all_reduce_scaled(rank, gradient, vectors, levels=1, dtype=dtype))

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return the scale and the signs of what is drawn."""
        vector = self._clipped(vector)
        scale = np.array([largest_magnitude(vector)], np.float32)
        numbers = to_levels(vector, scale, len(vector), 1, random)
        return scale, write_numbers(numbers, 2, self.wire)

    def decode(self, message: Message, elements: int) -> Floats32:
        """Return the scale with every sign, and zeros."""
        scale, codes = message
        return from_levels(read_numbers(codes, 2, self.wire, elements), scale, elements, 1)

    def off(self, message: Message, elements: int) -> float | None:
        """Return the scale, unless something was clipped."""
        return None if self.clip else float(message[0][0])

    def _clipped(self, vector: Floats32) -> Floats32:
        if not self.clip or not len(vector):
            return vector
        limit = np.float32(self.clip * vector.std(dtype=np.float64))
        return np.clip(vector, -limit, limit)
