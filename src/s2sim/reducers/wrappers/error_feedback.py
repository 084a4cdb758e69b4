"""Error feedback: what a lossy reducer fails to send is added to the next step's gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.gradients.gradient import add, subtract
from s2sim.reducers.wrappers.feedback import Feedback, charge_passes

if TYPE_CHECKING:
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Program, Rank


@dataclass(slots=True)
class ErrorFeedback(Feedback):
    """Any lossy reducer with a residual: ``residual = (gradient + residual) - sent``.

    S. P. Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression schemes", ICML 2019,
    algorithm 2 with a learning rate of 1. Written ``ef=true`` among the inner reducer's options.
    """

    key = "ef"
    adds = "error feedback"
    ef: bool = True

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Add the residual, reduce, keep what was not sent."""
        corrected = gradient if self.residual is None else add(gradient, self.residual)
        if self.residual is not None:
            charge_passes(rank, corrected)
        reduced = yield from self.inner.reduce(rank, corrected)
        self.residual = subtract(corrected, reduced.sent())
        charge_passes(rank, corrected)
        return reduced
