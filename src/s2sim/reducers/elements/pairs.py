"""Elements of a vector as pairs of index and value: how they travel, add up, and are cut into ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from s2sim.codecs.bfloat16 import as_held, widen
from s2sim.codecs.top_k import as_pairs, select_top_k
from s2sim.reducers.group.combine import refuse_overflow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Floats32, Ints, Words
    from s2sim.reducers.rank import Held

PairsMessage: TypeAlias = "tuple[Words, NDArray[Any]]"
"""Pairs as they travel: indices, uint32, and values of the type that training holds gradients in, of one length."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Some elements of a vector, of which all others are zero.

    Attributes
    ----------
    indices : int64 array, shape (k,)
        Where they are, strictly increasing.
    values : float32 array, shape (k,)
        What they are.
    """

    indices: Ints
    values: Floats32

    def __len__(self) -> int:
        return len(self.indices)

    def shifted(self, by: int) -> Pairs:
        """Return the same values, each so much further on."""
        return Pairs(self.indices + by, self.values)

    def split(self, cuts: Sequence[int] | Ints) -> list[Pairs]:
        """Return what lies in each range between two neighbours of ``cuts``, counted from the range's beginning."""
        bounds = np.searchsorted(self.indices, cuts).tolist()
        return [
            Pairs(self.indices[first:stop] - begin, self.values[first:stop])
            for first, stop, begin in zip(bounds, bounds[1:], cuts, strict=False)
        ]

    def largest(self, k: int) -> Pairs:
        """Return the ``k`` of largest magnitude, ties to the lower index; all where there are fewer."""
        if k >= len(self):
            return self
        kept = select_top_k(self.values, k)
        return Pairs(self.indices[kept], self.values[kept])

    def message(self, held: Held = "fp32", *, length: int | None = None) -> PairsMessage:
        """Return the pairs as they travel; pairs (0, 0.0) fill up to ``length`` where a size is fixed."""
        padded = as_pairs(self.indices, self.values, len(self) if length is None else length)
        return padded["indices"], as_held(padded["values"], held)


def read_pairs(message: PairsMessage) -> Pairs:
    """Return the pairs of a message without padding."""
    indices, values = message
    return Pairs(indices.astype(np.int64), widen(values))


def add_pairs(total: Floats32, messages: Iterable[PairsMessage]) -> Floats32:
    """Add the values of messages to a vector where they belong, in the messages' order, and return it."""
    for indices, values in messages:
        np.add.at(total, indices.astype(np.int64), widen(values))
    return total


def merge_pairs(parts: Sequence[Pairs]) -> Pairs:
    """Return the sum of several ranks' pairs, in float32 and in their order; `S2SimError` on overflow.

    >>> left, right = (Pairs(np.array(at), np.ones(2, np.float32)) for at in ([0, 3], [3, 5]))
    >>> merge_pairs([left, right])
    Pairs(indices=array([0, 3, 5]), values=array([1., 2., 1.], dtype=float32))
    """
    indices = np.concatenate([np.empty(0, np.int64), *(part.indices for part in parts)])
    order = np.argsort(indices, kind="stable")  # Several sorted runs, which this finds and merges.
    ordered = indices[order]
    first = np.diff(ordered, prepend=-1) != 0
    places = np.empty(len(indices), np.int64)
    places[order] = np.cumsum(first) - 1
    values = np.concatenate([np.empty(0, np.float32), *(part.values for part in parts)])
    total = np.zeros(int(np.count_nonzero(first)), np.float32)
    with refuse_overflow():
        np.add.at(total, places, values)
    return Pairs(ordered[first], total)
