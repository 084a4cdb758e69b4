"""Filtered error feedback: of what was not sent, only a part comes back soon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from s2sim.errors import OptionError
from s2sim.gradients.gradient import add, subtract
from s2sim.reducers.wrappers.feedback import Feedback, charge_passes

if TYPE_CHECKING:
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Program, Rank


@dataclass(slots=True)
class FilteredFeedback(Feedback):
    """Any lossy reducer with a low-pass filtered residual m: ``m = (1 - beta) m + beta (m + gradient - sent)``.

    C.-Y. Chen et al., "ScaleCom", NeurIPS 2020; the filter and its usual beta of 0.1 are recalled. What is sent is
    chosen from ``gradient + m``. With beta = 1 it is error feedback; below, of what a step fails to send a share beta
    is kept for later and the rest forgotten, and of what is sent too early only that share is owed. Written
    ``ef=filtered``.

    Attributes
    ----------
    beta : float
        The filter's coefficient, above 0 and below 1.
    """

    key = "ef"
    adds = "filtered error feedback"
    conserves = "nothing"
    ef: Literal["filtered"] = "filtered"
    beta: float = 0.1

    def check(self) -> None:
        """Refuse a coefficient that forgets or keeps everything."""
        Feedback.check(self)
        if not 0 < self.beta < 1:
            raise OptionError(f"{self.inner.traits.name}: beta={self.beta} is not between 0 and 1; ef=true is 1")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Add the residual, reduce, move the residual towards what was not sent."""
        corrected = gradient if self.residual is None else add(gradient, self.residual)
        if self.residual is not None:
            charge_passes(rank, corrected)
        reduced = yield from self.inner.reduce(rank, corrected)
        change = subtract(gradient, reduced.sent()).map(lambda values: values * values.dtype.type(self.beta))
        self.residual = change if self.residual is None else add(self.residual, change)
        charge_passes(rank, corrected, 2)
        return reduced
