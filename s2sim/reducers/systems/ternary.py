"""A few values of one size: sparse ternary and sparse binary compression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from s2sim.arrays import Floats32, Ints
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.codecs.integer_codes import MAX_LOW_BITS, decode_positions, encode_positions, rice_bits
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.errors import OptionError
from s2sim.options import check_options, check_shares, option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Traits
from s2sim.reducers.script import Work
from s2sim.reducers.shared.gathered import Aggregate, Message, Scattered


@dataclass(slots=True)
class Stc(Scattered):
    """Of every tensor, the k elements of largest magnitude as plus or minus their mean magnitude.

    F. Sattler, S. Wiedemann, K.-R. Mueller, W. Samek, "Robust and Communication-Efficient Federated Learning from
    Non-IID Data", IEEE TNNLS 2019, algorithm 1; read in the first author's github.com/felisat/federated-learning.
    Clients send to a server, which compresses the sum the same way and sends it to all; both keep residuals
    (``ef=true``). Positions are a Golomb stream, with a bit less each than the authors' code counts.
    """

    density: float = option(0.01, "k as a fraction of each tensor's elements, in (0, 1]; 0.001 in the authors' code.")
    aggregate: Aggregate = option(
        "server",
        "All messages go to rank 0, who adds up, encodes the sums and sends these to all; or to all; or chunks to "
        "their owners, who do the same.",
    )

    about = Traits(
        name="stc",
        summary="where each tensor's largest elements are, as a Golomb stream, their signs and mean; both ways",
        source="Sattler et al., Robust and Communication-Efficient Federated Learning, IEEE TNNLS 2019",
        feedback="needed",
        formula="k(b + 1/(1 - (1 - density)^(2^b)) + 1)/8 + 4L up, and as much down",
        certainty="code read",
    )

    def __post_init__(self) -> None:
        check_options(self, "stc")
        check_shares(self, "stc", "density")

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return positions, signs and the mean magnitude."""
        chosen = select_top_k(vector, elements_kept(len(vector), self.density))
        values = vector[chosen]
        chosen, values = chosen[values != 0], values[values != 0]
        mean = np.abs(values).mean(dtype=np.float64) if len(values) else 0
        signs = pack_integers((values > 0).view(np.uint8), 1)
        return encode_positions(chosen, rice_bits(self.density)), signs, np.array([mean], np.float32)

    def read(self, message: Message, elements: int) -> tuple[Ints, Floats32]:
        """Return the positions, and the mean magnitude with their signs."""
        stream, signs, (mean,) = message
        chosen = decode_positions(stream, rice_bits(self.density))
        return chosen, np.where(unpack_integers(signs, 1, len(chosen)), mean, -mean)

    def encode_work(self, elements: int, code_bytes: int) -> Work:
        """Return the cost of selecting, and of coding positions."""
        return cost.encode_positions_cost(elements, elements_kept(elements, self.density))

    def decode_work(self, elements: int, messages: int, code_bytes: int) -> Work:
        """Return the cost of reading all positions."""
        return cost.decode_positions_cost(elements, messages * elements_kept(elements, self.density))


@dataclass(slots=True)
class Sbc(Scattered):
    """Of every tensor, the k largest positive elements or the k smallest negative ones, all as their mean.

    F. Sattler et al., "Sparse Binary Compression: Towards Distributed Deep Learning with Minimal Communication",
    arXiv:1805.08768, algorithm 2: those win whose mean is larger in magnitude, positive ones where both are equal. The
    algorithm is recalled; the Golomb code of the positions was read in the first author's later code. One number of 32
    bits a tensor, and no bit for any sign or value. Its local steps are the option ``h`` of any reducer, its residual
    ``ef=true``. The paper has a server to which clients send this; here every rank gathers all messages.
    """

    density: float = option(0.01, "k as a fraction of each tensor's elements, in (0, 1].")
    low_bits: int | None = option(
        None,
        "Bits of a position after its run of zeros, 0 to 31; what suits the density if None, 6 for 1 %. The paper's "
        "example of 8.38 bits a position comes from 7.",
    )

    aggregate = "gather"

    about = Traits(
        name="sbc",
        summary="where each tensor's largest elements of one sign are, as a Golomb stream, and their mean",
        source="Sattler et al., Sparse Binary Compression, IJCNN 2019; github.com/felisat/federated-learning",
        feedback="needed",
        formula="(k(b + 1/(1 - (1 - density)^(2^b)))/8 + 4L)(P-1)",
        certainty="recalled",
    )

    def __post_init__(self) -> None:
        check_options(self, "sbc", low_bits=0)
        check_shares(self, "sbc", "density")
        if self.low_bits is not None and self.low_bits > MAX_LOW_BITS:
            raise OptionError(f"sbc: low_bits={self.low_bits} must be at most {MAX_LOW_BITS}")

    @property
    def golomb_bits(self) -> int:
        """Low bits of a position."""
        return rice_bits(self.density) if self.low_bits is None else self.low_bits

    def encode(self, vector: Floats32, random: np.random.Generator) -> Message:
        """Return the positions of the side that wins, and its mean with its sign."""
        k = elements_kept(len(vector), self.density)
        above, below = (_largest(side, k) for side in (np.maximum(vector, 0), np.maximum(-vector, 0)))
        chosen = above if _mean(vector, above) >= -_mean(vector, below) else below
        return encode_positions(chosen, self.golomb_bits), np.array([_mean(vector, chosen)], np.float32)

    def read(self, message: Message, elements: int) -> tuple[Ints, np.float32]:
        """Return the positions, and the mean."""
        stream, (mean,) = message
        return decode_positions(stream, self.golomb_bits), mean

    def encode_work(self, elements: int, code_bytes: int) -> Work:
        """Return the cost of two selections, and of coding one's positions."""
        kept = elements_kept(elements, self.density)
        return cost.encode_positions_cost(elements, kept, selections=2)

    def decode_work(self, elements: int, messages: int, code_bytes: int) -> Work:
        """Return the cost of reading all positions."""
        return cost.decode_positions_cost(elements, messages * elements_kept(elements, self.density))


def _largest(magnitudes: Floats32, k: int) -> Ints:
    """Return where the k largest are, fewer where fewer are not zero."""
    chosen = select_top_k(magnitudes, k)
    return chosen[magnitudes[chosen] > 0]


def _mean(vector: Floats32, chosen: Ints) -> float:
    return float(vector[chosen].mean(dtype=np.float64)) if len(chosen) else 0.0
