"""The exchange of quantised Frank-Wolfe: codes of few bits to a master, and codes of their mean back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from s2sim.codecs.bit_packing import pack_integers, unpack_integers
from s2sim.codecs.levels import MOST_LEVELS, from_levels, largest_magnitude, to_levels
from s2sim.errors import OptionError
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.elements.flat import flat_vector, from_flat_vector
from s2sim.reducers.rank import Reduced, Reducer, Traits
from s2sim.seeds import named_generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.arrays import Floats32
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Program, Rank

    Message: TypeAlias = tuple[NDArray[Any], ...]

MASTER = 0


@dataclass(slots=True)
class QuantizedFrankWolfe(Reducer):
    """s-partition codes through a star: every rank's gradient to the master, the mean of all back, coded once more.

    M. Zhang, L. Chen, A. Mokhtari, H. Hassani, A. Karbasi, "Quantized Frank-Wolfe: faster optimization, lower
    communication, and projection free", AISTATS 2020, recalled: |g_i| over the largest magnitude is rounded at random
    to one of the ends of its interval among s equal ones, so that the code is unbiased; one float32 and, for each
    element, a sign and ceil(log2(s+1)) bits travel. What follows, the linear minimisation over a constraint and the
    variance-reduced gradient, is the optimiser's. Rank 0 is the master; its own gradient is coded too.

    Attributes
    ----------
    partitions : int
        s; with 1 the code is TernGrad's.
    """

    partitions: int = 1

    about = Traits(
        name="quantized-fw",
        summary="random rounding to s levels of the largest magnitude, to a master and, once more, back",
        source="Zhang et al., Quantized Frank-Wolfe, AISTATS 2020",
        formula="n(ceil(log2(s+1))+1)/8 + 4 up; the master (P-1) times that",
    )

    def __post_init__(self) -> None:
        if not 1 <= self.partitions <= MOST_LEVELS:
            raise OptionError(f"quantized-fw: partitions={self.partitions} is not between 1 and {MOST_LEVELS}")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Code, send to the master, code the mean, send to all."""
        vector = flat_vector(gradient)
        own = self._encode(rank, vector, "own")
        up = rank.exchange({} if rank.index == MASTER else {MASTER: own}, label="codes to the master")
        yield up
        again: Message | None = None
        lost = None
        if rank.index == MASTER:
            messages = [own, *up.value.values()]
            rank.work(cost.add_codes(len(vector), rank.size, sum(map(_bytes, messages))))
            total = np.zeros_like(vector)
            for message in messages:
                total += self._decode(message, len(vector))
            total /= np.float32(rank.size)
            again = self._encode(rank, total, "mean")
            lost = total
        down = rank.exchange(
            {} if again is None else dict.fromkeys(range(1, rank.size), again), label="codes of the mean"
        )
        yield down
        arrived = down.value[MASTER] if again is None else again
        rank.work(cost.add_codes(len(vector), 1, _bytes(arrived)))
        mean = rank.replicated(lambda: from_flat_vector(self._decode(arrived, len(vector)), gradient))

        def sent() -> Gradient:
            decoded = self._decode(own, len(vector))
            if lost is not None:
                # What the second coding loses is the master's.
                decoded = decoded + np.float32(rank.size) * (flat_vector(mean) - lost)
            return from_flat_vector(decoded, gradient)

        return Reduced(mean, sent)

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return all layers."""
        return tuple(range(len(gradient.layers)))

    @property
    def _bits(self) -> int:
        """Bits of one element: its sign and which of s + 1 levels, in one number of as many."""
        return self.partitions.bit_length() + 1

    def _encode(self, rank: Rank, vector: Floats32, what: str) -> Message:
        random = named_generator(rank.seed, self.about.name, rank.step, rank.index, what)
        scale = np.array([largest_magnitude(vector)], np.float32)
        numbers = to_levels(vector, scale, max(len(vector), 1), self.partitions, random)
        message = scale, pack_integers(numbers, self._bits)
        rank.work(cost.encode_values(len(vector), _bytes(message)))
        return message

    def _decode(self, message: Message, elements: int) -> Floats32:
        scale, codes = message
        return from_levels(unpack_integers(codes, self._bits, elements), scale, max(elements, 1), self.partitions)


def _bytes(message: Message) -> int:
    return sum(part.nbytes for part in message)
