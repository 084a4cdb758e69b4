"""One byte an element, summed as integers: what hardware and libraries can add without decoding."""

from __future__ import annotations

from dataclasses import dataclass, replace

from s2sim.gradients.gradient import Gradient
from s2sim.options import check_options
from s2sim.reducers.rank import Program, Rank, Reducer, Traits
from s2sim.reducers.shared.gathered import layer_vectors
from s2sim.reducers.shared.quantized_values import Rounding, Signed, all_reduce_scaled, signed_levels


@dataclass(slots=True)
class Int8(Reducer):
    """Agree on each layer's largest magnitude over all ranks, then all-reduce every element as a multiple of its share.

    So that no sum overflows, P ranks have 127 // P levels on either side of zero: 15 for 8 ranks, one for 64, and none
    for more than 127, which are refused. That the range is divided, instead of sending sums in wider types, follows the
    integer all-reduces of in-network aggregation (A. Sapio et al., SwitchML, NSDI 2021, recalled), where all is divided
    among ranks likewise.

    Attributes
    ----------
    rounding : {"stochastic", "nearest"}
        At random, so that it is unbiased, or to the nearest level, which wants feedback (``ef=true``).
    dtype : {"int8", "int16"}
        Type of an element on the wire.
    """

    compresses_all = True
    rounding: Rounding = "stochastic"
    dtype: Signed = "int8"

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
