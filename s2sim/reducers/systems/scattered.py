"""Elements with their places, as few values or scaled: sparse ternary and binary compression, Strom, Wangni."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats32, Ints, Words
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.integer_codes import MAX_LOW_BITS, decode_positions, encode_positions, rice_bits
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.errors import S2SimError
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.script import Work
from s2sim.reducers.shared.gathered import Aggregate, Message, Scattered


class GolombPositions(Scattered):
    """A reducer whose positions are coded on the host, as a Golomb stream."""

    __slots__ = ()
    fractions = ("density",)
    density: float
    selections: ClassVar[int] = 1  # How often the GPU selects from a tensor

    def encode_work(self, elements: int, code_bytes: int) -> Work:
        """Return the cost of selecting, and of coding the positions of one selection."""
        return cost.encode_positions_cost(elements, elements_kept(elements, self.density), selections=self.selections)

    def decode_work(self, elements: int, messages: int, code_bytes: int) -> Work:
        return cost.decode_positions_cost(elements, messages * elements_kept(elements, self.density))


@dataclass(slots=True)
class Stc(GolombPositions):
    """Of every tensor, the k elements of largest magnitude as plus or minus their mean magnitude.

    F. Sattler, S. Wiedemann, K.-R. Mueller, W. Samek, "Robust and Communication-Efficient Federated Learning from
    Non-IID Data", IEEE TNNLS 2019, algorithm 1; read in the first author's github.com/felisat/federated-learning.
    Clients send to a server, which compresses the sum the same way and sends it to all; both keep residuals
    (``ef=true``), R_i of a client's gradients and R of the sums. Positions are a Golomb stream, with a bit less each
    than the authors' code counts.
    """

    density: float = 0.01
    aggregate: Aggregate = "server"

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return positions, signs and the mean magnitude."""
        chosen = select_top_k(vector, elements_kept(len(vector), self.density))
        values = vector[chosen]
        chosen, values = chosen[values != 0], values[values != 0]
        mean = np.abs(values).mean(dtype=np.float64) if len(values) else 0
        signs = pack_integers((values > 0).view(np.uint8), 1)
        return encode_positions(chosen, rice_bits(self.density)), signs, np.array([mean], np.float32)

    def read(self, message: Message, elements: int) -> tuple[Ints, Floats32]:
        stream, signs, (mean,) = message
        chosen = decode_positions(stream, rice_bits(self.density))
        return chosen, np.where(unpack_integers(signs, 1, len(chosen)), mean, -mean)


@dataclass(slots=True)
class Sbc(GolombPositions):
    """Of every tensor, the k largest positive elements or the k smallest negative ones, all as their mean.

    F. Sattler et al., "Sparse Binary Compression: Towards Distributed Deep Learning with Minimal Communication",
    arXiv:1805.08768, algorithm 2: those win whose mean is larger in magnitude, positive ones where both are equal. The
    algorithm is recalled; the Golomb code of the positions was read in the first author's later code. One number of 32
    bits a tensor, and no bit for any sign or value. Its local steps are the option ``h`` of any reducer, its residual
    ``ef=true``. The paper has a server to which clients send this; here every rank gathers all messages.
    """

    selections = 2
    intervals: ClassVar = {"low_bits": f"[0, {MAX_LOW_BITS}]"}
    density: float = 0.01
    low_bits: int | None = None

    aggregate = "gather"

    @property
    def golomb_bits(self) -> int:
        """Low bits of a position."""
        return rice_bits(self.density) if self.low_bits is None else self.low_bits

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return the positions of the side that wins, and its mean with its sign."""
        k = elements_kept(len(vector), self.density)
        sides = []
        for side in (np.maximum(vector, 0), np.maximum(-vector, 0)):
            chosen = select_top_k(side, k)
            chosen = chosen[side[chosen] > 0]
            sides.append((chosen, float(vector[chosen].mean(dtype=np.float64)) if len(chosen) else 0.0))
        # Positive ones where both means are equal.
        chosen, mean = max(sides, key=lambda side: abs(side[1]))
        return encode_positions(chosen, self.golomb_bits), np.array([mean], np.float32)

    def read(self, message: Message, elements: int) -> tuple[Ints, np.float32]:
        stream, (mean,) = message
        return decode_positions(stream, self.golomb_bits), mean


_SIGN = np.uint32(1 << 31)

_LEAST, _MOST = float(np.finfo(np.float32).smallest_subnormal), float(np.finfo(np.float32).max)


@dataclass(slots=True)
class Strom(Scattered):
    """Every element above a threshold in magnitude is sent as the threshold; all else belongs into a residual.

    N. Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing", Interspeech 2015, recalled: a
    word of 31 bits of index and a sign. What exceeds the threshold stays in the residual too (``ef=true``), so that a
    large element is sent in several steps. The rate depends on the data.
    """

    fractions = ("density",)
    intervals: ClassVar = {"threshold": f"[{_LEAST}, {_MOST}]"}
    needs: ClassVar = {"density": "threshold=none"}
    threshold: float | None = None
    density: float = 0.01
    aggregate = "gather"

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return words, and the threshold where it is not known to all."""
        if len(vector) > _SIGN:
            raise S2SimError(f"strom: a tensor of {len(vector)} elements has more than 31 bits of index can tell apart")
        told: Message = ()
        if self.threshold is not None:
            chosen = np.flatnonzero(np.abs(vector) > np.float32(self.threshold))
        else:
            chosen = select_top_k(vector, elements_kept(len(vector), self.density))
            chosen = chosen[vector[chosen] != 0]
            told = (np.array([np.abs(vector[chosen]).min() if len(chosen) else 0], np.float32),)
        words = chosen.astype(np.uint32)
        words[vector[chosen] < 0] |= _SIGN
        return words, *told

    def read(self, message: Message, elements: int) -> tuple[Words, Floats32]:
        words, *threshold = message
        (tau,) = threshold[0] if threshold else [np.float32(self.threshold)]
        return words & ~_SIGN, np.where(words >= _SIGN, -tau, tau)

    def encode_work(self, elements: int, code_bytes: int) -> Work:
        if self.threshold is not None:
            return cost.compact(cost.VALUE_BYTES * elements, code_bytes // cost.INDEX_BYTES)
        return cost.select(elements, code_bytes // cost.INDEX_BYTES)

    def decode_work(self, elements: int, messages: int, code_bytes: int) -> Work:
        return cost.add_pairs(cost.VALUE_BYTES * elements, code_bytes // cost.INDEX_BYTES)


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
    """

    fractions = ("density",)
    minimums: ClassVar = {"rounds": 0}
    density: float = 0.02
    rounds: int = 2

    bits: int | None = field(init=False, repr=False, compare=False, default=None, metadata={"fitted": True})
    """Of an index, where it runs on small copies: those that most elements of the layers themselves need."""

    aggregate = "gather"

    def sized(self, elements: Mapping[str, int]) -> Self:
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
        indices, values, packed, (inverse,) = message
        bits = self.bits or _index_bits(elements)
        certain = unpack_integers(indices, bits, len(values))
        drawn = unpack_integers(packed, bits + 1, 8 * len(packed) // (bits + 1))
        at = np.concatenate((certain, drawn >> 1))
        return at, np.concatenate((widen(values), np.where(drawn & 1, -inverse, inverse)))

    def decode_work(self, elements: int, messages: int, code_bytes: int) -> Work:
        return cost.add_pairs(cost.VALUE_BYTES * elements, messages * elements_kept(elements, self.density))


def _index_bits(elements: int) -> int:
    return max(_MIN_INDEX_BITS, (elements - 1).bit_length())
