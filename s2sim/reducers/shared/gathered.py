"""What the systems share that encode vectors in a form that no collective can sum."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Bits, Floats32, Ints
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.gradients.gradient import Gradient, to_dense
from s2sim.options import check_options
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.error_bound import ErrorBound
from s2sim.reducers.rank import Pending, Program, Rank, Reduced, Reducer
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.script import Work, chunk_bounds
from s2sim.seeds import named_generator


def layer_vectors(gradient: Gradient) -> list[Floats32]:
    """Return the elements of each layer, zeros included, float32 of shape (size of the layer,)."""
    return [to_dense(layer).reshape(-1) for layer in gradient.layers]


def flat_vector(gradient: Gradient) -> Floats32:
    """Return the elements of all layers, zeros included, one layer after the other, float32 of shape (n,)."""
    return np.concatenate([np.empty(0, np.float32), *layer_vectors(gradient)])


def from_layer_vectors(vectors: Sequence[Floats32], like: Gradient) -> Gradient:
    """Return the gradient whose layers have these elements, all dense; the inverse of `layer_vectors`."""
    return Gradient(
        like.names, tuple(vector.reshape(layer.shape) for vector, layer in zip(vectors, like.layers, strict=True))
    )


def from_flat_vector(vector: Floats32, like: Gradient) -> Gradient:
    """Return the gradient with these elements, all layers dense; the inverse of `flat_vector`."""
    ends = np.cumsum([layer.size for layer in like.layers], dtype=np.int64)
    return from_layer_vectors(np.split(vector, ends[:-1]) if len(ends) else [], like)


Message: TypeAlias = "tuple[NDArray[Any], ...]"
"""One encoded vector: arrays whose bytes travel."""

Aggregate: TypeAlias = Literal["gather", "two-phase", "server"]

SERVER = 0
"""The rank that is the server."""


class Gathered(Reducer):
    """A reducer that encodes each tensor by itself; the mean is that of what all ranks' messages decode to.

    Attributes
    ----------
    aggregate : {"gather", "two-phase", "server"}
        Every rank gathers all messages. Or chunk j of every tensor is encoded by itself and goes to rank j, which adds
        up what it decodes, encodes the sum once more and sends that to all: two losses, and bytes that hardly grow with
        the number of ranks (F. Seide et al., Interspeech 2014; the AllToAll communicator of GRACE). Or rank 0 does this
        for all, as a parameter server that is one of the ranks. What is lost the second time counts to the sum's owner.
    """

    __slots__ = ("_off",)
    aggregate: Aggregate
    # How far the last step's elements are off at most, by layer; unset before a step of which that is known.
    _off: tuple[float, ...]

    def __post_init__(self) -> None:
        check_options(self, self.about.name)

    @abstractmethod
    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return the message for a tensor's elements, float32 of shape (n,), n > 0."""

    @abstractmethod
    def decode(self, message: Message, elements: int) -> Floats32:
        """Return what a message for so many elements stands for, float32 of shape (elements,)."""

    def add(self, message: Message, total: Floats32) -> None:
        """Add what a message stands for to ``total``, float32 of shape (n,), n > 0."""
        np.add(total, self.decode(message, len(total)), out=total)

    def off(self, message: Message, elements: int) -> float | None:
        """Return how far any element may be, for certain, from what a message says of it; None if that is not known."""
        return None

    def vectors(self, gradient: Gradient) -> list[Floats32]:
        """Return what is encoded each by itself: every layer's elements."""
        return layer_vectors(gradient)

    def from_vectors(self, vectors: Sequence[Floats32], like: Gradient) -> Gradient:
        """Return the gradient of which `vectors` are these."""
        return from_layer_vectors(vectors, like)

    def decided(self, total: Floats32, ranks: int) -> Floats32:
        """Return what a tensor's sum over ranks comes to: the mean."""
        return total / np.float32(ranks)

    def lost_again(self, messages: Sequence[Message], sums: Sequence[Floats32]) -> list[Floats32]:
        """Return what an owner's sums have more than their messages."""
        kept = self.decode_all(messages, [len(total) for total in sums])
        return [total - decoded for total, decoded in zip(sums, kept, strict=True)]

    @property
    def known_size(self) -> bool:
        """Whether the length of a message follows from that of the vector; if not, the host waits for it."""
        return True

    def encode_work(self, elements: int, code_bytes: int) -> Work:
        """Return the cost of encoding so many elements of all tensors."""
        return cost.encode_values(elements, code_bytes)

    def decode_work(self, elements: int, messages: int, code_bytes: int) -> Work:
        """Return the cost of adding up messages for so many elements each."""
        return cost.add_codes(elements, messages, code_bytes)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Encode, gather, add up; or let owners or a server add up, encode the sums and send them to all."""
        if self.aggregate == "two-phase":
            return (yield from self._two_phase(rank, gradient))
        if self.aggregate == "server":
            return (yield from self._through_server(rank, gradient))
        vectors = self.vectors(gradient)
        sizes = list(map(len, vectors))
        own = self.encode_all(rank, vectors, "own")
        gathered = rank.all_gather(own, label="codes", size_from_data=not self.known_size)
        yield gathered
        self.charge_decode(rank, gathered.value, sizes)
        mean = rank.replicated(lambda: self._result(self._sum(gathered.value, sizes), rank.size, gradient))
        bounds = rank.replicated(lambda: self._bounds(gathered.value, sizes))
        if bounds is not None:
            self._off = bounds
        return Reduced(mean, sent=lambda: self.from_vectors(self.decode_all(own, sizes), gradient))

    def error_bound(self) -> ErrorBound | None:
        """Return the mean over ranks of what their messages may be off; None where a sum is encoded again."""
        if not hasattr(self, "_off"):
            return None
        return ErrorBound(self._off, relative=False, share=1.0, relative_l2=None, source=self.about.source)

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return all layers."""
        return tuple(range(len(gradient.layers)))

    def _two_phase(self, rank: Rank, gradient: Gradient) -> Program:
        vectors = self.vectors(gradient)
        cuts = [chunk_bounds(len(vector), rank.size) for vector in vectors]
        sizes = [[int(cut[owner + 1] - cut[owner]) for cut in cuts] for owner in range(rank.size)]
        own = self._encode_chunks(rank, vectors, cuts)
        first = rank.all_to_all(own, label="codes to owners", size_from_data=not self.known_size, unequal=True)
        yield first
        self.charge_decode(rank, first.value, sizes[rank.index])
        totals = self._sum(first.value, sizes[rank.index])
        again = self.encode_all(rank, totals, "sum")
        lost = self.lost_again(again, totals)
        second = rank.all_gather(again, label="codes of the sums", size_from_data=not self.known_size, unequal=True)
        yield second
        rank.work(self.decode_work(gradient.size, 1, sum(map(_bytes_of, second.value))))

        def decoded(messages: Iterable[Sequence[Message]]) -> list[list[Floats32]]:
            return [self.decode_all(message, size) for message, size in zip(messages, sizes, strict=True)]

        def sent() -> Gradient:
            parts = decoded(own)
            parts[rank.index] = [part - loss for part, loss in zip(parts[rank.index], lost, strict=True)]
            return self.from_vectors(_concatenate_chunks(parts), gradient)

        return Reduced(
            rank.replicated(lambda: self._result(_concatenate_chunks(decoded(second.value)), rank.size, gradient)), sent
        )

    def _encode_chunks(
        self, rank: Rank, vectors: Sequence[Floats32], cuts: Sequence[Ints]
    ) -> list[tuple[Message, ...]]:
        """Return the messages for each owner: one of its chunk of each vector."""
        chunks = [
            vector[cut[owner] : cut[owner + 1]]
            for owner in range(rank.size)
            for vector, cut in zip(vectors, cuts, strict=True)
        ]
        encoded = iter(self.encode_all(rank, chunks, "own"))
        return [tuple(islice(encoded, len(vectors))) for _ in range(rank.size)]

    def _through_server(self, rank: Rank, gradient: Gradient) -> Program:
        vectors = self.vectors(gradient)
        sizes = list(map(len, vectors))
        own = self.encode_all(rank, vectors, "own")
        serves = rank.index == SERVER
        first = rank.exchange(
            {} if serves else {SERVER: own}, label="codes to the server", size_from_data=not self.known_size
        )
        yield first
        again, lost = None, [np.zeros(1, np.float32)] * len(sizes)
        if serves:
            messages = [own, *first.value.values()]
            self.charge_decode(rank, messages, sizes)
            totals = self._sum(messages, sizes)
            again = self.encode_all(rank, totals, "sum")
            lost = self.lost_again(again, totals)
        arrived = yield from self.hand_out(rank, again)
        self.charge_decode(rank, [arrived], sizes)
        mean = rank.replicated(lambda: self._result(self.decode_all(arrived, sizes), rank.size, gradient))

        def sent() -> Gradient:
            parts = self.decode_all(own, sizes)
            return self.from_vectors([part - loss for part, loss in zip(parts, lost, strict=True)], gradient)

        return Reduced(mean, sent)

    def hand_out(
        self, rank: Rank, messages: tuple[Message, ...] | None
    ) -> Generator[Pending, None, tuple[Message, ...]]:
        """Return the server's messages on every rank; on others than the server ``messages`` is None."""
        sent = rank.broadcast(messages, root=SERVER, label="codes of the sum", size_from_data=not self.known_size)
        yield sent
        arrived: tuple[Message, ...] = sent.value
        return arrived

    def encode_all(self, rank: Rank, vectors: Sequence[Floats32], what: str) -> tuple[Message, ...]:
        """Return the messages of some vectors, those of empty ones without a byte, and charge the GPU for them."""
        random = named_generator(rank.seed, self.about.name, rank.step, rank.index, what)
        nothing: Message = ()
        if not all(map(len, vectors)):
            nothing = tuple(array[:0] for array in self.encode(np.zeros(1, np.float32), random))
        messages = [self.encode(vector, random) if len(vector) else nothing for vector in vectors]
        rank.work(self.encode_work(sum(map(len, vectors)), _bytes_of(messages)))
        return tuple(messages)

    def charge_decode(self, rank: Rank, messages: Sequence[Sequence[Message]], sizes: Sequence[int]) -> None:
        """Charge the GPU for decoding and adding up some ranks' messages."""
        rank.work(self.decode_work(sum(sizes), len(messages), sum(map(_bytes_of, messages))))

    def decode_all(self, messages: Sequence[Message], sizes: Sequence[int]) -> list[Floats32]:
        """Return what all messages of one rank stand for."""
        return [
            self.decode(message, size) if size else np.empty(0, np.float32)
            for message, size in zip(messages, sizes, strict=True)
        ]

    def _sum(self, messages: Sequence[Sequence[Message]], sizes: Sequence[int]) -> list[Floats32]:
        """Return the sums over ranks, in their order, in float32; `S2SimError` if one overflows."""
        totals = [np.zeros(size, np.float32) for size in sizes]
        with refuse_overflow():
            for own in messages:
                for total, message in zip(totals, own, strict=True):
                    if len(total):
                        self.add(message, total)
        return totals

    def _bounds(self, messages: Sequence[Sequence[Message]], sizes: Sequence[int]) -> tuple[float, ...] | None:
        """Return the mean of what ranks' messages may be off, for each layer that has elements."""
        bounds = []
        for of_layer, size in zip(zip(*messages, strict=True), sizes, strict=True):
            if size:
                each = [self.off(message, size) for message in of_layer]
                known = [bound for bound in each if bound is not None]
                if len(known) < len(each):
                    return None
                bounds.append(sum(known) / len(known))
        return tuple(bounds)

    def _result(self, totals: Sequence[Floats32], ranks: int, like: Gradient) -> Gradient:
        return self.from_vectors([self.decided(total, ranks) for total in totals], like)


