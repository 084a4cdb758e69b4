"""Sparse Ternary Compression: where the largest elements are, their signs, and one magnitude; both ways."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from s2sim.arrays import Floats32, Ints
from s2sim.codecs.bits import pack_integers, unpack_integers
from s2sim.codecs.integer_codes import decode_positions, encode_positions, rice_bits
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.options import check_options, check_shares
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

    Attributes
    ----------
    density : float
        k as a fraction of each tensor's elements, in (0, 1]; 0.001 in the authors' code.
    aggregate : {"server", "gather", "two-phase"}
        All messages go to rank 0, who adds up, encodes the sums and sends these to all; or to all; or chunks to their
        owners, who do the same.
    """

    density: float = 0.01
    aggregate: Aggregate = "server"

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
