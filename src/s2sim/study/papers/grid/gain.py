"""What one reducer gains over dense in one setting, and which of many gains count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Where:
    """A cluster by a short name, as a `RunSpec` has it."""

    name: str  # For people
    topology: str  # Name of a shipped topology
    overrides: tuple[str, ...] = ()  # ``field=value`` on its fields
    gpu: str | None = None  # Name in the hardware catalogue; None for the topology's


@dataclass(frozen=True, slots=True)
class Gain:
    """One reducer in one setting: a model, a mini-batch, a cluster and a number of workers."""

    # model, where, reducer: Names of the profile and the cluster, and the option string.
    model: str
    where: str
    reducer: str
    # batch, workers: Samples of one GPU's mini-batch, and ranks.
    batch: int
    workers: int
    # dense_s, time_s: Of an iteration with dense and with this reducer.
    dense_s: float
    time_s: float
    error: float | None  # Relative L2 error of the first step; None where it is not defined
    rejected: str | None  # Why this error cannot be trusted, as verdicts of runs say it; None where it can

    @property
    def speedup(self) -> float:
        """How many iterations fit into one of dense."""
        return self.dense_s / self.time_s

    @property
    def setting(self) -> tuple[str, int, str, int]:
        """What it was measured in, whatever the reducer."""
        return (self.model, self.batch, self.where, self.workers)

    def trusted(self, max_error: float | None = None) -> bool:
        """Return whether its error can be trusted and is at most so large."""
        if self.rejected is not None:
            return False
        return max_error is None or (self.error is not None and self.error <= max_error)


def wins(gains: Iterable[Gain], margin: float) -> list[Gain]:
    """Return those that make an iteration faster by more than a share of dense's speed.

    >>> one = Gain("m", "here", "fp16", 1, 8, dense_s=1.04, time_s=1.0, error=0.0, rejected=None)
    >>> len(wins([one], 0.01)), len(wins([one], 0.05))
    (1, 0)
    """
    return [gain for gain in gains if gain.speedup > 1 + margin]


def best_of(gains: Iterable[Gain]) -> dict[tuple[str, int, str, int], Gain]:
    """Return the fastest reducer of each setting."""
    found: dict[tuple[str, int, str, int], Gain] = {}
    for gain in gains:
        if gain.setting not in found or gain.speedup > found[gain.setting].speedup:
            found[gain.setting] = gain
    return found
