"""Dense all-reduces of the whole gradient, with which all other reducers are compared, and one in half precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats32
from s2sim.codecs.floats import NARROW, narrow, widen
from s2sim.gradients.gradient import Gradient, average
from s2sim.options import check_options, option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits


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

    def __post_init__(self) -> None:
        check_options(self, "dense")

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
