"""Global momentum: residuals of gradients that follow the model's last step, which all ranks share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, add, subtract
from s2sim.reducers.wrappers.feedback import Feedback, charge_passes

if TYPE_CHECKING:
    from s2sim.reducers.rank import Program, Rank


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
