"""Dense all-reduce: what every other reducer is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.gradients.gradient import average
from s2sim.reducers.rank import Reduced, Reducer, Traits

if TYPE_CHECKING:
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Program, Rank


@dataclass(slots=True)
class Dense(Reducer):
    """One all-reduce of the whole gradient in float32, zeros included.

    It costs the GPU nothing beside the collective: backward fills one buffer, tables included, and the library
    divides while it sums (``ncclAvg``).
    """

    about = Traits(
        name="dense",
        summary="one all-reduce of the whole gradient in float32, zeros included",
        source="Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, JPDC 2009",
        lossless=True,
    )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Sum everything, divide by the number of ranks."""
        total = rank.all_reduce(gradient, label="gradient")
        yield total
        mean = rank.replicated(lambda: average(total.value, rank.size))
        return Reduced(mean, sent=lambda: gradient)
