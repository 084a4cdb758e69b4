"""Simulated training iterations: where the time of each went, and what happened on every rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from s2sim.replay.communicator import Completed, Launch
    from s2sim.replay.faults.fault import Effect
    from s2sim.replay.iteration.parts import Parts
    from s2sim.replay.iteration.where import Spent


@dataclass(frozen=True, slots=True, eq=False)
class Iterations:
    """Training iterations in simulated time.

    Attributes
    ----------
    parts : tuple of Parts
        Where the time went on the slowest rank, one a period of the exchange; means over its steps.
    spent : Spent
        All that happened on that rank.
    by_rank : tuple of Spent
        The same of each rank; ranks that did the same share one.
    waiting_ps : float
        Mean over all ranks and iterations of waiting for others.
    launches, completed : tuples of Launch and Completed
        All that went onto the network, and the calls.
    effects : tuple of Effect
        What faults did that do not last from the start on.
    """

    parts: tuple[Parts, ...]
    spent: Spent
    by_rank: tuple[Spent, ...]
    waiting_ps: float
    launches: tuple[Launch, ...]
    completed: tuple[Completed, ...]
    effects: tuple[Effect, ...] = ()

    @property
    def typical(self) -> Parts:
        """That of the median length, of the steady state: the first is left out where there are several."""
        steady = self.parts[1:] or self.parts
        return sorted(steady, key=lambda parts: parts.iteration)[(len(steady) - 1) // 2]

    @property
    def spread_ps(self) -> tuple[float, float]:
        """The 5 and 95 % quantiles of the steady state's iterations."""
        steady = [parts.iteration for parts in self.parts[1:] or self.parts]
        low, high = np.quantile(steady, [0.05, 0.95])
        return float(low), float(high)
