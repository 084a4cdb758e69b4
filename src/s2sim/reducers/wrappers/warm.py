"""A later step: a reducer that knows from the step before what its first step has to find out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from s2sim.errors import OptionError
from s2sim.reducers.wrappers.feedback import Feedback
from s2sim.reducers.wrappers.wrapper import Wrapper, from_outside

if TYPE_CHECKING:
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Program, Rank, Reducer, Traits


@dataclass(slots=True)
class Warm(Wrapper):
    """Any reducer that carries sizes over, as it runs in a later step. Written ``warm=true`` among its options.

    `s2sim.reducers.run.run_reducer` runs the step before it.
    """

    key = "warm"
    warm: bool = True

    def check(self) -> None:
        """Refuse what carries nothing over, and what is about residuals, which a later step would start without."""
        name = self.inner.traits.name
        fed_back = [each.asked for each in from_outside(self.inner) if isinstance(each, Feedback)]
        if fed_back:
            raise OptionError(
                f"{name}: warm=true starts without the residuals that {fed_back[0]} is about: give one, or --steps"
            )
        if not self.inner.traits.carries:
            raise OptionError(f"{name}: warm=true would change nothing, as nothing is carried from step to step")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Reduce as the inner reducer does."""
        return (yield from self.inner.reduce(rank, gradient))

    def leaves_to(self, gradient: Gradient) -> Reducer | None:
        """Return what the inner reducer does: of what it leaves, it knows nothing in a later step."""
        return self.inner.leaves_to(gradient)

    def later_options(self) -> tuple[str, ...]:
        """Return none: this is a later step."""
        return ()

    @property
    def traits(self) -> Traits:
        """The inner reducer's, with what is added."""
        return replace(self.inner.traits, summary=f"{self.inner.traits.summary}; in a later step", warm=True)
