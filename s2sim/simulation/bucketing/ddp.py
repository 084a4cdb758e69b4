"""The buckets of PyTorch's DistributedDataParallel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from s2sim.errors import OptionError
from s2sim.options import Size
from s2sim.simulation.bucketing.policy import Bucket, Discipline, Exchange, ReadyTensors, fill_buckets


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


_BUCKET = Size("25MiB")
_FIRST = Size("1MiB")


@dataclass(frozen=True, slots=True)
class Ddp(Discipline):
    """Buckets in the order of readiness, each closed by the gradient with which it reaches its limit.

    So it is from the second iteration on, for in the first one PyTorch sees that order. A bucket that reached its limit
    may be far larger than it. A row-sparse gradient is a bucket of its own, and the one that is being filled goes on
    behind it. PyTorch fills buckets by data type; here all gradients have one.
    """

    name: ClassVar[str] = "ddp"
    summary: ClassVar[str] = "buckets in the order of readiness, each closed once it has reached its limit"
    source: ClassVar[str] = "Li et al., PyTorch Distributed, VLDB 2020"
    example: ClassVar[str] = "ddp:bucket=25MiB"

    bucket: Size = _BUCKET  # The limit (``bucket_cap_mb``)
    # The limit of the first bucket, a small one, so that something leaves early; never more than ``bucket``
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
        places = fill_buckets(tensors.bytes.tolist(), tensors.sparse, first_bytes=first_bytes, limit_bytes=limit_bytes)
        return tuple(map(Bucket, places))


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


@dataclass(frozen=True, slots=True)
class EmbracePriorities(Discipline):
    """Row-sparse gradients before all others, and these as the next forward needs them; it does not wait for the rest.

    Every row-sparse gradient, that of an embedding with which forward begins, is a bucket of its own and goes as soon
    as it is ready. The others leave in blocks, and of those that are ready the one first that the next forward, which
    visits layers in the reverse order of readiness, needs first. What has begun is not interrupted. A layer of the next
    forward waits for its own parameters alone. EmbRace also splits an embedding's rows into those that the next batch
    touches and the rest, which may come later; here a gradient goes as a whole.
    """

    name: ClassVar[str] = "two-priorities"
    summary: ClassVar[str] = "embeddings first, then what the next forward needs first; it does not wait for the rest"
    source: ClassVar[str] = "EmbRace: Li et al., arXiv 2110.09132"
    example: ClassVar[str] = "two-priorities:bucket=25MiB"
    waits_for_all: ClassVar[bool] = False

    # What blocks of other gradients hold at least, in the order of readiness; EmbRace takes the model's own blocks
    bucket: Size = _BUCKET

    def __post_init__(self) -> None:
        if self.bucket.bytes == 0:
            raise OptionError(f"two-priorities: bucket={self.bucket} holds nothing: at least 1B")

    def buckets(self, tensors: ReadyTensors, exchange_ps: Exchange) -> tuple[Bucket, ...]:
        """Return the buckets; all that is not row-sparse has a priority behind 0, by its place in forward."""
        count, limit_bytes = len(tensors.bytes), self.bucket.bytes
        places = fill_buckets(tensors.bytes.tolist(), tensors.sparse, first_bytes=limit_bytes, limit_bytes=limit_bytes)
        return tuple(Bucket(each, 0 if tensors.sparse[each[0]] else count - each[-1]) for each in places)
