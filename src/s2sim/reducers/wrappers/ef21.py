"""EF21: what is compressed is how far the gradient has moved from what all know of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, add, subtract
from s2sim.reducers.rank import Reduced
from s2sim.reducers.wrappers.feedback import Feedback, charge_passes

if TYPE_CHECKING:
    from s2sim.reducers.rank import Program, Rank


@dataclass(slots=True)
class EF21(Feedback):
    """Any contractive reducer C of differences: ``c = C(gradient - g); g = g + c``, and all end with the mean of g.

    P. Richtárik, I. Sokolov and I. Fatkhullin, "EF21: a new, simpler, theoretically better, and practically faster
    error feedback", NeurIPS 2021, algorithm 2, by its abstract and summaries. g starts at zero, so that the first step
    sends C(gradient); the paper also allows to begin with the gradient itself. Bytes and collectives are those of C.
    Written ``ef=ef21``.

    Attributes
    ----------
    estimate : Gradient or None
        g, this rank's part of what all know; ``shared`` is its mean over ranks.
    """

    key = "ef"
    adds = "EF21"
    conserves = "gradient"
    ef: Literal["ef21"] = "ef21"
    estimate: Gradient | None = field(init=False, repr=False, default=None)
    shared: Gradient | None = field(init=False, repr=False, default=None)

    def check(self) -> None:
        """Refuse also what is unbiased instead of contractive: differences would not shrink."""
        Feedback.check(self)
        traits = self.inner.traits
        if traits.feedback == "no" and not traits.rounds_only:
            raise OptionError(
                f"{traits.name}: ef=ef21 needs a compressor that always sends the larger part; {traits.name} is "
                "unbiased instead and needs no feedback"
            )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Compress the difference, and add what was sent to what is known."""
        before, known = self.estimate, self.shared
        difference = gradient if before is None else subtract(gradient, before)
        reduced = yield from self.inner.reduce(rank, difference)
        sent = reduced.sent()
        estimate = sent if before is None else add(before, sent)
        charge_passes(rank, estimate, 0 if before is None else 3)
        self.estimate, self.residual = estimate, subtract(difference, sent)

        def moved() -> Gradient:
            return reduced.mean if known is None else add(known, reduced.mean)

        self.shared = rank.replicated(moved) if self.inner.traits.agrees else moved()
        return Reduced(self.shared, sent=lambda: estimate)
