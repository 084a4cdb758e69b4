"""Error feedback: what a lossy reducer fails to send is added to the next step's gradient."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, add, stored, subtract
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.wrappers.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.reducers.rank import Program, Rank, Traits


@dataclass(slots=True)
class ErrorFeedback(Wrapper):
    """Any lossy reducer with a residual: ``residual = (gradient + residual) - sent``.

    S. P. Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression schemes", ICML 2019,
    algorithm 2 with a learning rate of 1. Written ``ef=true`` among the inner reducer's options.
    """

    residual: Gradient | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if self.inner.traits.lossless:
            name = self.inner.traits.name
            raise OptionError(f"{name}: ef=true would change nothing, as {name} loses nothing")
        self.inner = self.inner.fresh()

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Add the residual, reduce, keep what was not sent."""
        corrected = gradient if self.residual is None else add(gradient, self.residual)
        values = sum(stored(layer).size for layer in corrected.layers)
        if self.residual is not None:
            rank.work(cost.add(values))
        reduced = yield from self.inner.reduce(rank, corrected)
        self.residual = subtract(corrected, reduced.sent())
        rank.work(cost.add(values))
        return reduced

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> ErrorFeedback:
        """Return error feedback around what the inner reducer becomes."""
        return ErrorFeedback(self.inner.fitted(gradients, seed))

    @property
    def traits(self) -> Traits:
        """The inner reducer's, with what is added."""
        return replace(self.inner.traits, summary=f"{self.inner.traits.summary}; with error feedback")

    def options(self) -> dict[str, Any]:
        """Return the inner reducer's options and ``ef``."""
        return self.inner.options() | {"ef": True}
