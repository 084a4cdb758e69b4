"""The buckets of PyTorch's DistributedDataParallel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from s2sim.errors import OptionError
from s2sim.options import Size
from s2sim.replay.iteration.disciplines.discipline import Bucket, Discipline
from s2sim.replay.iteration.disciplines.filling import filled

if TYPE_CHECKING:
    from s2sim.replay.iteration.disciplines.discipline import Exchange, ReadyTensors

_BUCKET = Size("25MiB")
_FIRST = Size("1MiB")


@dataclass(frozen=True, slots=True)
class Ddp(Discipline):
    """Buckets in the order of readiness, each closed by the gradient with which it reaches its limit.

    So it is from the second iteration on, for in the first one PyTorch sees that order. A bucket that reached its limit
    may be far larger than it. A row-sparse gradient is a bucket of its own, and the one that is being filled goes on
    behind it. PyTorch fills buckets by data type; here all gradients have one.

    Attributes
    ----------
    bucket : Size
        The limit (``bucket_cap_mb``).
    first : Size
        The limit of the first bucket, a small one, so that something leaves early; never more than ``bucket``.
    """

    name: ClassVar[str] = "ddp"
    summary: ClassVar[str] = "buckets in the order of readiness, each closed once it has reached its limit"
    source: ClassVar[str] = "Li et al., PyTorch Distributed, VLDB 2020"
    example: ClassVar[str] = "ddp:bucket=25MiB"

    bucket: Size = _BUCKET
    first: Size = _FIRST

    def __post_init__(self) -> None:
        for key, size in (("bucket", self.bucket), ("first", self.first)):
            if size.bytes == 0:
                raise OptionError(
                    f"ddp: {key}={size} holds nothing: at least 1B, or per-tensor for every one by itself"
                )
        if self.first != _FIRST and self.first.bytes > self.bucket.bytes:
            raise OptionError(f"ddp: first={self.first} is more than bucket={self.bucket}: at most as much")

    def buckets(self, tensors: ReadyTensors, exchange_ps: Exchange) -> tuple[Bucket, ...]:
        """Return the buckets by ``compute_bucket_assignment_by_size`` of c10d."""
        first_bytes, limit_bytes = min(self.first.bytes, self.bucket.bytes), self.bucket.bytes
        places = filled(tensors.bytes.tolist(), tensors.sparse, first_bytes=first_bytes, limit_bytes=limit_bytes)
        return tuple(map(Bucket, places))
