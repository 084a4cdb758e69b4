"""A later step: a reducer that knows from the step before what its first step has to find out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from s2sim.errors import OptionError
from s2sim.reducers.wrappers.error_feedback import ErrorFeedback
from s2sim.reducers.wrappers.wrapper import Wrapper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Program, Rank


@dataclass(slots=True)
class Warm(Wrapper):
    """Any reducer that carries sizes over, as it runs in a later step. Written ``warm=true`` among its options.

    `s2sim.reducers.run.run_reducer` runs the step before it.
    """

    warm: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.inner, ErrorFeedback):
            raise OptionError(
                f"{self.inner.name}: warm=true starts without the residuals that ef=true is about: give one, or --steps"
            )
        if not self.inner.carries:
            raise OptionError(
                f"{self.inner.name}: warm=true would change nothing, as nothing is carried from step to step"
            )
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
    def summary(self) -> str:  # type: ignore[override]  # as in the class above
        """Summary of the inner reducer, with what is added."""
        return f"{self.inner.summary}; in a later step"

    def options(self) -> dict[str, Any]:
        """Return the inner reducer's options and ``warm``."""
        return self.inner.options() | {"warm": True}
