"""Elements of a vector as pairs of index and value: messages, sums, ranges, and exchanges with owners of ranges."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Array, Floats32, Ints, Mask, Words
from s2sim.codecs import floats, top_k
from s2sim.gradients.gradient import Gradient, Layer, RowSparse
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import GradientDtype, Rank, Waits
from s2sim.reducers.reduction import refuse_overflow

PairsMessage: TypeAlias = "tuple[Words, Array]"
"""Pairs in a message: indices, uint32, and values of the gradient dtype, of one length."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Some elements of a vector; all others are zero."""

    indices: Ints  # Shape (k,), strictly increasing
    values: Floats32  # Shape (k,)

    def __len__(self) -> int:
        return len(self.indices)

    def shifted(self, by: int) -> "Pairs":
        """Return the same values at indices larger by ``by``."""
        return Pairs(self.indices + by, self.values)

    def split(self, cuts: Sequence[int] | Ints) -> "list[Pairs]":
        """Return the pairs in each range between neighbours of ``cuts``, with indices from the start of the range."""
        bounds = np.searchsorted(self.indices, cuts).tolist()
        return [
            Pairs(self.indices[first:stop] - begin, self.values[first:stop])
            for first, stop, begin in zip(bounds, bounds[1:], cuts, strict=False)
        ]

    def largest(self, k: int) -> "Pairs":
        """Return the ``k`` pairs of largest magnitude, ties to the lower index; all if there are fewer."""
        return self if k >= len(self) else select_pairs(self, top_k.select_top_k(self.values, k))

    def message(self, held: GradientDtype = "fp32", *, length: int | None = None) -> PairsMessage:
        """Return the message; pairs (0, 0.0) fill up to ``length`` if the size is fixed."""
        padded = top_k.to_pairs(self.indices, self.values, len(self) if length is None else length)
        return padded["indices"], floats.round_to_dtype(padded["values"], held)


def read_pairs(message: PairsMessage) -> Pairs:
    """Return the pairs of a message without padding."""
    indices, values = message
    return Pairs(indices.astype(np.int64), floats.widen(values))


def add_pairs(total: Floats32, messages: Iterable[tuple[NDArray[np.integer], Array]]) -> Floats32:
    """Add the values of messages to a vector at their indices, in the messages' order, and return it."""
    for indices, values in messages:
        np.add.at(total, indices.astype(np.int64), floats.widen(values))
    return total


def merge_pairs(parts: Sequence[Pairs]) -> Pairs:
    """Return the sum of several ranks' pairs, in float32 and in their order; `S2SimError` on overflow.

    >>> left, right = (Pairs(np.array(at), np.ones(2, np.float32)) for at in ([0, 3], [3, 5]))
    >>> merge_pairs([left, right])
    Pairs(indices=array([0, 3, 5]), values=array([1., 2., 1.], dtype=float32))
    """
    unsorted = concatenate_pairs(parts)
    order = np.argsort(unsorted.indices, kind="stable")  # Merges sorted runs.
    ordered = unsorted.indices[order]
    first = np.diff(ordered, prepend=-1) != 0
    positions = np.empty(len(order), np.int64)
    positions[order] = np.cumsum(first) - 1
    total = np.zeros(int(np.count_nonzero(first)), np.float32)
    with refuse_overflow():
        np.add.at(total, positions, unsorted.values)
    return Pairs(ordered[first], total)


NO_PAIRS = Pairs(np.empty(0, np.int64), np.empty(0, np.float32))
"""A vector of zeros."""


def select_pairs(pairs: Pairs, which: Mask | Ints) -> Pairs:
    """Return the pairs of a mask, bool of shape (k,), or at some positions."""
    return Pairs(pairs.indices[which], pairs.values[which])


def intersect_pairs(pairs: Pairs, others: Pairs) -> Pairs:
    """Return the ``pairs`` at indices that ``others`` has too."""
    return select_pairs(pairs, np.isin(pairs.indices, others.indices, assume_unique=True))


def concatenate_pairs(parts: Sequence[Pairs]) -> Pairs:
    """Return the concatenation of several pairs, usually of consecutive ranges of a vector."""
    return Pairs(
        np.concatenate([NO_PAIRS.indices, *(part.indices for part in parts)]),
        np.concatenate([NO_PAIRS.values, *(part.values for part in parts)]),
    )


def read_padded_pairs(message: PairsMessage) -> Pairs:
    """Return the pairs of a message without zeros, which fill up a fixed size."""
    pairs = read_pairs(message)
    return select_pairs(pairs, pairs.values != 0)


def pairs_to_gradient(pairs: Pairs, like: Gradient) -> Gradient:
    """Return the gradient of these pairs, zero elsewhere; its layers are dense and row-sparse as those of ``like``."""
    ends = np.cumsum([0, *(layer.size for layer in like.layers)])
    layers: list[Layer] = []
    for own, layer in zip(pairs.split(ends), like.layers, strict=True):
        if isinstance(layer, RowSparse):
            rows, columns = np.divmod(own.indices, max(layer.width, 1))
            stored, positions = np.unique(rows, return_inverse=True)
            values = np.zeros((len(stored), layer.width), np.float32)
            values[positions, columns] = own.values
            layers.append(RowSparse(stored, values.reshape(len(stored), *layer.shape[1:]), layer.shape))
        else:
            dense = np.zeros(layer.size, np.float32)
            dense[own.indices] = own.values
            layers.append(dense.reshape(layer.shape))
    return Gradient(like.names, tuple(layers))


def pairs_to_mean(pairs: Pairs, ranks: int, like: Gradient) -> Gradient:
    """Return the gradient of these sums over ranks divided by their number."""
    return pairs_to_gradient(Pairs(pairs.indices, pairs.values / np.float32(ranks)), like)


def send_to_owners(
    rank: Rank, parts: Sequence[Pairs], held: GradientDtype, *, calls: int = 1, size_from_data: bool
) -> Waits[Sequence[PairsMessage]]:
    """Send each rank the pairs of its range; return the received ones, by rank.

    With two ``calls``, indices are sent first, then values.
    """
    messages = [part.message(held) for part in parts]
    payloads = [messages] if calls == 1 else list(zip(*messages, strict=True))
    received = []
    for payload, what in zip(payloads, ["pairs"] if calls == 1 else ["indices", "values"], strict=True):
        # Values have the known lengths of the indices.
        from_data, label = size_from_data and what != "values", f"{what} to their owners"
        received.append((yield from rank.all_to_all(payload, label=label, size_from_data=from_data, unequal=True)))
    return received[0] if calls == 1 else list(zip(*received, strict=True))


def gather_dense_sums(rank: Rank, came: Sequence[PairsMessage], cuts: Ints, held: GradientDtype) -> Waits[Floats32]:
    """Add up the pairs received for this rank's range of ``cuts``; return the sums of all ranges, float32."""
    own = _dense_sum(rank, came, cuts)
    sums = yield from rank.all_gather(floats.round_to_dtype(own, held), label="dense sums", unequal=True)
    return rank.replicated(lambda: floats.widen(np.concatenate(sums)))


def _dense_sum(rank: Rank, came: Sequence[PairsMessage], cuts: Ints) -> Floats32:
    own = add_pairs(np.zeros(int(np.diff(cuts)[rank.index]), np.float32), came)
    rank.work(cost.add_pairs(own.nbytes, _count_pairs(came)))
    return own


def _count_pairs(messages: Sequence[PairsMessage]) -> int:
    return sum(len(indices) for indices, _ in messages)
