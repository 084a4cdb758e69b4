"""The bucketing policy fusion-cycles: what becomes ready in one cycle leaves together, as in Horovod.

Source: A. Sergeev, M. Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", arXiv:1802.05799.
"""

from dataclasses import dataclass
from typing import ClassVar

from s2sim.errors import OptionError
from s2sim.options import Size, Time
from s2sim.simulation.bucketing.policy import Bucket, Discipline, Exchange, ReadyTensors

_CYCLE = Time("1ms")
_THRESHOLD = Size("128MiB")


@dataclass(frozen=True, slots=True)
class FusionCycles(Discipline):
    """Gradients that become ready in the same cycle are fused, up to a size; row-sparse ones go by themselves.

    Cycles are counted from the beginning of backward. A bucket leaves with its last gradient: that Horovod's background
    thread sleeps until the cycle ends, up to one cycle more, is not modelled. The defaults are Horovod's (recalled:
    ``HOROVOD_CYCLE_TIME``, ``HOROVOD_FUSION_THRESHOLD``).
    """

    name: ClassVar[str] = "fusion-cycles"
    summary: ClassVar[str] = "what becomes ready in one cycle leaves together, up to a size"
    source: ClassVar[str] = "Horovod, arXiv:1802.05799"
    example: ClassVar[str] = "fusion-cycles:cycle=1ms,threshold=128MiB"
    by_times: ClassVar[bool] = True  # Other rates of compute give other buckets.

    cycle: Time = _CYCLE
    threshold: Size = _THRESHOLD  # A larger gradient goes by itself

    def __post_init__(self) -> None:
        """Refuse cycles that never end, and buckets that hold nothing."""
        if self.cycle.ps == 0:
            raise OptionError(f"fusion-cycles: cycle={self.cycle} has no length: take per-tensor to fuse nothing")
        if self.threshold.bytes == 0:
            raise OptionError(f"fusion-cycles: threshold={self.threshold} holds nothing: at least 1B")

    def buckets(self, tensors: ReadyTensors, exchange_ps: Exchange) -> tuple[Bucket, ...]:
        """Return the buckets in the order in which they close."""
        cycles = (tensors.ready_ps // self.cycle.ps).tolist()
        closed: list[tuple[int, ...]] = []
        filling: list[int] = []
        held_bytes = 0
        for place, (size_bytes, alone) in enumerate(zip(tensors.bytes.tolist(), tensors.sparse.tolist(), strict=True)):
            if alone:
                closed.append((place,))
                continue
            if filling and (cycles[place] != cycles[filling[0]] or held_bytes + size_bytes > self.threshold.bytes):
                closed.append(tuple(filling))
                filling, held_bytes = [], 0
            filling.append(place)
            held_bytes += size_bytes
        return tuple(map(Bucket, [*closed, tuple(filling)] if filling else closed))
