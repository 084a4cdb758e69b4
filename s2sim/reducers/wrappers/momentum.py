"""Wrappers that change with the steps: momentum correction, global momentum, and warm-up."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any, Literal

import numpy as np

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, add, stored, subtract, to_dense
from s2sim.options import check_options, option
from s2sim.reducers.rank import Pending, Program, Rank, Reducer, Traits
from s2sim.reducers.wrappers.error_feedback import Feedback, charge_passes
from s2sim.reducers.wrappers.wrapper import Wrapper, unwrap_all


@dataclass(slots=True)
class GlobalMomentum(Feedback):
    """Any lossy reducer C with ``u = e + gradient - (gmc / rate)(w - w_before)``; ``c = C(u)``; ``e = u - c``.

    C. Shi et al., "Global momentum compression for sparse communication in distributed learning", arXiv:1905.12948
    (GMC), of which abstracts were read; algorithm and authors are recalled. As every rank takes ``w - rate mean(c)``,
    the model's difference is the last mean times the rate, and nothing more is sent: ``u = e + gradient + gmc mean``.
    The mean that comes out is what a plain step of SGD takes: momentum is in it already. Written ``gmc=0.9``.

    Attributes
    ----------
    gmc : float
        The momentum, beta in the paper, above 0 and below 1.
    last_mean : Gradient or None
        What the last step ended with.
    """

    key = "gmc"
    adds = "global momentum"
    conserves = "nothing"
    gmc: float = 0.9
    last_mean: Gradient | None = field(init=False, repr=False, default=None)

    def check(self) -> None:
        """Refuse also what nobody would correct."""
        Feedback.check(self)
        name = self.inner.traits.name
        if not 0 < self.gmc < 1:
            raise OptionError(f"{name}: gmc={self.gmc} is not between 0 and 1")
        self.check_delays()

    @property
    def momentum_within(self) -> float:
        """``gmc``."""
        return self.gmc

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Add the residual and the model's last step, reduce, keep what was not sent."""
        corrected = gradient
        if self.residual is not None and self.last_mean is not None:
            step = self.last_mean.map(lambda values: values * np.float32(self.gmc))
            corrected = add(add(gradient, self.residual), step)
            charge_passes(rank, corrected, 2)
        reduced = yield from self.inner.reduce(rank, corrected)
        self.residual, self.last_mean = subtract(corrected, reduced.sent()), reduced.mean
        charge_passes(rank, corrected)
        return reduced


@dataclass(slots=True)
class MomentumCorrection(Feedback):
    """Any lossy reducer that sends from ``v``, where ``u = momentum u + gradient`` and ``v = v + u``.

    Y. Lin et al., "Deep gradient compression", ICLR 2018: momentum correction and factor masking, which clears u and v
    where something was sent (GRACE's code was read, the paper is recalled). The mean is what a plain step of SGD takes:
    momentum is in it already. What a compressor rounds stays in v. Written ``momentum=0.9``.

    Attributes
    ----------
    momentum : float
        Above 0 and below 1.
    masking : bool
        Clear u where something was sent, so that it does not push on in a direction that is out of date.
    clip : float, optional
        L2 norm that gradients are scaled down to, if they are longer, before they are added: one of P ranks to
        clip / sqrt(P). Their length is the root of the mean square over ranks, which an all-reduce of one value tells
        (GRACE's code; the paper has each rank take its own).
    velocity : Gradient or None
        u; ``residual`` is v.
    """

    key = "momentum"
    adds = "momentum correction"
    conserves = "nothing"
    momentum: float = 0.9
    masking: bool = True
    clip: float | None = None
    velocity: Gradient | None = field(init=False, repr=False, default=None)

    def check(self) -> None:
        """Refuse also what nobody would correct, and masks that would clear everything."""
        Feedback.check(self)
        name = self.inner.traits.name
        if not 0 < self.momentum < 1:
            raise OptionError(f"{name}: momentum={self.momentum} is not between 0 and 1")
        if self.clip is not None and not self.clip > 0:
            raise OptionError(f"{name}: clip={self.clip} is not above 0")
        self.check_delays()
        if self.masking and "density" not in self.inner.options():
            raise OptionError(
                f"{name}: {self.option_text} would be cleared everywhere in every step, as {name} sends something of "
                f"every "
                "element: add masking=false"
            )

    @property
    def momentum_within(self) -> float:
        """``momentum``."""
        return self.momentum

    @property
    def traits(self) -> Traits:
        """Those of feedback; with a limit on the length of the whole gradient it is about all of it."""
        traits = super(MomentumCorrection, self).traits
        return traits if self.clip is None else replace(traits, scope="gradient")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Gather momentum, send from what has gathered, clear what was sent."""
        if self.clip is not None:
            gradient = yield from self._clipped(rank, gradient)
        velocity, waiting = gradient, gradient
        if self.velocity is not None and self.residual is not None:
            velocity = add(self.velocity.map(lambda values: values * np.float32(self.momentum)), gradient)
            waiting = add(self.residual, velocity)
            charge_passes(rank, waiting, 2)
        reduced = yield from self.inner.reduce(rank, waiting)
        sent = reduced.sent()
        self.residual = subtract(waiting, sent)
        self.velocity = velocity
        if self.masking:
            self.velocity = Gradient(velocity.names, tuple(map(_mask_sent, velocity.layers, sent.layers)))
        charge_passes(rank, waiting, 1 + self.masking)
        return reduced

    def _clipped(self, rank: Rank, gradient: Gradient) -> Generator[Pending, None, Gradient]:
        assert self.clip is not None
        own = sum(float(np.square(stored(layer), dtype=np.float64).sum()) for layer in gradient.layers)
        charge_passes(rank, gradient)
        total = rank.all_reduce(np.array([own]), label="squared norms")
        yield total
        length = sqrt(float(total.value[0]) / rank.size)
        limit = self.clip / sqrt(rank.size)
        return gradient.map(lambda values: values * np.float32(limit / length)) if length > limit else gradient


def _mask_sent(layer: Layer, sent: Layer) -> Layer:
    """Return a layer with zeros where ``sent`` is not zero."""
    if not isinstance(layer, RowSparse):
        return np.where(to_dense(sent) == 0, layer, np.float32(0))
    if not isinstance(sent, RowSparse):
        return layer.with_values(np.where(sent[layer.rows] == 0, layer.values, np.float32(0)))
    values = layer.values.copy()
    _, own, others = np.intersect1d(layer.rows, sent.rows, assume_unique=True, return_indices=True)
    values[own] = np.where(sent.values[others] == 0, values[own], np.float32(0))
    return layer.with_values(values)


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
        inner: Any = self.inner
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
