"""Selection of the largest elements, of the whole gradient or of each layer.

Elements are numbered through all layers. Rows that a layer does not store are zero and are not read.
"""

from functools import partial
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np

from s2sim.arrays import Floats32, Ints
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.hashing import check_key_space
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, stored
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Rank, Reducer
from s2sim.reducers.shared.pairs import NO_PAIRS, Pairs, concatenate_pairs, pairs_to_gradient

STRIDE = 100
"""Distance of sampled elements."""

_LOWER, _UPPER = 0.8, 1.3
_ITERATIONS = 10


def select_sampled(values: Floats32, k: int) -> tuple[Ints, int]:
    """Return the indices of at most ``k`` elements of large magnitude, int64, increasing, and the number of passes.

    As in github.com/synxlin/deep-gradient-compression (the bounds were read, their use is recalled): an equal share of
    a strided sample reaches the threshold. It falls by a factor 0.8 while fewer than 0.8 k elements reach it; of more
    than 1.3 k the k largest are taken, else the first k.
    """
    magnitudes = np.abs(values)
    sample = magnitudes[::STRIDE]
    if k == 0 or not len(sample):
        return np.empty(0, np.int64), 0
    threshold = sample[select_top_k(sample, elements_kept(len(sample), k / len(values)))].min()
    passes = 1
    chosen = np.flatnonzero(magnitudes >= threshold)
    while len(chosen) < _LOWER * k and passes < _ITERATIONS:
        threshold *= np.float32(_LOWER)
        chosen = np.flatnonzero(magnitudes >= threshold)
        passes += 1
    if len(chosen) > _UPPER * k:
        chosen = chosen[select_top_k(values[chosen], k)]
    return chosen[:k], passes


Granularity: TypeAlias = Literal["layer", "global"]
"""Whether a density is that of each layer, or of the whole gradient."""


class Selecting(Reducer):
    """A reducer that sends a share of the elements of all layers."""

    __slots__ = ()
    compresses_all = True
    fractions = ("density",)
    density: float

    def sent_alone(self, rank: Rank, gradient: Gradient, pairs: Pairs) -> Gradient:
        """Return ``gradient`` with ``pairs`` alone, as sent, and charge the GPU for it."""
        rank.work(cost.keep_pairs(gradient.nbytes, len(pairs)))
        return keep_only_pairs(gradient, Pairs(pairs.indices, widen(round_to_dtype(pairs.values, self.held))))


def segments(gradient: Gradient, granularity: Granularity) -> list[tuple[int, int]]:
    """Return the non-empty ranges of elements that a density applies to, as (start, stop)."""
    sizes = [layer.size for layer in gradient.layers] if granularity == "layer" else [gradient.size]
    return [(start, stop) for start, stop in pairwise(np.cumsum([0, *sizes]).tolist()) if stop > start]


def count_kept(gradient: Gradient, density: float, granularity: Granularity) -> int:
    """Return the number of elements that a density keeps, at least one of each segment."""
    return sum(elements_kept(stop - start, density) for start, stop in segments(gradient, granularity))


def smallest_kept_share(gradient: Gradient, density: float, granularity: Granularity) -> float | None:
    """Return the smallest k/n of all segments; None for a gradient without elements."""
    parts = segments(gradient, granularity)
    return min((elements_kept(stop - start, density) / (stop - start) for start, stop in parts), default=None)


def select_largest(
    rank: Rank, gradient: Gradient, density: float, granularity: Granularity = "global", *, sampled: bool = False
) -> Pairs:
    """Return the `count_kept` elements of largest magnitude, or all stored ones, and charge the GPU.

    If ``sampled``, they are at most as many of large magnitude, see `select_sampled`.
    """
    check_key_space(0, gradient.size)
    parts, offset = [NO_PAIRS], 0
    alone = [Gradient((name,), (layer,)) for name, layer in gradient] if granularity == "layer" else [gradient]
    for part in alone:
        if part.size or granularity == "global":
            values, k = _stored_values(part), elements_kept(part.size, density)
            if sampled:
                kept, passes = select_sampled(values, k)
                rank.work(cost.select(-(-values.size // STRIDE), len(kept)))
                for _ in range(passes):
                    rank.work(cost.compact(values.nbytes, len(kept)))
            else:
                rank.work(cost.select(len(values), k))
                kept = select_top_k(values, min(k, len(values)))
            parts.append(Pairs(_positions(part, kept) + offset, values[kept]))
        offset += part.size
    return concatenate_pairs(parts)


select_approximately = partial(select_largest, sampled=True)


def select_above(rank: Rank, gradient: Gradient, least: float) -> Pairs:
    """Return the elements of a magnitude of at least ``least``, above 0, and charge the GPU for finding them."""
    check_key_space(0, gradient.size)
    values = _stored_values(gradient)
    chosen = np.flatnonzero(np.abs(values) >= least)
    rank.work(cost.compact(values.nbytes, len(chosen)))
    return Pairs(_positions(gradient, chosen), values[chosen])


def _stored_values(gradient: Gradient) -> Floats32:
    return np.concatenate([np.empty(0, np.float32), *(stored(layer).reshape(-1) for layer in gradient.layers)])


def _positions(gradient: Gradient, stored_at: Ints) -> Ints:
    """Return the positions in the flat gradient of the stored values at some increasing indices."""
    parts, offset, start = [np.empty(0, np.int64)], 0, 0
    for layer in gradient.layers:
        stop = start + stored(layer).size
        own = stored_at[slice(*np.searchsorted(stored_at, (start, stop)))] - start
        if isinstance(layer, RowSparse):
            own = layer.rows[own // layer.width] * layer.width + own % layer.width
        parts.append(own + offset)
        offset, start = offset + layer.size, stop
    return np.concatenate(parts)


def keep_only_pairs(gradient: Gradient, pairs: Pairs) -> Gradient:
    """Return the gradient with the values of ``pairs`` in its stored rows, and zeros.

    Pairs in other rows are dropped: they are zero, or another rank's.
    """
    layers: list[Layer] = []
    for new, like in zip(pairs_to_gradient(pairs, gradient).layers, gradient.layers, strict=True):
        if isinstance(new, RowSparse) and isinstance(like, RowSparse):
            layers.append(like.with_values(new.keep(like.rows).to_dense()))
        else:
            layers.append(new)
    return Gradient(gradient.names, tuple(layers))
