"""EmbRace: what the next forward needs first goes first."""

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


@dataclass(frozen=True, slots=True)
class TwoPriorities(Discipline):
    """Row-sparse gradients before all others, and these as the next forward needs them; it does not wait for the rest.

    Every row-sparse gradient, that of an embedding with which forward begins, is a bucket of its own and goes as soon
    as it is ready. The others leave in blocks, and of those that are ready the one first that the next forward, which
    visits layers in the reverse order of readiness, needs first. What has begun is not interrupted. A layer of the next
    forward waits for its own parameters alone. EmbRace also splits an embedding's rows into those that the next batch
    touches and the rest, which may come later; here a gradient goes as a whole.

    Attributes
    ----------
    bucket : Size
        What blocks of other gradients hold at least, in the order of readiness; EmbRace takes the model's own blocks.
    """

    name: ClassVar[str] = "two-priorities"
    summary: ClassVar[str] = "embeddings first, then what the next forward needs first; it does not wait for the rest"
    source: ClassVar[str] = "EmbRace: Li et al., arXiv 2110.09132"
    example: ClassVar[str] = "two-priorities:bucket=25MiB"
    waits_for_all: ClassVar[bool] = False

    bucket: Size = _BUCKET

    def __post_init__(self) -> None:
        if self.bucket.bytes == 0:
            raise OptionError(f"two-priorities: bucket={self.bucket} holds nothing: at least 1B")

    def buckets(self, tensors: ReadyTensors, exchange_ps: Exchange) -> tuple[Bucket, ...]:
        """Return the buckets; all that is not row-sparse has a priority behind 0, by its place in forward."""
        count, limit_bytes = len(tensors.bytes), self.bucket.bytes
        places = filled(tensors.bytes.tolist(), tensors.sparse, first_bytes=limit_bytes, limit_bytes=limit_bytes)
        return tuple(Bucket(each, 0 if tensors.sparse[each[0]] else count - each[-1]) for each in places)
