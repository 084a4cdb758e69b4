"""Wait-free back-propagation: every gradient leaves by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from s2sim.replay.iteration.disciplines.discipline import Bucket, Discipline

if TYPE_CHECKING:
    from s2sim.replay.iteration.disciplines.discipline import Exchange, ReadyTensors


@dataclass(frozen=True, slots=True)
class PerTensor(Discipline):
    """Every gradient by itself as soon as it is ready."""

    name: ClassVar[str] = "per-tensor"
    summary: ClassVar[str] = "every gradient by itself as soon as it is ready (WFBP)"
    source: ClassVar[str] = "Zhang et al., Poseidon, USENIX ATC 2017"
    example: ClassVar[str] = "per-tensor"

    def buckets(self, tensors: ReadyTensors, exchange_ps: Exchange) -> tuple[Bucket, ...]:
        """Return a bucket for each."""
        return tuple(Bucket((place,)) for place in range(len(tensors.bytes)))
