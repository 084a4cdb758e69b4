"""Top-k sparsification: every rank sends its k largest elements to all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.bfloat16 import as_held, widen
from s2sim.codecs.hashing import check_key_space
from s2sim.codecs.top_k import as_pairs, elements_kept, select_top_k
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, RowSparse, stored
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.elements.flat import from_flat_vector
from s2sim.reducers.rank import Reduced, Reducer, Traits

if TYPE_CHECKING:
    from s2sim.arrays import Floats32, Ints, Words
    from s2sim.gradients.gradient import Layer
    from s2sim.reducers.rank import Program, Rank


@dataclass(slots=True)
class TopK(Reducer):
    """An all-gather of (index, value) pairs of the k elements of largest magnitude of the whole gradient.

    k is known in advance and the same on all ranks, so that no size is exchanged and no host waits for one.

    Attributes
    ----------
    density : float
        Fraction of the elements, zeros included, that each rank sends, in (0, 1].
    """

    density: float = 0.01

    about = Traits(
        name="topk",
        summary="an all-gather of each rank's k largest elements as index and value",
        source="Aji and Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP 2017",
        feedback="needed",
        formula="8k(P-1)",
        certainty="code read",
    )

    def __post_init__(self) -> None:
        if not 0 < self.density <= 1:
            raise OptionError(f"topk: density={self.density} is not above 0 and at most 1")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Select, gather, add all pairs up."""
        k = elements_kept(gradient.size, self.density)
        check_key_space(0, gradient.size)
        values = _stored(gradient)
        rank.work(cost.select(values.size, k))
        kept = select_top_k(values, min(k, len(values)))
        message = as_pairs(_positions(gradient, kept), values[kept], k)
        pairs = rank.all_gather((message["indices"], as_held(message["values"], self.held)), label="largest elements")
        yield pairs
        rank.work(cost.add_pairs(gradient.nbytes, rank.size * k))
        mean = rank.replicated(lambda: _mean(pairs.value, gradient))
        return Reduced(mean, sent=lambda: self._sent(rank, gradient, k))

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return all layers."""
        return tuple(range(len(gradient.layers)))

    def _sent(self, rank: Rank, gradient: Gradient, k: int) -> Gradient:
        rank.work(cost.keep_pairs(gradient.nbytes, k))
        values = _stored(gradient)
        kept = np.zeros_like(values)
        chosen = select_top_k(values, min(k, len(values)))
        kept[chosen] = widen(as_held(values[chosen], self.held))
        return _with_stored(gradient, kept)


def _stored(gradient: Gradient) -> Floats32:
    """Return the values that the layers store, one after the other; all else is zero."""
    return np.concatenate([np.empty(0, np.float32), *(stored(layer).reshape(-1) for layer in gradient.layers)])


def _positions(gradient: Gradient, places: Ints) -> Ints:
    """Return where in the whole flat gradient the stored values at some increasing ``places`` are."""
    parts, offset, start = [np.empty(0, np.int64)], 0, 0
    for layer in gradient.layers:
        stop = start + stored(layer).size
        own = places[slice(*np.searchsorted(places, (start, stop)))] - start
        if isinstance(layer, RowSparse):
            own = layer.rows[own // layer.width] * layer.width + own % layer.width
        parts.append(own + offset)
        offset, start = offset + layer.size, stop
    return np.concatenate(parts)


def _with_stored(gradient: Gradient, values: Floats32) -> Gradient:
    """Return ``gradient`` with other stored values, in the order in which `_stored` returns them."""
    layers: list[Layer] = []
    start = 0
    for layer in gradient.layers:
        old = stored(layer)
        new = values[start : start + old.size].reshape(old.shape)
        layers.append(layer.with_values(new) if isinstance(layer, RowSparse) else new)
        start += old.size
    return Gradient(gradient.names, tuple(layers))


def _mean(contributions: tuple[tuple[Words, Floats32], ...], like: Gradient) -> Gradient:
    flat = np.zeros(like.size, np.float32)
    for indices, values in contributions:
        np.add.at(flat, indices.astype(np.int64), widen(values))
    flat /= len(contributions)
    return from_flat_vector(flat, like)
