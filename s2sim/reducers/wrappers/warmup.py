"""Warm-up of density: early in training more is sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol, cast

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.options import check_options, option
from s2sim.reducers.rank import Program, Rank, Reducer, Traits
from s2sim.reducers.wrappers.error_feedback import Feedback
from s2sim.reducers.wrappers.wrapper import Wrapper, unwrap_all


class _HasDensity(Protocol):
    density: float


@dataclass(slots=True)
class DensityWarmup(Wrapper):
    """Any reducer with a density, which begins with a larger one. Written ``warmup=5``.

    Y. Lin et al., "Deep gradient compression", ICLR 2018, section 3.3. Rows of a run are those of the density that is
    reached; ``--steps`` shows the way there.
    """

    key = "warmup"
    warmup: int = option(5, "Epochs of it, W.")
    epoch: int = option(1, "Training steps an epoch.")
    ramp: Literal["exponential", "quarters"] = option(
        "exponential",
        "Density in epoch e < W: density^((e+1)/(W+1)), the rule of the authors' code; or 0.25^(e+1), but not less "
        "than the density itself, the list in their README and the paper (0.25, 0.063, 0.016, 0.004, 0.001).",
    )

    def check(self) -> None:
        """Refuse what has no density."""
        name = self.inner.traits.name
        check_options(self, name, warmup=1, epoch=1)
        if "density" not in self.inner.options():
            raise OptionError(f"{name}: warmup={self.warmup} changes a density, and {name} has none")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Reduce with this step's density."""
        inner = cast("_HasDensity", self.inner)
        reached = inner.density
        inner.density = self.density_at(rank.step, reached)
        try:
            return (yield from self.inner.reduce(rank, gradient))
        finally:
            inner.density = reached

    def density_at(self, step: int, reached: float) -> float:
        """Return the density of a step, from 0, on the way to the one that is reached."""
        epoch = step // self.epoch
        if epoch >= self.warmup:
            return reached
        if self.ramp == "quarters":
            return max(0.25 ** (epoch + 1), reached)
        return float(reached ** ((epoch + 1) / (self.warmup + 1)))

    @property
    def traits(self) -> Traits:
        """The inner reducer's, with what is added."""
        inner = self.inner.traits
        return replace(inner, summary=f"{inner.summary}; more of them in the first {self.warmup * self.epoch} steps")

    @property
    def settles_after(self) -> int:
        """The steps of the warm-up."""
        return max(self.warmup * self.epoch, self.inner.settles_after)


@dataclass(slots=True)
class WarmStart(Wrapper):
    """Any reducer that carries sizes over, as it runs in a later step. Written ``warm=true`` among its options.

    `s2sim.reducers.run.run_reducer` runs the step before it.
    """

    key = "warm"
    warm: bool = True

    def check(self) -> None:
        """Refuse what carries nothing over, and what is about residuals, which a later step would start without."""
        name = self.inner.traits.name
        fed_back = [each.option_text for each in unwrap_all(self.inner) if isinstance(each, Feedback)]
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
