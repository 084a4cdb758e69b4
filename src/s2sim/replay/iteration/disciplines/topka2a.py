"""The tensor fusion of TopKA2A: one size of buckets for the whole model, searched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2sim.errors import OptionError
from s2sim.options import Size, check_options
from s2sim.replay.iteration.disciplines.discipline import Bucket, Discipline
from s2sim.replay.iteration.disciplines.filling import filled
from s2sim.replay.iteration.disciplines.finish import finish_ps

if TYPE_CHECKING:
    from s2sim.replay.iteration.disciplines.discipline import Exchange, ReadyTensors

_LEAST = Size("1MB")
_TOLERANCE = Size("5MB")
# Left and right neighbours lie a tenth of the model away.
_NEIGHBOUR = 0.1


@dataclass(frozen=True, slots=True)
class TopKA2A(Discipline):
    """Buckets of one size, found by binary search from half the model on.

    Each step measures an iteration with the size in the middle of what is left, and with a smaller and a larger one a
    tenth of the model away, and goes on in the half of the better neighbour; the best size that was measured is taken.
    An iteration is measured as its exchanges do, dense and one at a time. The paper's own constants are not public:
    these are those of a re-implementation.

    Attributes
    ----------
    least : Size
        The smallest bucket that is tried.
    tolerance : Size
        How close the ends of what is left come before the search stops.
    steps : int
        How many there are at most.
    """

    name: ClassVar[str] = "topka2a"
    summary: ClassVar[str] = "buckets of one size, which a binary search finds by the iteration's time"
    source: ClassVar[str] = "Peng, Li, Shi and Li, ICPP 2024"
    example: ClassVar[str] = "topka2a:steps=10"

    least: Size = _LEAST
    tolerance: Size = _TOLERANCE
    steps: int = 10

    def __post_init__(self) -> None:
        check_options(self, self.name, steps=1)
        if self.least.bytes == 0:
            raise OptionError(f"topka2a: least={self.least} holds nothing: at least 1B")

    def buckets(self, tensors: ReadyTensors, exchange_ps: Exchange) -> tuple[Bucket, ...]:
        """Return the buckets of the size that the search finds."""
        sizes_bytes = tensors.bytes.tolist()
        together = np.zeros(len(sizes_bytes), bool)
        model_bytes = sum(sizes_bytes)
        measured: dict[int, tuple[int, tuple[Bucket, ...]]] = {}

        def iteration_ps(size_bytes: int) -> int:
            if size_bytes not in measured:
                places = filled(sizes_bytes, together, first_bytes=size_bytes, limit_bytes=size_bytes)
                buckets = tuple(map(Bucket, places))
                measured[size_bytes] = int(finish_ps(buckets, tensors, exchange_ps).max(initial=0)), buckets
            return measured[size_bytes][0]

        low_bytes, high_bytes = min(self.least.bytes, model_bytes), model_bytes
        for _ in range(self.steps):
            middle_bytes, away_bytes = (low_bytes + high_bytes) // 2, int(model_bytes * _NEIGHBOUR)
            left_ps = iteration_ps(max(middle_bytes - away_bytes, low_bytes))
            right_ps = iteration_ps(min(middle_bytes + away_bytes, high_bytes))
            iteration_ps(middle_bytes)
            if left_ps <= right_ps:
                high_bytes = middle_bytes
            else:
                low_bytes = middle_bytes
            if high_bytes - low_bytes <= self.tolerance.bytes:
                break
        return min(measured.values(), key=lambda found: found[0])[1]
