"""Which elements of a gradient a rank sends: the largest, of the whole or of each layer; and a gradient of these alone.

Elements are numbered through all layers, one after the other. Rows that a layer does not store are zero, and are not
looked at.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats32, Ints
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.hashing import check_key_space
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, stored
from s2sim.options import check_options, check_shares
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer
from s2sim.reducers.shared.gathered import flat_vector, from_flat_vector
from s2sim.reducers.shared.pairs import Pairs
from s2sim.seeds import named_generator

STRIDE = 100
"""One element in so many is looked at."""

_LOWER, _UPPER = 0.8, 1.3
_ITERATIONS = 10


def select_sampled(values: Floats32, k: int) -> tuple[Ints, int]:
    """Return where at most ``k`` elements of large magnitude are, int64, increasing, and how often all were compared.

    As github.com/synxlin/deep-gradient-compression has it (the bounds were read, their use is recalled): the threshold
    is what as large a share of a strided sample reaches. It falls by a factor 0.8 while fewer than 0.8 k reach it;
    where more than 1.3 k do, the k largest of these are taken, and else the first k.
    """
    magnitudes = np.abs(values)
    sample = magnitudes[::STRIDE]
    if k == 0 or not len(sample):
        return np.empty(0, np.int64), 0
    least = sample[select_top_k(sample, elements_kept(len(sample), k / len(values)))].min()
    passes = 1
    found = np.flatnonzero(magnitudes >= least)
    while len(found) < _LOWER * k and passes < _ITERATIONS:
        least *= np.float32(_LOWER)
        found = np.flatnonzero(magnitudes >= least)
        passes += 1
    if len(found) > _UPPER * k:
        found = found[select_top_k(values[found], k)]
    return found[:k], passes


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
        return keep_only_pairs(gradient, Pairs(pairs.indices, widen(round_to_dtype(pairs.values, self.held))))


def segments(gradient: Gradient, granularity: Granularity) -> list[tuple[int, int]]:
    """Return where what is selected from at once begins and ends among all elements; nothing that is empty."""
    sizes = [layer.size for layer in gradient.layers] if granularity == "layer" else [gradient.size]
    ends = np.cumsum([0, *sizes]).tolist()
    return [(start, stop) for start, stop in pairwise(ends) if stop > start]


def count_kept(gradient: Gradient, density: float, granularity: Granularity) -> int:
    """Return how many elements a density keeps, at least one of each segment."""
    return sum(elements_kept(stop - start, density) for start, stop in segments(gradient, granularity))


def smallest_kept_share(gradient: Gradient, density: float, granularity: Granularity) -> float | None:
    """Return k/n of the segment of which a density keeps least; None where there is nothing to keep."""
    parts = segments(gradient, granularity)
    return min((elements_kept(stop - start, density) / (stop - start) for start, stop in parts), default=None)


def select_largest(rank: Rank, gradient: Gradient, density: float, granularity: Granularity = "global") -> Pairs:
    """Return the elements of largest magnitude, and charge the GPU for finding them.

    They are `count_kept`, or fewer where fewer are stored.
    """
    return _select(rank, gradient, density, granularity, _exact_largest)


def select_approximately(rank: Rank, gradient: Gradient, density: float, granularity: Granularity = "global") -> Pairs:
    """Return at most as many elements of large magnitude, and charge the GPU for finding them by a sample."""
    return _select(rank, gradient, density, granularity, _sampled_largest)


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
    values = _stored_values(gradient)
    found = np.flatnonzero(np.abs(values) >= least)
    rank.work(cost.compact(values.nbytes, len(found)))
    return Pairs(_positions(gradient, found), values[found])


def _exact_largest(rank: Rank, gradient: Gradient, k: int) -> Pairs:
    values = _stored_values(gradient)
    rank.work(cost.select(values.size, k))
    kept = select_top_k(values, min(k, len(values)))
    return Pairs(_positions(gradient, kept), values[kept])


def _sampled_largest(rank: Rank, gradient: Gradient, k: int) -> Pairs:
    values = _stored_values(gradient)
    kept, passes = select_sampled(values, k)
    rank.work(cost.select(-(-values.size // STRIDE), len(kept)))
    for _ in range(passes):
        rank.work(cost.compact(values.nbytes, len(kept)))
    return Pairs(_positions(gradient, kept), values[kept])


def _stored_values(gradient: Gradient) -> Floats32:
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


def keep_only_pairs(gradient: Gradient, pairs: Pairs) -> Gradient:
    """Return the gradient whose stored values are those of ``pairs``, and zero elsewhere.

    Pairs in rows that a layer does not store are left out: they are zero, or not this rank's.
    """
    ends = np.cumsum([0, *(layer.size for layer in gradient.layers)])
    parts = pairs.split(ends)
    return Gradient(
        gradient.names,
        tuple(_pairs_to_stored_layer(part, layer) for part, layer in zip(parts, gradient.layers, strict=True)),
    )


def _pairs_to_stored_layer(pairs: Pairs, like: Layer) -> Layer:
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


Seed: TypeAlias = Literal["shared", "own"]

Segments: TypeAlias = "Sequence[tuple[int, int]]"


class RandomSelecting(Selecting):
    """A reducer that sends elements drawn by a generator.

    Attributes
    ----------
    seed : {"shared", "own"}
        With a seed that all ranks share they draw the same elements: values alone travel, in an all-reduce. With a seed
        of their own they draw different ones, and gather values with what tells where they belong.
    granularity : {"layer", "global"}
        Whether the density is that of each layer or of the whole gradient. The values of all layers are packed into one
        message in both.
    """

    __slots__ = ()
    seed: Seed
    granularity: Granularity

    scattered: ClassVar[bool] = True
    """Whether elements are drawn one by one, by the GPU, and memory is read at random addresses."""

    @abstractmethod
    def draw(self, word: int, parts: Segments) -> Ints:
        """Return the elements that a random 64-bit word stands for, int64, increasing."""

    @abstractmethod
    def address(self, word: int, chosen: Ints, parts: Segments) -> NDArray[Any]:
        """Return what tells the others which elements a rank has drawn by itself."""

    @abstractmethod
    def addressed(self, address: NDArray[Any], parts: Segments) -> Ints:
        """Return the elements that an `address` tells."""

    @property
    def redraws(self) -> bool:
        """Whether receivers have to draw what the others have drawn."""
        return False

    def factors(self, parts: Segments) -> Floats32 | np.float32:
        """Return what the values are multiplied with before they are sent."""
        return np.float32(1)

    def contraction(self, gradient: Gradient) -> float | None:
        """Return k/n, the chance of an element to be sent, unless it is sent larger than it is."""
        sent_as_is = np.isscalar(self.factors(segments(gradient, self.granularity)))
        return smallest_kept_share(gradient, self.density, self.granularity) if sent_as_is else None

    def counts(self, parts: Segments) -> list[int]:
        """Return how many elements each segment sends."""
        return [elements_kept(stop - start, self.density) for start, stop in parts]

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Draw; then sum the values of the same elements, or gather those of different ones."""
        check_key_space(0, gradient.size)
        parts = segments(gradient, self.granularity)
        return (yield from (self._sum if self.seed == "shared" else self._gather)(rank, gradient, parts))

    def _sum(self, rank: Rank, gradient: Gradient, parts: Segments) -> Program:
        word = _random_word(rank, self.about.name, "shared")
        chosen = rank.replicated(lambda: self.draw(word, parts))
        own = self._values(rank, gradient, chosen, parts)
        total = rank.all_reduce(round_to_dtype(own, self.held), label="values of the same elements")
        yield total
        rank.work(cost.scatter_cost(gradient.nbytes, len(chosen), scattered=self.scattered))

        def mean() -> Gradient:
            vector = np.zeros(gradient.size, np.float32)
            vector[chosen] = widen(total.value) / np.float32(rank.size)
            return from_flat_vector(vector, gradient)

        return Reduced(rank.replicated(mean), sent=lambda: self.sent_alone(rank, gradient, Pairs(chosen, own)))

    def _gather(self, rank: Rank, gradient: Gradient, parts: Segments) -> Program:
        word = _random_word(rank, self.about.name, rank.index)
        chosen = self.draw(word, parts)
        own = self._values(rank, gradient, chosen, parts)
        message = self.address(word, chosen, parts), round_to_dtype(own, self.held)
        gathered = rank.all_gather(message, label="drawn elements")
        yield gathered
        if self.redraws:
            rank.work(cost.draw_cost(rank.size * len(chosen), rank.size * len(parts), "decode"))
        rank.work(cost.scatter_cost(gradient.nbytes, rank.size * len(chosen), scattered=self.scattered))

        def mean() -> Gradient:
            vector = np.zeros(gradient.size, np.float32)
            for address, values in gathered.value:
                vector[self.addressed(address, parts)] += widen(values)
            return from_flat_vector(vector / np.float32(rank.size), gradient)

        return Reduced(rank.replicated(mean), sent=lambda: self.sent_alone(rank, gradient, Pairs(chosen, own)))

    def _values(self, rank: Rank, gradient: Gradient, chosen: Ints, parts: Segments) -> Floats32:
        if self.scattered:
            rank.work(cost.draw_cost(len(chosen), len(parts), "encode"))
        rank.work(cost.copy_out_cost(len(chosen), scattered=self.scattered))
        own: Floats32 = flat_vector(gradient)[chosen] * self.factors(parts)
        return own


def _random_word(rank: Rank, *names: str | int) -> int:
    """Return the 64 random bits of a step."""
    return int(named_generator(rank.seed, *names, rank.step).integers(2**64, dtype=np.uint64))
