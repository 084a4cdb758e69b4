"""No overlap: all gradients leave together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from s2sim.replay.iteration.disciplines.discipline import Bucket, Discipline

if TYPE_CHECKING:
    from s2sim.replay.iteration.disciplines.discipline import Exchange, ReadyTensors


@dataclass(frozen=True, slots=True)
class AfterBackward(Discipline):
    """One bucket with all gradients, once the last of them is ready."""

    name: ClassVar[str] = "after-backward"
    summary: ClassVar[str] = "all gradients at once when backward has ended: nothing overlaps"
    source: ClassVar[str] = "SyncEASGD: You, Buluc and Demmel, SC 2017"
    example: ClassVar[str] = "after-backward"

    def buckets(self, tensors: ReadyTensors, exchange_ps: Exchange) -> tuple[Bucket, ...]:
        """Return one bucket of everything."""
        return (Bucket(tuple(range(len(tensors.bytes)))),) if len(tensors.bytes) else ()
