"""Pairs that are merged on their way: what is left of them, and gradients that are made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.elements.pairs import Pairs, read_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Mask
    from s2sim.gradients.gradient import Layer
    from s2sim.reducers.elements.pairs import PairsMessage

NO_PAIRS = Pairs(np.empty(0, np.int64), np.empty(0, np.float32))
"""A vector of zeros."""


def chosen(pairs: Pairs, which: Mask) -> Pairs:
    """Return those of some pairs that a mask, bool of shape (k,), names."""
    return Pairs(pairs.indices[which], pairs.values[which])


def among(pairs: Pairs, others: Pairs) -> Pairs:
    """Return those of ``pairs`` whose index ``others`` has too."""
    return chosen(pairs, np.isin(pairs.indices, others.indices, assume_unique=True))


def joined(parts: Sequence[Pairs]) -> Pairs:
    """Return the pairs of several ranges of a vector, one after the other."""
    return Pairs(
        np.concatenate([NO_PAIRS.indices, *(part.indices for part in parts)]),
        np.concatenate([NO_PAIRS.values, *(part.values for part in parts)]),
    )


def read_padded(message: PairsMessage) -> Pairs:
    """Return the pairs of a message without those of zero, which fill up where a size is fixed."""
    pairs = read_pairs(message)
    return chosen(pairs, pairs.values != 0)


def gradient_of(pairs: Pairs, like: Gradient) -> Gradient:
    """Return the gradient of these pairs, zero elsewhere; its layers are dense and row-sparse as those of ``like``."""
    ends = np.cumsum([0, *(layer.size for layer in like.layers)])
    return Gradient(like.names, tuple(map(_layer_of, pairs.split(ends), like.layers)))


def mean_of(pairs: Pairs, ranks: int, like: Gradient) -> Gradient:
    """Return the gradient of these sums over ranks divided by their number."""
    return gradient_of(Pairs(pairs.indices, pairs.values / np.float32(ranks)), like)


def _layer_of(pairs: Pairs, like: Layer) -> Layer:
    if not isinstance(like, RowSparse):
        dense = np.zeros(like.size, np.float32)
        dense[pairs.indices] = pairs.values
        return dense.reshape(like.shape)
    rows, columns = np.divmod(pairs.indices, max(like.width, 1))
    held, places = np.unique(rows, return_inverse=True)
    values = np.zeros((len(held), like.width), np.float32)
    values[places, columns] = pairs.values
    return RowSparse(held, values.reshape(len(held), *like.shape[1:]), like.shape)
