"""Wrappers that change with the steps: local steps, a density that falls, and a later step."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, add, stored, zeros_like
from s2sim.options import check_options
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits
from s2sim.reducers.wrappers.error_feedback import Feedback
from s2sim.reducers.wrappers.wrapper import Wrapper, unwrap_all


@dataclass(slots=True)
class LocalSteps(Wrapper):
    """Any reducer once in ``h`` steps, of the sum of all gradients since it was last run. Written ``h=10``.

    With `dense` local SGD (S. U. Stich, "Local SGD converges fast and communicates little", ICLR 2019, algorithm 1):
    where plain SGD takes the steps, the mean of the models is the last common one less the learning rate times the mean
    of these sums. With ``after`` post-local SGD (T. Lin et al., "Don't use large mini-batches, use local SGD", ICLR
    2020, section 3). Around a compressor its residuals, momentum and options see the sums, as in SBC (F. Sattler et
    al., "Sparse Binary Compression", arXiv:1805.08768) and Qsparse-local-SGD (D. Basu et al., NeurIPS 2019). All
    recalled but for SBC, of which a summary was read.

    Between exchanges a rank ends with zeros: nothing that others know of has changed. Gradients are those of a trace
    in which ranks never drifted apart; what drifting does to training they cannot tell.
    """

    key = "h"
    intervals: ClassVar = {"after": "[0, inf)"}
    h: int = 10
    after: int = 0
    # Sum of this rank's gradients since the last exchange, and of how many
    gathered: Gradient | None = field(init=False, repr=False, default=None)
    waiting: int = field(init=False, repr=False, default=0)

    def check(self) -> None:
        name = self.inner.traits.name
        if self.h < 2:
            raise OptionError(f"{name}: h={self.h} would change nothing or do nothing: give 2 steps or more")
        if self.inner.traits.before_gradient:
            raise OptionError(
                f"{name}: what prefetch=true does before the gradient is there cannot be about the sum of {self.h} "
                "steps: give one of it and h"
            )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        total = gradient if self.gathered is None else add(self.gathered, gradient)
        self.waiting += 1
        if self.waiting < self.h and rank.step >= self.after:
            self.gathered = total
            zeros = rank.replicated(lambda: Gradient(gradient.names, tuple(map(zeros_like, gradient.layers))))
            return Reduced.of_step(zeros)
        if self.waiting > 1:
            # The model less that of the last exchange; the optimizer has added up.
            rank.work(cost.add(sum(stored(layer).size for layer in total.layers)))
        self.gathered, self.waiting = None, 0
        return (yield from self.inner.reduce(rank, total))

    @property
    def period(self) -> int:
        return self.h * self.inner.period

    @property
    def warmup_steps(self) -> int:
        """The steps that are all exchanged, or what the inner reducer needs."""
        return max(self.after, self.inner.warmup_steps)

    def held_back(self) -> Gradient | None:
        inner = self.inner.held_back()
        if inner is None or self.gathered is None:
            return self.gathered if inner is None else inner
        return add(self.gathered, inner)

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return all layers: in most steps none is exchanged."""
        return tuple(range(len(gradient.layers)))

    error_bound = Reducer.error_bound  # The inner one's is of the sum of some steps, of the layers that it compresses.

    @property
    def traits(self) -> Traits:
        inner = self.inner.traits
        when = f"; once in {self.h} steps, of their sum{f', from step {self.after} on' if self.after else ''}"
        return replace(
            inner,
            summary=inner.summary + when,
            baseline=False,
            lossless=False,
            rounds_only=False,
            estimates="weights" if inner.estimates == "mean" else inner.estimates,
            formula=f"({inner.formula})/{self.h}" if inner.formula else "",
            state_bytes=inner.state_bytes + cost.VALUE_BYTES,
        )


@dataclass(slots=True)
class DensityWarmup(Wrapper):
    """Any reducer with a density, which begins with a larger one. Written ``warmup=5``.

    Y. Lin et al., "Deep gradient compression", ICLR 2018, section 3.3. Rows of a run are those of the density that is
    reached; ``--steps`` shows the way there.
    """

    key = "warmup"
    warmup: int = 5
    epoch: int = 1
    ramp: Literal["exponential", "quarters"] = "exponential"

    def check(self) -> None:
        name = self.inner.traits.name
        check_options(self, name, warmup=1, epoch=1)
        if "density" not in self.inner.options():
            raise OptionError(f"{name}: warmup={self.warmup} changes a density, and {name} has none")

    def with_server_error(self) -> Self:
        return self.around(self.inner.with_server_error())

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        inner: Any = self.inner
        reached, epoch = inner.density, rank.step // self.epoch
        if epoch < self.warmup and self.ramp == "quarters":
            inner.density = max(0.25 ** (epoch + 1), reached)
        elif epoch < self.warmup:
            inner.density = float(reached ** ((epoch + 1) / (self.warmup + 1)))
        try:
            return (yield from self.inner.reduce(rank, gradient))
        finally:
            inner.density = reached

    @property
    def traits(self) -> Traits:
        inner = self.inner.traits
        return replace(inner, summary=f"{inner.summary}; more of them in the first {self.warmup * self.epoch} steps")

    @property
    def warmup_steps(self) -> int:
        return max(self.warmup * self.epoch, self.inner.warmup_steps)


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
        if fed_back := [each.option_text for each in unwrap_all(self.inner) if isinstance(each, Feedback)]:
            raise OptionError(
                f"{name}: warm=true starts without the residuals that {fed_back[0]} is about: give one, or --steps"
            )
        if not self.inner.traits.carries:
            raise OptionError(f"{name}: warm=true would change nothing, as nothing is carried from step to step")

    def fallback_for(self, gradient: Gradient) -> Reducer | None:
        """Return what the inner reducer does: of what it leaves, it knows nothing in a later step."""
        return self.inner.fallback_for(gradient)

    later_options = Reducer.later_options  # This is a later step.

    @property
    def traits(self) -> Traits:
        return replace(self.inner.traits, summary=f"{self.inner.traits.summary}; in a later step", warm=True)
