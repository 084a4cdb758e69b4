"""Base classes of reducers that encode vectors in a form that no collective can sum."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, islice
from typing import Literal, Self, TypeAlias

import numpy as np

from s2sim.arrays import Array, Bits, Floats32, split_sizes
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.gradients.gradient import Gradient, RowSparse, to_dense
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import ErrorBound, PostOptions, Program, Rank, Reduced, Reducer, Waits
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.script import Work, chunk_bounds
from s2sim.seeds import named_generator


def layer_vectors(gradient: Gradient) -> list[Floats32]:
    """Return the elements of each layer, zeros included, float32 of shape (size of the layer,)."""
    return [to_dense(layer).reshape(-1) for layer in gradient.layers]


def flat_vector(gradient: Gradient, least: int = 0) -> Floats32:
    """Return all elements of all layers, float32 of shape (n,), or of shape (``least``,) with zeros at the end."""
    vector = np.zeros(max(gradient.size, least), np.float32)
    start = 0
    for layer in gradient.layers:
        part = vector[start : start + layer.size].reshape(layer.shape)
        if isinstance(layer, RowSparse):
            part[layer.rows] = layer.values
        else:
            part[...] = layer
        start += layer.size
    return vector


def from_layer_vectors(vectors: Sequence[Floats32], like: Gradient) -> Gradient:
    """Return the gradient of dense layers with these elements; the inverse of `layer_vectors`."""
    layers = (vector.reshape(layer.shape) for vector, layer in zip(vectors, like.layers, strict=True))
    return Gradient(like.names, tuple(layers))


def from_flat_vector(vector: Floats32, like: Gradient) -> Gradient:
    """Return the gradient of dense layers with these elements; the inverse of `flat_vector`."""
    return from_layer_vectors(split_sizes(vector, (layer.size for layer in like.layers)), like)


Message: TypeAlias = tuple[Array, ...]
"""One encoded vector: the arrays that are sent."""

_Messages: TypeAlias = tuple[Message, ...]

Aggregate: TypeAlias = Literal["gather", "two-phase", "server"]

SERVER = 0
"""Rank of the server."""


@dataclass(slots=True)
class _SumsEncodedAgain(Reducer):
    """State of a reducer whose sums are encoded again: what their owner loses, zeros in chunks of other owners."""

    keeps_server_error: bool = field(init=False, repr=False, compare=False, default=False, metadata={"fitted": True})
    server_error: Gradient | None = field(init=False, repr=False, default=None)

    def with_server_error(self) -> Self:
        return self.variant(keeps_server_error=True)

    def held_back(self) -> Gradient | None:
        return self.server_error


class Gathered(_SumsEncodedAgain):
    """A reducer that encodes each tensor by itself; the mean is that of what all ranks' messages decode to.

    How they meet, ``aggregate``, is told in ``options.toml``, with sources.
    """

    __slots__ = ("_off",)
    compresses_all = True
    aggregate: Aggregate
    # Bounds on the error of the last step's elements, by layer; unset until they are known.
    _off: tuple[float, ...]

    @abstractmethod
    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return the message for a tensor's elements, float32 of shape (n,), n > 0."""

    @abstractmethod
    def decode(self, message: Message, elements: int) -> Floats32:
        """Return the decoded values of a message for ``elements`` elements, float32 of shape (elements,)."""

    def add(self, message: Message, total: Floats32) -> None:
        """Add the decoded values of a message to ``total``, float32 of shape (n,), n > 0."""
        np.add(total, self.decode(message, len(total)), out=total)

    def encode_each(self, vectors: Sequence[Floats32], random: np.random.Generator) -> list[Message]:
        """Return the messages of some vectors, none of them empty, as `encode` does one after another."""
        return [self.encode(vector, random) for vector in vectors]

    def decode_each(self, messages: Sequence[Message], sizes: Sequence[int]) -> list[Floats32]:
        """Return the vectors of some messages, none of them empty, as `decode` does one after another."""
        return list(map(self.decode, messages, sizes))

    def add_each(self, messages: Sequence[Message], totals: Sequence[Floats32]) -> None:
        """Add the vectors of some messages, none of them empty, each to a total of its own, as `add` does."""
        for message, total in zip(messages, totals, strict=True):
            self.add(message, total)

    def off(self, message: Message, elements: int) -> float | None:
        """Return a bound on the difference of an element from its decoded value; None if not known."""
        return None

    def vectors(self, gradient: Gradient) -> list[Floats32]:
        """Return the vectors that are encoded separately: each layer's elements."""
        return layer_vectors(gradient)

    def from_vectors(self, vectors: Sequence[Floats32], like: Gradient) -> Gradient:
        """Return the gradient of these vectors; the inverse of `vectors`."""
        return from_layer_vectors(vectors, like)

    def decided(self, total: Floats32, ranks: int) -> Floats32:
        """Return the result for a tensor's sum over ranks: the mean."""
        return total / np.float32(ranks)

    @property
    def known_size(self) -> bool:
        """Whether a message's length follows from the vector's; if not, the host waits for it."""
        return True

    @property
    def size_only(self) -> bool:
        """Whether messages have known lengths, and no rank is a server."""
        return self.known_size and self.aggregate != "server"

    def encode_work(self, elements: int, code_bytes: int) -> Work:
        """Return the cost of encoding ``elements`` elements of all tensors."""
        return cost.encode_values(elements, code_bytes)

    def decode_work(self, elements: int, messages: int, code_bytes: int) -> Work:
        """Return the cost of adding up ``messages`` messages for ``elements`` elements each."""
        return cost.add_codes(elements, messages, code_bytes)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Encode, gather, add up; or let owners or a server add up, encode the sums and send them to all."""
        if self.aggregate != "gather":
            return (yield from self._sum_at_owners(rank, gradient))
        vectors = self.vectors(gradient)
        sizes = list(map(len, vectors))
        own = self.encode_all(rank, vectors, "own")
        # Other ranks run before this one goes on.
        del vectors
        gathered = yield from rank.all_gather(own, label="codes", size_from_data=not self.known_size)
        self.charge_decode(rank, gathered, sizes)
        summed = gathered[:1] if _for_shapes(rank) else gathered
        mean = rank.replicated(lambda: self._result(self._sum(summed, sizes), rank.size, gradient))
        if (bounds := rank.replicated(lambda: self._bounds(gathered, sizes))) is not None:
            self._off = bounds
        return Reduced(mean, sent=lambda: self.from_vectors(self.decode_all(own, sizes), gradient))

    def error_bound(self) -> ErrorBound | None:
        """Return the mean over ranks of the bounds of their messages; None if a sum is encoded again."""
        if not hasattr(self, "_off"):
            return None
        return ErrorBound(self._off, relative=False, share=1.0, relative_l2=None, source=self.about.source)

    def _sum_at_owners(self, rank: Rank, gradient: Gradient) -> Program:
        """Let the owner of each chunk add up and encode the sums; a server owns all of them."""
        server, from_data = self.aggregate == "server", not self.known_size
        # Chunks by owner, one of each vector, and their sizes and messages.
        owners, at = (1, 0) if server else (rank.size, rank.index)
        chunks = self._by_owner(gradient, owners)
        sizes = [list(map(len, parts)) for parts in chunks]
        encoded = iter(self.encode_all(rank, list(chain.from_iterable(chunks)), "own"))
        own = [tuple(islice(encoded, len(parts))) for parts in chunks]
        # Other ranks run before this one goes on.
        del chunks
        serves = rank.index == SERVER
        if server:
            sent = {} if serves else {SERVER: own[0]}
            first = yield from rank.exchange(sent, label="codes to the server", size_from_data=from_data)
        else:
            first = yield from rank.all_to_all(own, label="codes to owners", size_from_data=from_data, unequal=True)

        again: _Messages | None = None
        lost: list[Floats32] = []
        if serves or not server:
            messages = [own[0], *first.values()] if server else first
            self.charge_decode(rank, messages, sizes[at])
            totals = self._sum(messages[:1] if _for_shapes(rank) else messages, sizes[at])
            owed = [] if self.server_error is None else self._by_owner(self.server_error, owners)[at]
            if owed:
                rank.work(cost.add(sum(sizes[at])))
                with refuse_overflow():
                    totals = list(map(np.add, totals, owed))
            again = self.encode_all(rank, totals, "sum")
            if self.about.estimates == "mean":  # A vote that is lost is not given again.
                lost = list(map(np.subtract, totals, self.decode_all(again, sizes[at])))
            if self.keeps_server_error:
                rank.work(cost.add(sum(sizes[at])))
                whole = [np.zeros(count, np.float32) for count in map(sum, zip(*sizes, strict=True))]
                for vector, part in zip(whole, lost, strict=True):
                    start, stop = chunk_bounds(len(vector), owners)[at : at + 2]
                    vector[start:stop] = part
                self.server_error = self.from_vectors(whole, gradient)
                lost = list(map(np.subtract, lost, owed)) if owed else lost
        if server:
            arrived: Sequence[_Messages] = [(yield from self.hand_out(rank, again))]
        else:
            assert again is not None
            label = "codes of the sums"
            arrived = yield from rank.all_gather(again, label=label, size_from_data=from_data, unequal=True)
        rank.work(self.decode_work(gradient.size, 1, sum(map(_bytes_of, arrived))))

        def joined(messages: Iterable[Sequence[Message]], loss: Sequence[Floats32] = ()) -> list[Floats32]:
            parts = [self.decode_all(message, size) for message, size in zip(messages, sizes, strict=True)]
            if loss:
                parts[at] = list(map(np.subtract, parts[at], loss))
            return [np.concatenate(of_layer) for of_layer in zip(*parts, strict=True)]

        mean = rank.replicated(lambda: self._result(joined(arrived), rank.size, gradient))
        decoded = (lambda: self.from_vectors(joined(own), gradient)) if self.keeps_server_error else None
        return Reduced(mean, lambda: self.from_vectors(joined(own, lost), gradient), decoded)

    def _by_owner(self, gradient: Gradient, owners: int) -> list[list[Floats32]]:
        vectors = [np.split(vector, chunk_bounds(len(vector), owners)[1:-1]) for vector in self.vectors(gradient)]
        return [[parts[owner] for parts in vectors] for owner in range(owners)]

    def hand_out(self, rank: Rank, messages: _Messages | None) -> Waits[_Messages]:
        """Return the server's messages on all ranks; ``messages`` is None except on the server."""
        how = PostOptions(label="codes of the sum", size_from_data=not self.known_size)
        arrived: _Messages = yield from rank.broadcast(messages, root=SERVER, **how)
        return arrived

    def encode_all(self, rank: Rank, vectors: Sequence[Floats32], what: str) -> tuple[Message, ...]:
        """Return the messages of some vectors, of no bytes for empty ones, and charge the GPU for them."""
        random = named_generator(rank.seed, self.about.name, rank.step, rank.index, what)
        nothing: Message = ()
        if not all(map(len, vectors)):
            nothing = tuple(array[:0] for array in self.encode(np.zeros(1, np.float32), random))
        # Vectors of one length have messages of one length, which is all that a rank for shapes reads.
        encoded = {len(vector): vector for vector in vectors} if _for_shapes(rank) else dict(enumerate(vectors))
        filled = [key for key, vector in encoded.items() if len(vector)]
        known = dict.fromkeys(encoded, nothing)
        known.update(zip(filled, self.encode_each([encoded[key] for key in filled], random), strict=True))
        messages = [known[len(vector) if _for_shapes(rank) else place] for place, vector in enumerate(vectors)]
        rank.work(self.encode_work(sum(map(len, vectors)), _bytes_of(messages)))
        return tuple(messages)

    def charge_decode(self, rank: Rank, messages: Sequence[Sequence[Message]], sizes: Sequence[int]) -> None:
        """Charge the GPU for decoding and adding up some ranks' messages."""
        rank.work(self.decode_work(sum(sizes), len(messages), sum(map(_bytes_of, messages))))

    def decode_all(self, messages: Sequence[Message], sizes: Sequence[int]) -> list[Floats32]:
        """Return the decoded vectors of one rank's messages."""
        parts = iter(self.decode_each(list(compress(messages, sizes)), list(filter(None, sizes))))
        return [next(parts) if size else np.empty(0, np.float32) for size in sizes]

    def _sum(self, messages: Sequence[Sequence[Message]], sizes: Sequence[int]) -> list[Floats32]:
        """Return the sums over ranks, in their order, in float32; `S2SimError` if one overflows."""
        totals = [np.zeros(size, np.float32) for size in sizes]
        with refuse_overflow():
            for own in messages:
                self.add_each(list(compress(own, sizes)), list(compress(totals, sizes)))
        return totals

    def _bounds(self, messages: Sequence[Sequence[Message]], sizes: Sequence[int]) -> tuple[float, ...] | None:
        """Return the mean over ranks of their messages' bounds, for each layer with elements; None if unknown."""
        bounds = []
        for of_layer, size in zip(zip(*messages, strict=True), sizes, strict=True):
            known = [bound for message in of_layer if size and (bound := self.off(message, size)) is not None]
            if size and len(known) < len(of_layer):
                return None
            bounds += [sum(known) / len(known)] if size else []
        return tuple(bounds)

    def _result(self, totals: Sequence[Floats32], ranks: int, like: Gradient) -> Gradient:
        return self.from_vectors([self.decided(total, ranks) for total in totals], like)


