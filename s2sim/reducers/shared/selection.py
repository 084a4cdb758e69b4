"""Selection of elements to send: the largest or random ones, of the whole gradient or of each layer.

Elements are numbered through all layers. Rows that a layer does not store are zero and are not read.
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
from s2sim.reducers.shared.pairs import NO_PAIRS, Pairs, concatenate_pairs, pairs_to_gradient
from s2sim.seeds import named_generator

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
    """A reducer that sends a share of the elements of all layers.

    Attributes
    ----------
    density : float
        Fraction of the elements, zeros included, that each rank selects, in (0, 1].
    """

    __slots__ = ()
    compresses_all = True
    density: float

    def __post_init__(self) -> None:
        check_options(self, self.about.name)
        check_shares(self, self.about.name, "density")

    def sent_alone(self, rank: Rank, gradient: Gradient, pairs: Pairs) -> Gradient:
        """Return ``gradient`` with ``pairs`` alone, as sent, and charge the GPU for it."""
        rank.work(cost.keep_pairs(gradient.nbytes, len(pairs)))
        return keep_only_pairs(gradient, Pairs(pairs.indices, widen(round_to_dtype(pairs.values, self.held))))


def segments(gradient: Gradient, granularity: Granularity) -> list[tuple[int, int]]:
    """Return the non-empty ranges of elements that a density applies to, as (start, stop)."""
    sizes = [layer.size for layer in gradient.layers] if granularity == "layer" else [gradient.size]
    ends = np.cumsum([0, *sizes]).tolist()
    return [(start, stop) for start, stop in pairwise(ends) if stop > start]


def count_kept(gradient: Gradient, density: float, granularity: Granularity) -> int:
    """Return the number of elements that a density keeps, at least one of each segment."""
    return sum(elements_kept(stop - start, density) for start, stop in segments(gradient, granularity))


def smallest_kept_share(gradient: Gradient, density: float, granularity: Granularity) -> float | None:
    """Return the smallest k/n of all segments; None for a gradient without elements."""
    parts = segments(gradient, granularity)
    return min((elements_kept(stop - start, density) / (stop - start) for start, stop in parts), default=None)


def select_largest(rank: Rank, gradient: Gradient, density: float, granularity: Granularity = "global") -> Pairs:
    """Return the `count_kept` elements of largest magnitude, or all stored ones, and charge the GPU."""

    def exact(values: Floats32, k: int) -> Ints:
        rank.work(cost.select(len(values), k))
        return select_top_k(values, min(k, len(values)))

    return _select(gradient, density, granularity, exact)


def select_approximately(rank: Rank, gradient: Gradient, density: float, granularity: Granularity = "global") -> Pairs:
    """Return at most `count_kept` elements of large magnitude, found by a sample, and charge the GPU."""

    def sampled(values: Floats32, k: int) -> Ints:
        kept, passes = select_sampled(values, k)
        rank.work(cost.select(-(-values.size // STRIDE), len(kept)))
        for _ in range(passes):
            rank.work(cost.compact(values.nbytes, len(kept)))
        return kept

    return _select(gradient, density, granularity, sampled)


def _select(
    gradient: Gradient, density: float, granularity: Granularity, select: Callable[[Floats32, int], Ints]
) -> Pairs:
    check_key_space(0, gradient.size)
    parts, offset = [NO_PAIRS], 0
    alone = [Gradient((name,), (layer,)) for name, layer in gradient] if granularity == "layer" else [gradient]
    for part in alone:
        if part.size or granularity == "global":
            values = _stored_values(part)
            kept = select(values, elements_kept(part.size, density))
            parts.append(Pairs(_positions(part, kept) + offset, values[kept]))
        offset += part.size
    return concatenate_pairs(parts)


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
    """Whether the GPU samples elements one by one, and reads memory at random addresses."""

    @abstractmethod
    def draw(self, word: int, parts: Segments) -> Ints:
        """Return the elements for a random 64-bit word, int64, increasing."""

    @abstractmethod
    def address(self, word: int, chosen: Ints, parts: Segments) -> NDArray[Any]:
        """Return the array from which other ranks know the elements ``chosen`` by a rank."""

    @abstractmethod
    def addressed(self, address: NDArray[Any], parts: Segments) -> Ints:
        """Return the elements of an `address`."""

    @property
    def redraws(self) -> bool:
        """Whether receivers have to repeat the sampling of the other ranks."""
        return False

    def factors(self, parts: Segments) -> Floats32 | np.float32:
        """Return the factors of the values that are sent."""
        return np.float32(1)

    def contraction(self, gradient: Gradient) -> float | None:
        """Return k/n, the probability that an element is sent, unless values are scaled."""
        sent_as_is = np.isscalar(self.factors(segments(gradient, self.granularity)))
        return smallest_kept_share(gradient, self.density, self.granularity) if sent_as_is else None

    def counts(self, parts: Segments) -> list[int]:
        """Return the number of elements sent of each segment."""
        return [elements_kept(stop - start, self.density) for start, stop in parts]

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Sample; then sum the values of the same elements, or gather those of different ones."""
        check_key_space(0, gradient.size)
        parts = segments(gradient, self.granularity)
        shared = self.seed == "shared"
        generator = named_generator(rank.seed, self.about.name, "shared" if shared else rank.index, rank.step)
        word = int(generator.integers(2**64, dtype=np.uint64))
        chosen = rank.replicated(lambda: self.draw(word, parts)) if shared else self.draw(word, parts)
        if self.scattered:
            rank.work(cost.draw_cost(len(chosen), len(parts), "encode"))
        rank.work(cost.copy_out_cost(len(chosen), scattered=self.scattered))
        own: Floats32 = flat_vector(gradient)[chosen] * self.factors(parts)
        values = round_to_dtype(own, self.held)

        if shared:
            posted, messages = rank.all_reduce(values, label="values of the same elements"), 1
        else:
            message = self.address(word, chosen, parts), values
            posted, messages = rank.all_gather(message, label="drawn elements"), rank.size
        yield posted
        if self.redraws and not shared:
            rank.work(cost.draw_cost(messages * len(chosen), messages * len(parts), "decode"))
        rank.work(cost.scatter_cost(gradient.nbytes, messages * len(chosen), scattered=self.scattered))

        def mean() -> Gradient:
            vector = np.zeros(gradient.size, np.float32)
            if shared:
                vector[chosen] = widen(posted.value)
            else:
                for address, received in posted.value:
                    vector[self.addressed(address, parts)] += widen(received)
            return from_flat_vector(vector / np.float32(rank.size), gradient)

        return Reduced(rank.replicated(mean), sent=lambda: self.sent_alone(rank, gradient, Pairs(chosen, own)))
