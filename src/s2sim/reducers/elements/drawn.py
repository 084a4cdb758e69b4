"""What the systems share that send elements drawn at random, whatever their values."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np

from s2sim.codecs.bfloat16 import as_held, widen
from s2sim.codecs.hashing import check_key_space
from s2sim.codecs.top_k import elements_kept
from s2sim.reducers.elements import selection_cost as cost
from s2sim.reducers.elements.flat import flat_vector, from_flat_vector
from s2sim.reducers.elements.pairs import Pairs
from s2sim.reducers.elements.selection import Granularity, Selecting, least_share, segments
from s2sim.reducers.rank import Reduced
from s2sim.seeds import named_generator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Floats32, Ints
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Program, Rank

Seed: TypeAlias = Literal["shared", "own"]

Segments: TypeAlias = "Sequence[tuple[int, int]]"


class Drawn(Selecting):
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
        return least_share(gradient, self.density, self.granularity) if sent_as_is else None

    def counts(self, parts: Segments) -> list[int]:
        """Return how many elements each segment sends."""
        return [elements_kept(stop - start, self.density) for start, stop in parts]

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Draw; then sum the values of the same elements, or gather those of different ones."""
        check_key_space(0, gradient.size)
        parts = segments(gradient, self.granularity)
        return (yield from (self._sum if self.seed == "shared" else self._gather)(rank, gradient, parts))

    def _sum(self, rank: Rank, gradient: Gradient, parts: Segments) -> Program:
        word = _word(rank, self.about.name, "shared")
        chosen = rank.replicated(lambda: self.draw(word, parts))
        own = self._values(rank, gradient, chosen, parts)
        total = rank.all_reduce(as_held(own, self.held), label="values of the same elements")
        yield total
        rank.work(cost.put_back(gradient.nbytes, len(chosen), scattered=self.scattered))

        def mean() -> Gradient:
            vector = np.zeros(gradient.size, np.float32)
            vector[chosen] = widen(total.value) / np.float32(rank.size)
            return from_flat_vector(vector, gradient)

        return Reduced(rank.replicated(mean), sent=lambda: self.sent_alone(rank, gradient, Pairs(chosen, own)))

    def _gather(self, rank: Rank, gradient: Gradient, parts: Segments) -> Program:
        word = _word(rank, self.about.name, rank.index)
        chosen = self.draw(word, parts)
        own = self._values(rank, gradient, chosen, parts)
        message = self.address(word, chosen, parts), as_held(own, self.held)
        gathered = rank.all_gather(message, label="drawn elements")
        yield gathered
        if self.redraws:
            rank.work(cost.draw(rank.size * len(chosen), rank.size * len(parts), "decode"))
        rank.work(cost.put_back(gradient.nbytes, rank.size * len(chosen), scattered=self.scattered))

        def mean() -> Gradient:
            vector = np.zeros(gradient.size, np.float32)
            for address, values in gathered.value:
                vector[self.addressed(address, parts)] += widen(values)
            return from_flat_vector(vector / np.float32(rank.size), gradient)

        return Reduced(rank.replicated(mean), sent=lambda: self.sent_alone(rank, gradient, Pairs(chosen, own)))

    def _values(self, rank: Rank, gradient: Gradient, chosen: Ints, parts: Segments) -> Floats32:
        if self.scattered:
            rank.work(cost.draw(len(chosen), len(parts), "encode"))
        rank.work(cost.copy_out(len(chosen), scattered=self.scattered))
        own: Floats32 = flat_vector(gradient)[chosen] * self.factors(parts)
        return own


def _word(rank: Rank, *names: str | int) -> int:
    """Return the 64 random bits of a step."""
    return int(named_generator(rank.seed, *names, rank.step).integers(2**64, dtype=np.uint64))
