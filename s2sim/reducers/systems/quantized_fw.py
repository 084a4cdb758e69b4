"""The exchange of quantised Frank-Wolfe: codes of few bits to a master, and codes of their mean back."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from s2sim.arrays import Floats32
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.codecs.quantize import MAX_LEVELS, from_levels, largest_magnitude, to_levels
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.options import option
from s2sim.reducers.rank import Pending, Rank, Traits
from s2sim.reducers.shared.gathered import SERVER, Gathered, Message, flat_vector, from_flat_vector


@dataclass(slots=True)
class QuantizedFrankWolfe(Gathered):
    """s-partition codes through a star: every rank's gradient to the master, the mean of all back, coded once more.

    M. Zhang, L. Chen, A. Mokhtari, H. Hassani, A. Karbasi, "Quantized Frank-Wolfe: faster optimization, lower
    communication, and projection free", AISTATS 2020, recalled: |g_i| over the largest magnitude is rounded at random
    to one of the ends of its interval among s equal ones, so that the code is unbiased; one float32 and, for each
    element, a sign and ceil(log2(s+1)) bits travel. What follows, the linear minimisation over a constraint and the
    variance-reduced gradient, is the optimiser's. Rank 0 is the master; its own gradient is coded too.
    """

    partitions: int = option(1, "s; with 1 the code is TernGrad's.")

    aggregate = "server"

    about = Traits(
        name="quantized-fw",
        summary="random rounding to s levels of the largest magnitude, to a master and, once more, back",
        source="Zhang et al., Quantized Frank-Wolfe, AISTATS 2020",
        formula="n(ceil(log2(s+1))+1)/8 + 4 up; the master (P-1) times that",
        scope="gradient",
    )

    def __post_init__(self) -> None:
        if not 1 <= self.partitions <= MAX_LEVELS:
            raise OptionError(f"quantized-fw: partitions={self.partitions} is not between 1 and {MAX_LEVELS}")

    def vectors(self, gradient: Gradient) -> list[Floats32]:
        """Return the whole gradient as one: there is one largest magnitude."""
        return [flat_vector(gradient)]

    def from_vectors(self, vectors: Sequence[Floats32], like: Gradient) -> Gradient:
        """Return the gradient of one vector of all elements."""
        (vector,) = vectors
        return from_flat_vector(vector, like)

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return the largest magnitude and, for each element, its sign and level."""
        scale = np.array([largest_magnitude(vector)], np.float32)
        return scale, pack_integers(to_levels(vector, scale, len(vector), self.partitions, random), self._bits)

    def decode(self, message: Message, elements: int) -> Floats32:
        """Return the levels times the largest magnitude."""
        scale, codes = message
        return from_levels(unpack_integers(codes, self._bits, elements), scale, elements, self.partitions)

    def hand_out(
        self, rank: Rank, messages: tuple[Message, ...] | None
    ) -> Generator[Pending, None, tuple[Message, ...]]:
        """Let the master send its codes to one rank after the other: a star, and no broadcast."""
        others = [other for other in range(rank.size) if other != SERVER]
        sent = rank.exchange({} if messages is None else dict.fromkeys(others, messages), label="codes of the sum")
        yield sent
        arrived: tuple[Message, ...] = sent.value[SERVER] if messages is None else messages
        return arrived

    @property
    def _bits(self) -> int:
        """Bits of one element: its sign and which of s + 1 levels, in one number of as many."""
        return self.partitions.bit_length() + 1
