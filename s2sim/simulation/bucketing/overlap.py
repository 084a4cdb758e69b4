"""Buckets that leave during backward: of equal size as in DDP, and merged as in MG-WFBP."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from s2sim.errors import OptionError
from s2sim.options import Size, Time
from s2sim.simulation.bucketing.policy import Bucket, Discipline, Exchange, ReadyTensors, fill_buckets, finish_ps


@dataclass(frozen=True, slots=True)
class AfterBackward(Discipline):
    """One bucket with all gradients, once the last of them is ready."""

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

    minimums: ClassVar = {"bucket": 1}
    # What blocks of other gradients hold at least, in the order of readiness; EmbRace takes the model's own blocks
    bucket: Size = _BUCKET

    def buckets(self, tensors: ReadyTensors, exchange_ps: Exchange) -> tuple[Bucket, ...]:
        """Return the buckets; all that is not row-sparse has a priority behind 0, by its place in forward."""
        count, limit_bytes = len(tensors.bytes), self.bucket.bytes
        places = fill_buckets(tensors.bytes.tolist(), tensors.sparse, first_bytes=limit_bytes, limit_bytes=limit_bytes)
        return tuple(Bucket(each, 0 if tensors.sparse[each[0]] else count - each[-1]) for each in places)


# The authors measure 63 sizes from 32 KiB to 2 MiB; without noise a few of these do.
_FITTED_BYTES = (2**15, 2**19, 2**20, 2**21)


@dataclass(frozen=True, slots=True)
class MgWfbp(Discipline):
    """Waits for the next gradient where that is shorter than starting once more.

    Where an exchange of M bytes takes a + b M, a bucket that could leave at s takes in the next gradient, ready at r,
    if r - s < a (algorithm 1); it then may leave at r, once the bucket before it has arrived. Here a is the latency of
    the line through the times of a few sizes, unless ``latency`` says what a system believes.

    As far as times are on that line, all arrives no later than with per-tensor or after-backward. The rule is greedy,
    and not always the best merge: it judges each gradient by the one bucket before it. So it goes on waiting as long as
    each next gradient is near, and where a is long, as on many workers, what it merged may leave after backward.
    """

    # What merging is believed to save. The authors' benchmarks have a table: on 10 GbE 42us, 523us, 908us and 4.04ms
    # for 4, 8, 16 and 32 GPUs (github.com/HKBU-HPML/ddl-benchmarks).
    latency: Time | None = None

    def buckets(self, tensors: ReadyTensors, exchange_ps: Exchange) -> tuple[Bucket, ...]:
        """Return the buckets of the merge rule."""
        count = len(tensors.bytes)
        if not count:
            return ()
        start_ps, per_byte_ps = fit_line(exchange_ps)
        if self.latency is not None:
            start_ps = float(self.latency.ps)
        sizes_bytes, ready_ps = tensors.bytes.tolist(), tensors.ready_ps.tolist()
        cuts = [0]
        before_ps, leaves_ps, held_bytes = 0.0, float(ready_ps[0]), sizes_bytes[0]
        for place in range(1, count):
            if ready_ps[place] - leaves_ps >= start_ps:
                before_ps = leaves_ps + start_ps + per_byte_ps * held_bytes
                held_bytes = 0
                cuts.append(place)
            held_bytes += sizes_bytes[place]
            leaves_ps = max(before_ps, float(ready_ps[place]))
        return tuple(Bucket(tuple(range(first, behind))) for first, behind in pairwise((*cuts, count)))


def fit_line(exchange_ps: Exchange) -> tuple[float, float]:
    """Return the latency in picoseconds, and picoseconds a byte, of the line through the times of a few sizes.

    >>> fit_line(lambda size: 5_000_000 + 800 * size)
    (5000000.0, 800.0)
    """
    sizes = np.array(_FITTED_BYTES, float)
    times = np.array([exchange_ps(size) for size in _FITTED_BYTES], float)
    off = sizes - sizes.mean()
    per_byte_ps = float(off @ (times - times.mean()) / (off @ off))
    return max(round(float(times.mean() - per_byte_ps * sizes.mean()), 3), 0.0), max(round(per_byte_ps, 6), 0.0)


_LEAST = Size("1MB")
_TOLERANCE = Size("5MB")
_NEIGHBOUR = 0.1


@dataclass(frozen=True, slots=True)
class TopKA2AFusion(Discipline):
    """Buckets of one size, found by binary search from half the model on.

    Each step measures an iteration with the size in the middle of what is left, and with a smaller and a larger one a
    tenth of the model away, and goes on in the half of the better neighbour; the best size that was measured is taken.
    An iteration is measured as its exchanges do, dense and one at a time. The paper's own constants are not public:
    these are those of a re-implementation.
    """

    minimums: ClassVar = {"steps": 1, "least": 1}
    least: Size = _LEAST  # The smallest bucket that is tried
    tolerance: Size = _TOLERANCE  # How close the ends of what is left come before the search stops
    steps: int = 10  # How many there are at most

    def buckets(self, tensors: ReadyTensors, exchange_ps: Exchange) -> tuple[Bucket, ...]:
        """Return the buckets of the size that the search finds."""
        sizes_bytes = tensors.bytes.tolist()
        together = np.zeros(len(sizes_bytes), bool)
        model_bytes = sum(sizes_bytes)
        measured: dict[int, tuple[int, tuple[Bucket, ...]]] = {}

        def iteration_ps(size_bytes: int) -> int:
            if size_bytes not in measured:
                places = fill_buckets(sizes_bytes, together, first_bytes=size_bytes, limit_bytes=size_bytes)
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
