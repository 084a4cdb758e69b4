"""Local steps: ranks train by themselves and exchange what has come of several steps at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, add, stored, zeros_like
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import ErrorBound, Program, Rank, Reduced, Traits
from s2sim.reducers.wrappers.wrapper import Wrapper


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

    Attributes
    ----------
    h : int
        Steps from one exchange to the next, from 2.
    after : int
        Steps at the beginning in which every one is exchanged.
    gathered : Gradient or None
        Sum of this rank's gradients since the last exchange; ``waiting`` says of how many.
    """

    key = "h"
    h: int = 10
    after: int = 0
    gathered: Gradient | None = field(init=False, repr=False, default=None)
    waiting: int = field(init=False, repr=False, default=0)

    def check(self) -> None:
        """Refuse what would change nothing."""
        name = self.inner.traits.name
        if self.h < 2:
            raise OptionError(f"{name}: h={self.h} would change nothing or do nothing: give 2 steps or more")
        if self.inner.traits.before_gradient:
            raise OptionError(
                f"{name}: what prefetch=true does before the gradient is there cannot be about the sum of {self.h} "
                "steps: give one of it and h"
            )
        if self.after < 0:
            raise OptionError(f"{name}: after={self.after} is not a number of steps, from 0")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Add the gradient up; every h-th step reduce the sum."""
        total = gradient if self.gathered is None else add(self.gathered, gradient)
        self.waiting += 1
        if self.waiting < self.h and rank.step >= self.after:
            self.gathered = total
            nothing = rank.replicated(lambda: Gradient(gradient.names, tuple(map(zeros_like, gradient.layers))))
            return Reduced(nothing, sent=lambda: nothing)
        if self.waiting > 1:
            # The model less that of the last exchange; the optimizer has added up.
            rank.work(cost.add(sum(stored(layer).size for layer in total.layers)))
        self.gathered, self.waiting = None, 0
        return (yield from self.inner.reduce(rank, total))

    @property
    def period(self) -> int:
        """``h`` times the inner reducer's."""
        return self.h * self.inner.period

    @property
    def settles_after(self) -> int:
        """The steps that are all exchanged, or what the inner reducer needs."""
        return max(self.after, self.inner.settles_after)

    def held_back(self) -> Gradient | None:
        """Return what was gathered, and what the inner reducer holds back."""
        inner = self.inner.held_back()
        if inner is None or self.gathered is None:
            return self.gathered if inner is None else inner
        return add(self.gathered, inner)

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return all layers: in most steps none is exchanged."""
        return tuple(range(len(gradient.layers)))

    def error_bound(self) -> ErrorBound | None:
        """Return none: the inner reducer's is about the sum of some steps, of those layers that it compresses."""
        return None

    @property
    def traits(self) -> Traits:
        """The inner reducer's, of models that drift apart in between."""
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
        )
