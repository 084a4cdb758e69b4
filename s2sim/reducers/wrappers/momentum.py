"""Momentum correction: residuals gather momentum, as the gradients in them would have in plain training."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from math import sqrt

import numpy as np

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, add, stored, subtract, to_dense
from s2sim.reducers.rank import Pending, Program, Rank, Traits
from s2sim.reducers.wrappers.error_feedback import Feedback, charge_passes


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
