"""What the kinds of feedback share: where it makes sense, and what it holds back."""

from __future__ import annotations

from dataclasses import dataclass, field

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient  # noqa: TC001  (options are built from annotations)
from s2sim.reducers.wrappers.wrapper import Wrapper


@dataclass(slots=True)
class Feedback(Wrapper):
    """A lossy reducer that gets, in later steps, what it failed to send in earlier ones.

    Attributes
    ----------
    residual : Gradient or None
        What this rank still holds back; None before the first step.
    """

    residual: Gradient | None = field(init=False, repr=False, default=None)

    def check(self) -> None:
        """Refuse what loses nothing, and a second kind of feedback."""
        traits = self.inner.traits
        if traits.lossless:
            raise OptionError(f"{traits.name}: {self.asked} would change nothing, as {traits.name} loses nothing")
        if isinstance(self.inner, Feedback):
            raise OptionError(f"{traits.name}: {self.inner.asked} and {self.asked} are two kinds of feedback: give one")

    def held_back(self) -> Gradient | None:
        """Return the residual."""
        return self.residual
