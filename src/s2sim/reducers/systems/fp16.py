"""Half precision: every element travels as two bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.half import from_half, to_half
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Reduced, Reducer, Traits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.arrays import Floats32
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Program, Rank


@dataclass(slots=True)
class Fp16(Reducer):
    """One all-reduce of the whole gradient in float16.

    Every rank divides by the number of ranks before it rounds, so that the sum stays in range; the sum itself is
    taken in float32 and rounded once (the pinned meaning). A value or sum too large for float16 is an error.
    """

    about = Traits(
        name="fp16",
        summary="one all-reduce of the whole gradient in float16, divided before it is summed",
        source="PyTorch torch.distributed.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_hook",
        rounds_only=True,
    )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Divide, round, sum, widen."""
        # The whole buffer that backward fills, zeros included.
        rank.work(cost.cast(gradient.size, "encode"))
        total = rank.all_reduce(gradient.map(lambda values: _shares(values, rank.size)), label="gradient")
        yield total
        rank.work(cost.cast(gradient.size, "decode"))
        mean = rank.replicated(lambda: total.value.map(from_half))
        return Reduced(
            mean, sent=lambda: gradient.map(lambda values: from_half(_shares(values, rank.size)) * rank.size)
        )

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return all layers."""
        return tuple(range(len(gradient.layers)))


def _shares(values: Floats32, ranks: int) -> NDArray[np.float16]:
    """Return what each value adds to the mean over ``ranks``, rounded to half precision."""
    return to_half(np.divide(values, ranks, dtype=np.float32))
