"""A later step: a reducer that knows from the step before what its first step has to find out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from s2sim.errors import OptionError
from s2sim.reducers.wrappers.error_feedback import ErrorFeedback
from s2sim.reducers.wrappers.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Program, Rank, Traits


@dataclass(slots=True)
class Warm(Wrapper):
    """Any reducer that carries sizes over, as it runs in a later step. Written ``warm=true`` among its options.

    `s2sim.reducers.run.run_reducer` runs the step before it.
    """

    def __post_init__(self) -> None:
        name = self.inner.traits.name
        if isinstance(self.inner, ErrorFeedback):
            raise OptionError(
                f"{name}: warm=true starts without the residuals that ef=true is about: give one, or --steps"
            )
        if not self.inner.traits.carries:
            raise OptionError(f"{name}: warm=true would change nothing, as nothing is carried from step to step")
        self.inner = self.inner.fresh()

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Reduce as the inner reducer does."""
        return (yield from self.inner.reduce(rank, gradient))

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> Warm:
        """Return a later step of what the inner reducer becomes."""
        return Warm(self.inner.fitted(gradients, seed))

    def fresh(self) -> Warm:
        """Return an instance without state."""
        return Warm(self.inner)

    def later_options(self) -> tuple[str, ...]:
        """Return none: this is a later step."""
        return ()

    @property
    def traits(self) -> Traits:
        """The inner reducer's, with what is added."""
        return replace(self.inner.traits, summary=f"{self.inner.traits.summary}; in a later step", warm=True)

    def options(self) -> dict[str, Any]:
        """Return the inner reducer's options and ``warm``."""
        return self.inner.options() | {"warm": True}
