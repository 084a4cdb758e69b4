"""What the systems share that encode vectors in a form that no collective can sum."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from s2sim.options import check_options
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.elements.flat import from_layer_vectors, layer_vectors
from s2sim.reducers.rank import Reduced, Reducer
from s2sim.reducers.scripts.traffic import chunk_bounds
from s2sim.seeds import named_generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Floats32
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Program, Rank

Message: TypeAlias = "tuple[NDArray[Any], ...]"
"""One encoded vector: arrays whose bytes travel."""

Aggregate: TypeAlias = Literal["gather", "two-phase"]


class Gathered(Reducer):
    """A reducer that encodes each tensor by itself; the mean is that of what all ranks' messages decode to.

    Attributes
    ----------
    aggregate : {"gather", "two-phase"}
        Every rank gathers all messages; or chunk j of every tensor is encoded by itself and goes to rank j, which adds
        up what it decodes, encodes the sum once more and sends that to all: two losses, and bytes that hardly grow with
        the number of ranks (F. Seide et al., Interspeech 2014; the AllToAll communicator of GRACE). What is lost the
        second time counts to the sum's owner.
    """

    __slots__ = ()
    aggregate: Aggregate

    known_size: ClassVar[bool] = True
    """Whether the length of a message follows from that of the vector; if not, the host waits for it."""

    def __post_init__(self) -> None:
        check_options(self, self.about.name)

    @abstractmethod
    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return the message for a tensor's elements, float32 of shape (n,), n > 0."""

    @abstractmethod
    def decode(self, message: Message, elements: int) -> Floats32:
        """Return what a message for so many elements stands for, float32 of shape (elements,)."""

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Encode, gather, add up; or encode for the owners, add up, encode the sums, gather these."""
        if self.aggregate == "two-phase":
            return (yield from self._two_phase(rank, gradient))
        vectors = layer_vectors(gradient)
        own = self._encode_all(rank, vectors, "own")
        gathered = rank.all_gather(own, label="codes", size_from_data=not self.known_size)
        yield gathered
        sizes = [len(vector) for vector in vectors]
        self._charge_decode(rank, gathered.value, sum(sizes))

        def mean() -> Gradient:
            totals = self._sum(gathered.value, sizes)
            return from_layer_vectors([total / np.float32(rank.size) for total in totals], gradient)

        sent = lambda: from_layer_vectors(self._decode_all(own, sizes), gradient)  # noqa: E731  (it is an argument)
        return Reduced(rank.replicated(mean), sent)

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return all layers."""
        return tuple(range(len(gradient.layers)))

    def _two_phase(self, rank: Rank, gradient: Gradient) -> Program:
        vectors = layer_vectors(gradient)
        cuts = [chunk_bounds(len(vector), rank.size) for vector in vectors]

        def chunk(owner: int) -> list[Floats32]:
            return [vector[cut[owner] : cut[owner + 1]] for vector, cut in zip(vectors, cuts, strict=True)]

        sizes = [[int(cut[owner + 1] - cut[owner]) for cut in cuts] for owner in range(rank.size)]
        own = [self._encode_all(rank, chunk(owner), f"chunk {owner}") for owner in range(rank.size)]
        first = rank.all_to_all(own, label="codes to owners", size_from_data=not self.known_size)
        yield first
        self._charge_decode(rank, first.value, sum(sizes[rank.index]))
        totals = self._sum(first.value, sizes[rank.index])
        again = self._encode_all(rank, totals, "sum")
        second = rank.all_gather(again, label="codes of the sums", size_from_data=not self.known_size)
        yield second
        self._charge_decode(rank, second.value, sum(sizes[rank.index]))

        def joined(parts: Sequence[Sequence[Floats32]]) -> list[Floats32]:
            return [np.concatenate(of_layer) for of_layer in zip(*parts, strict=True)]

        def mean() -> Gradient:
            parts = [self._decode_all(message, size) for message, size in zip(second.value, sizes, strict=True)]
            return from_layer_vectors([total / np.float32(rank.size) for total in joined(parts)], gradient)

        def sent() -> Gradient:
            parts = [self._decode_all(message, size) for message, size in zip(own, sizes, strict=True)]
            arrived = self._decode_all(again, sizes[rank.index])
            parts[rank.index] = [
                part + (rounded - total)
                for part, rounded, total in zip(parts[rank.index], arrived, totals, strict=True)
            ]
            return from_layer_vectors(joined(parts), gradient)

        return Reduced(rank.replicated(mean), sent)

    def _encode_all(self, rank: Rank, vectors: Sequence[Floats32], what: str) -> tuple[Message, ...]:
        """Return the messages of some vectors, those of empty ones without a byte, and charge the GPU for them."""
        messages = []
        for index, vector in enumerate(vectors):
            random = named_generator(rank.seed, self.about.name, rank.step, rank.index, what, index)
            if len(vector):
                messages.append(self.encode(vector, random))
            else:
                messages.append(tuple(array[:0] for array in self.encode(np.zeros(1, np.float32), random)))
        rank.work(cost.encode_values(sum(map(len, vectors)), _bytes_of(messages)))
        return tuple(messages)

    def _charge_decode(self, rank: Rank, messages: Sequence[Sequence[Message]], elements: int) -> None:
        rank.work(cost.add_codes(elements, len(messages), sum(map(_bytes_of, messages))))

    def _decode_all(self, messages: Sequence[Message], sizes: Sequence[int]) -> list[Floats32]:
        """Return what all messages of one rank stand for."""
        return [
            self.decode(message, size) if size else np.empty(0, np.float32)
            for message, size in zip(messages, sizes, strict=True)
        ]

    def _sum(self, messages: Sequence[Sequence[Message]], sizes: Sequence[int]) -> list[Floats32]:
        """Return the sums over ranks, in their order, in float32."""
        totals = [np.zeros(size, np.float32) for size in sizes]
        for own in messages:
            for total, decoded in zip(totals, self._decode_all(own, sizes), strict=True):
                np.add(total, decoded, out=total)
        return totals


def _bytes_of(messages: Sequence[Message]) -> int:
    return sum(array.nbytes for message in messages for array in message)
