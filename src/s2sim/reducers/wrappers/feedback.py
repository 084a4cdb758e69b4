"""What the kinds of feedback share: where it makes sense, and what it holds back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, stored
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Conserves
from s2sim.reducers.wrappers.wrapper import Wrapper

if TYPE_CHECKING:
    from s2sim.reducers.rank import Rank, Traits


@dataclass(slots=True)
class Feedback(Wrapper):
    """A lossy reducer that gets, in later steps, what it failed to send in earlier ones.

    Attributes
    ----------
    adds : str
        What that is, for people: "error feedback".
    conserves : {"sum", "gradient", "nothing"}
        See `Traits`.
    residual : Gradient or None
        What this rank still holds back; None before the first step.
    """

    adds: ClassVar[str]
    conserves: ClassVar[Conserves] = "sum"
    residual: Gradient | None = field(init=False, repr=False, default=None)

    def check(self) -> None:
        """Refuse what loses nothing, has feedback already, or ends with something else than a mean."""
        traits = self.inner.traits
        name = traits.name
        if traits.lossless:
            raise OptionError(f"{name}: {self.asked} would change nothing, as {name} loses nothing")
        if isinstance(self.inner, Feedback):
            raise OptionError(f"{name}: {self.inner.asked} and {self.asked} are two kinds of feedback: give one")
        if traits.feedback == "own":
            raise OptionError(f"{name}: {self.asked} would be a second feedback, as {name} has its own")
        if traits.estimates != "mean":
            raise OptionError(
                f"{name}: {self.asked} needs what is lost of a gradient, and ranks end with {traits.estimates} here"
            )

    def check_delays(self) -> None:
        """Refuse to correct the delay of what needs no feedback."""
        traits = self.inner.traits
        if traits.feedback == "no":
            raise OptionError(
                f"{traits.name}: {self.asked} corrects what feedback delays, and {traits.name} needs none: leave "
                "momentum to the optimizer"
            )

    def held_back(self) -> Gradient | None:
        """Return the residual."""
        return self.residual

    @property
    def traits(self) -> Traits:
        """The inner reducer's, with feedback of its own."""
        inner = self.inner.traits
        return replace(inner, summary=f"{inner.summary}; with {self.adds}", feedback="own", conserves=self.conserves)


def charge_passes(rank: Rank, gradient: Gradient, passes: int = 1) -> None:
    """Charge the GPU for so many sums or differences of gradients such as this."""
    values = sum(stored(layer).size for layer in gradient.layers)
    for _ in range(passes):
        rank.work(cost.add(values))