def _concatenate_chunks(parts: Sequence[Sequence[Floats32]]) -> list[Floats32]:
    """Return each tensor's chunks as one vector."""
    return [np.concatenate(of_layer) for of_layer in zip(*parts, strict=True)]


def _bytes_of(messages: Sequence[Message]) -> int:
    return sum(array.nbytes for message in messages for array in message)


class Scattered(Gathered):
    """A reducer that sends some elements of each tensor, which are added where they belong."""

    __slots__ = ()

    @abstractmethod
    def read(self, message: Message, elements: int) -> tuple[NDArray[Any], Floats32 | np.float32]:
        """Return where the elements that a message holds are, each once, and their values, or the one of all."""

    def decode(self, message: Message, elements: int) -> Floats32:
        """Return the elements in their places, and zeros."""
        vector = np.zeros(elements, np.float32)
        at, values = self.read(message, elements)
        vector[at] = values
        return vector

    def add(self, message: Message, total: Floats32) -> None:
        """Add the elements alone."""
        at, values = self.read(message, len(total))
        total[at] += values

    @property
    def known_size(self) -> bool:
        """How many elements there are, or how long their positions, data decide."""
        return False


NumberFormat: TypeAlias = Literal["packed", "byte"]


def write_numbers(numbers: NDArray[Any], bits: int, wire: NumberFormat) -> Bits:
    """Return numbers below 2^bits, at most 8 bits each if ``wire`` is a byte, as they travel."""
    return pack_integers(numbers, bits) if wire == "packed" else numbers.astype(np.uint8, copy=False)


def read_numbers(written: Bits, bits: int, wire: NumberFormat, count: int) -> NDArray[Any]:
    """Return the ``count`` numbers that `write_numbers` wrote."""
    return unpack_integers(written, bits, count) if wire == "packed" else written


def write_signs(vector: Floats32, wire: NumberFormat) -> Bits:
    """Return which elements are not negative, as they travel: a bit has no third value, so zeros count as positive."""
    return write_numbers((vector >= 0).view(np.uint8), 1, wire)


def read_signs(
    written: Bits, wire: NumberFormat, count: int, *, negative: np.float32, positive: np.float32
) -> Floats32:
    """Return ``positive`` or ``negative`` for every sign that `write_signs` wrote, float32 of shape (count,)."""
    return np.where(read_numbers(written, 1, wire, count).view(np.bool_), positive, negative)
