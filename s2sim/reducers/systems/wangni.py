"""Wangni's sparsification: each element with its own probability, larger by as much as it is rarer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats32
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.top_k import elements_kept
from s2sim.options import check_options, check_shares
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Traits
from s2sim.reducers.script import Work
from s2sim.reducers.shared.gathered import Message, Scattered

# With fewer bits than a byte has, the number of indices would not follow from their bytes.
_MIN_INDEX_BITS = 8


@dataclass(slots=True)
class Wangni(Scattered):
    """Element i is kept with probability p_i = min(lambda |g_i|, 1), and then sent as g_i / p_i: unbiased.

    J. Wangni, J. Wang, J. Liu, T. Zhang, "Gradient Sparsification for Communication-Efficient Distributed
    Optimization", NeurIPS 2018, algorithm 3, recalled but for its number of rounds: lambda is such that ``density`` of
    the elements are kept on average, found by giving what is cut at 1 to the others, a few times. Elements that are
    certain travel as index and value; all others have the magnitude 1 / lambda, so that an index and a sign will do.
    Indices have ceil(log2 n) bits.

    Attributes
    ----------
    density : float
        Expected share of a tensor's elements that is kept, in (0, 1]; fewer where many are cut at 1.
    rounds : int
        How often what is cut is given to the others.
    """

    density: float = 0.02
    rounds: int = 2

    bits: int | None = field(init=False, repr=False, compare=False, default=None, metadata={"fitted": True})
    """Of an index, where it runs on small copies: those that most elements of the layers themselves need."""

    aggregate = "gather"

    about = Traits(
        name="wangni",
        summary="each element kept with a probability that suits its magnitude, and scaled to be unbiased",
        source="Wangni et al., Gradient Sparsification, NeurIPS 2018",
        formula="(A(4 + log2(n)/8) + B(log2(n) + 1)/8 + 4L)(P-1), A certain and B drawn",
        certainty="recalled",
    )

    def __post_init__(self) -> None:
        check_options(self, "wangni", rounds=0)
        check_shares(self, "wangni", "density")

    def sized(self, elements: Mapping[str, int]) -> Wangni:
        """Return one whose indices are as long as those of layers of this size."""
        whole = sum(elements.values())
        bits = sum(count * _index_bits(count) for count in elements.values())
        return self.variant(bits=round(bits / whole) if whole else None)

    def inverse_lambda(self, vector: Floats32) -> np.float32:
        """Return 1 / lambda, the magnitude from which on elements are certain; 0 where all that are not zero are."""
        magnitudes = np.abs(vector)
        kept = self.density * len(vector)
        inverse = magnitudes.sum(dtype=np.float64) / kept
        for _ in range(self.rounds):
            free = magnitudes < inverse
            # What is left for those that are not certain, and their magnitudes, which share it.
            left = kept - (len(vector) - np.count_nonzero(free))
            total = magnitudes.sum(dtype=np.float64, where=free)
            if left <= 0 or total / left >= inverse:
                break
            inverse = total / left
        return np.float32(min(inverse, np.finfo(np.float32).max))

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return indices and values of what is certain, and of what is drawn indices with signs, and 1 / lambda."""
        inverse = self.inverse_lambda(vector)
        draws = random.random(len(vector), dtype=np.float32)
        draws *= inverse
        kept = np.flatnonzero(np.abs(vector) > draws)
        values = vector[kept]
        certain = np.abs(values) >= inverse
        drawn = kept[~certain].astype(np.uint64) << np.uint64(1) | (values[~certain] < 0)
        bits = self.bits or _index_bits(len(vector))
        return (
            pack_integers(kept[certain].astype(np.uint32), bits),
            round_to_dtype(values[certain], self.held),
            pack_integers(drawn, bits + 1),
            np.array([inverse], np.float32),
        )

    def read(self, message: Message, elements: int) -> tuple[NDArray[Any], Floats32]:
        """Return the places of what is certain and what was drawn, and values and 1 / lambda with signs."""
        indices, values, packed, (inverse,) = message
        bits = self.bits or _index_bits(elements)
        certain = unpack_integers(indices, bits, len(values))
        drawn = unpack_integers(packed, bits + 1, 8 * len(packed) // (bits + 1))
        at = np.concatenate((certain, drawn >> 1))
        return at, np.concatenate((widen(values), np.where(drawn & 1, -inverse, inverse)))

    def decode_work(self, elements: int, messages: int, code_bytes: int) -> Work:
        """Return the cost of adding every element that is kept where it belongs."""
        return cost.add_pairs(cost.VALUE_BYTES * elements, messages * elements_kept(elements, self.density))


def _index_bits(elements: int) -> int:
    return max(_MIN_INDEX_BITS, (elements - 1).bit_length())
