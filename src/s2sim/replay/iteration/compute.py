"""What a rank's GPU computes in one training iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from s2sim.arrays import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Compute:
    """Times of one rank's compute, alone on its GPU; tensors are in the order in which gradients become ready.

    Attributes
    ----------
    forward_ps, backward_ps : int64 array, shape (t,)
        Of each tensor's layer in forward, which visits them in reverse, and from the readiness of the gradient before
        it until its own in backward.
    optimizer_ps : int
        Once all gradients are reduced.
    memory_bound : float
        Share of compute time, from 0 to 1, in which the memory and not the arithmetic is busy.
    """

    forward_ps: Ints
    backward_ps: Ints
    optimizer_ps: int = 0
    memory_bound: float = 0.0
