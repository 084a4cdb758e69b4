"""Half precision: every element travels as two bytes."""

from __future__ import annotations

from dataclasses import dataclass

from s2sim.codecs.floats import NARROW
from s2sim.gradients.gradient import Gradient
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reducer, Traits
from s2sim.reducers.systems.dense import reduce_narrow


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

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return all layers."""
        return tuple(range(len(gradient.layers)))
