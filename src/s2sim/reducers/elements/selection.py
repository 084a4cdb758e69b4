"""Which elements of a gradient a rank sends: the largest, of the whole or of each layer; and a gradient of these alone.

Elements are numbered through all layers, one after the other. Rows that a layer does not store are zero, and are not
looked at.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from s2sim.codecs.bfloat16 import as_held, widen
from s2sim.codecs.hashing import check_key_space
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.gradients.gradient import Gradient, RowSparse, stored
from s2sim.options import check_options, check_shares
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.elements.pairs import Pairs
from s2sim.reducers.elements.sampled_threshold import STRIDE, select_sampled
from s2sim.reducers.rank import Reducer

if TYPE_CHECKING:
    from collections.abc import Callable

    from s2sim.arrays import Floats32, Ints
    from s2sim.gradients.gradient import Layer
    from s2sim.reducers.rank import Rank

Granularity: TypeAlias = Literal["layer", "global"]
"""Whether a density is that of each layer, or of the whole gradient."""


class Selecting(Reducer):
    """A reducer that sends a share of the elements of all layers.

    Attributes
    ----------
    density : float
        Fraction of the elements, zeros included, that each rank selects, in (0, 1].
    """

    __slots__ = ()
    density: float

    def __post_init__(self) -> None:
        check_options(self, self.about.name)
        check_shares(self, self.about.name, "density")

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return all layers."""
        return tuple(range(len(gradient.layers)))

    def sent_alone(self, rank: Rank, gradient: Gradient, pairs: Pairs) -> Gradient:
        """Return ``gradient`` with nothing but ``pairs``, as they travel, and charge the GPU for it."""
        rank.work(cost.keep_pairs(gradient.nbytes, len(pairs)))
        return with_pairs_alone(gradient, Pairs(pairs.indices, widen(as_held(pairs.values, self.held))))


def segments(gradient: Gradient, granularity: Granularity) -> list[tuple[int, int]]:
    """Return where what is selected from at once begins and ends among all elements; nothing that is empty."""
    sizes = [layer.size for layer in gradient.layers] if granularity == "layer" else [gradient.size]
    ends = np.cumsum([0, *sizes]).tolist()
    return [(start, stop) for start, stop in pairwise(ends) if stop > start]


def count_kept(gradient: Gradient, density: float, granularity: Granularity) -> int:
    """Return how many elements a density keeps, at least one of each segment."""
    return sum(elements_kept(stop - start, density) for start, stop in segments(gradient, granularity))


def least_share(gradient: Gradient, density: float, granularity: Granularity) -> float | None:
    """Return k/n of the segment of which a density keeps least; None where there is nothing to keep."""
    parts = segments(gradient, granularity)
    return min((elements_kept(stop - start, density) / (stop - start) for start, stop in parts), default=None)


def select_largest(rank: Rank, gradient: Gradient, density: float, granularity: Granularity = "global") -> Pairs:
    """Return the elements of largest magnitude, and charge the GPU for finding them.

    They are `count_kept`, or fewer where fewer are stored.
    """
    return _select(rank, gradient, density, granularity, _largest)


def select_about(rank: Rank, gradient: Gradient, density: float, granularity: Granularity = "global") -> Pairs:
    """Return at most as many elements of large magnitude, and charge the GPU for finding them by a sample."""
    return _select(rank, gradient, density, granularity, _about_largest)


def _select(
    rank: Rank,
    gradient: Gradient,
    density: float,
    granularity: Granularity,
    select: Callable[[Rank, Gradient, int], Pairs],
) -> Pairs:
    check_key_space(0, gradient.size)
    if granularity == "global":
        return select(rank, gradient, elements_kept(gradient.size, density))
    parts, offset = [Pairs(np.empty(0, np.int64), np.empty(0, np.float32))], 0
    for name, layer in gradient:
        if layer.size:
            alone = Gradient((name,), (layer,))
            parts.append(select(rank, alone, elements_kept(layer.size, density)).shifted(offset))
        offset += layer.size
    return Pairs(np.concatenate([part.indices for part in parts]), np.concatenate([part.values for part in parts]))


def select_above(rank: Rank, gradient: Gradient, least: float) -> Pairs:
    """Return the elements whose magnitude is at least ``least``, above 0, and charge the GPU for finding them."""
    check_key_space(0, gradient.size)
    values = _stored(gradient)
    found = np.flatnonzero(np.abs(values) >= least)
    rank.work(cost.compact(values.nbytes, len(found)))
    return Pairs(_positions(gradient, found), values[found])


def _largest(rank: Rank, gradient: Gradient, k: int) -> Pairs:
    values = _stored(gradient)
    rank.work(cost.select(values.size, k))
    kept = select_top_k(values, min(k, len(values)))
    return Pairs(_positions(gradient, kept), values[kept])


def _about_largest(rank: Rank, gradient: Gradient, k: int) -> Pairs:
    values = _stored(gradient)
    kept, passes = select_sampled(values, k)
    rank.work(cost.select(-(-values.size // STRIDE), len(kept)))
    for _ in range(passes):
        rank.work(cost.compact(values.nbytes, len(kept)))
    return Pairs(_positions(gradient, kept), values[kept])


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


def with_pairs_alone(gradient: Gradient, pairs: Pairs) -> Gradient:
    """Return the gradient whose stored values are those of ``pairs``, and zero elsewhere.

    Pairs in rows that a layer does not store are left out: they are zero, or not this rank's.
    """
    ends = np.cumsum([0, *(layer.size for layer in gradient.layers)])
    parts = pairs.split(ends)
    return Gradient(
        gradient.names, tuple(_layer_of(part, layer) for part, layer in zip(parts, gradient.layers, strict=True))
    )


def _layer_of(pairs: Pairs, like: Layer) -> Layer:
    values = np.zeros(stored(like).shape, np.float32)
    flat = values.reshape(-1)
    if not isinstance(like, RowSparse):
        flat[pairs.indices] = pairs.values
        return values
    if like.width and len(like.rows):
        rows, columns = np.divmod(pairs.indices, like.width)
        places = np.searchsorted(like.rows, rows)
        held = like.rows[np.minimum(places, len(like.rows) - 1)] == rows
        flat[places[held] * like.width + columns[held]] = pairs.values[held]
    return like.with_values(values)