def _for_shapes(rank: Rank) -> bool:
    """Return whether a rank reads no values, as `s2sim.reducers.run.SymmetricRank`."""
    return getattr(rank, "for_shapes", False)


def _bytes_of(messages: Sequence[Message]) -> int:
    return sum(array.nbytes for message in messages for array in message)


class Scattered(Gathered):
    """A reducer that sends some elements of each tensor with their positions."""

    __slots__ = ()

    @abstractmethod
    def read(self, message: Message, elements: int) -> tuple[Array, Floats32 | np.float32]:
        """Return the distinct positions of a message's elements, and their values or the common value."""

    def decode(self, message: Message, elements: int) -> Floats32:
        vector = np.zeros(elements, np.float32)
        positions, values = self.read(message, elements)
        vector[positions] = values
        return vector

    def add(self, message: Message, total: Floats32) -> None:
        positions, values = self.read(message, len(total))
        total[positions] += values

    known_size = False  # The number of elements, or the length of their positions, is data-dependent.


NumberFormat: TypeAlias = Literal["packed", "byte"]


def write_numbers(numbers: Array, bits: int, wire: NumberFormat) -> Bits:
    """Return the encoding of numbers below 2^bits: packed, or in a byte each for at most 8 bits."""
    return pack_integers(numbers, bits) if wire == "packed" else numbers.astype(np.uint8, copy=False)


def read_numbers(written: Bits, bits: int, wire: NumberFormat, count: int) -> Array:
    """Return the ``count`` numbers that `write_numbers` wrote."""
    return unpack_integers(written, bits, count) if wire == "packed" else written


def write_signs(vector: Floats32, wire: NumberFormat) -> Bits:
    """Return the encoding of a mask of the elements that are not negative: zeros count as positive."""
    return write_numbers((vector >= 0).view(np.uint8), 1, wire)


def read_signs(
    written: Bits, wire: NumberFormat, count: int, *, negative: np.float32, positive: np.float32
) -> Floats32:
    """Return ``positive`` or ``negative`` for each sign of `write_signs`, float32 of shape (count,)."""
    return np.where(read_numbers(written, 1, wire, count).view(np.bool_), positive, negative)
