"""CHOCO-SGD: ranks average models with their neighbours alone, by compressed differences to public copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats32
from s2sim.codecs.top_k import elements_kept, select_top_k, to_pairs
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.options import check_options, check_shares
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Reducer, Traits
from s2sim.reducers.script import Work
from s2sim.reducers.shared.gathered import flat_vector, from_flat_vector
from s2sim.reducers.shared.gossip import Graph, mixing_matrix

Compressor: TypeAlias = Literal["topk", "sign", "none"]

_DENSITY = 0.01


@dataclass(slots=True)
class Choco(Reducer):
    """Gossip with public copies: q = C(x - x̂) to all neighbours, x̂ += q, x += γ·Σ w_ij (x̂_j - x̂_i).

    A. Koloskova, S. Stich, M. Jaggi, "Decentralized stochastic optimization and gossip algorithms with compressed
    communication", ICML 2019, algorithm 2; with one vector s = Σ w_ij x̂_j a rank in place of all neighbours' copies,
    as algorithm 6 there has it. Restated from the authors' code (github.com/epfml/ChocoSGD); the numbers of the
    algorithms are recalled. Models are followed in units of the learning rate, as sums of updates since the start that
    all share: what a rank ends a step with is its own update, γ's pull towards its neighbours included. Averaged over
    ranks that is the mean gradient, whatever the compressor loses.

    Attributes
    ----------
    graph : {"ring", "torus", "exponential", "complete"}
        Who is whose neighbour; weights are Metropolis's.
    weights : str, optional
        A text file with the mixing matrix, a row a rank, in place of those of ``graph``.
    gamma : float
        Step towards the neighbours, γ in (0, 1]; the authors tune it for every compressor.
    compressor : {"topk", "sign", "none"}
        C: the largest elements as index and value, the signs with the mean magnitude, or the difference itself.
    density : float
        Fraction of the elements that ``topk`` keeps, in (0, 1].
    """

    compresses_all = True
    graph: Graph = "ring"
    weights: str | None = None
    gamma: float = 0.1
    compressor: Compressor = "topk"
    density: float = _DENSITY

    model: Floats32 | None = field(init=False, repr=False, default=None)
    """Sum of this rank's updates, x."""
    public: Floats32 | None = field(init=False, repr=False, default=None)
    """What all neighbours know of it, x̂."""
    around: Floats32 | None = field(init=False, repr=False, default=None)
    """Weighted sum of what is known of the neighbours and of itself, s."""

    about = Traits(
        name="choco",
        summary="gossip with neighbours of compressed differences to public copies; every rank has its own model",
        source="Koloskova, Stich and Jaggi, ICML 2019; github.com/epfml/ChocoSGD",
        agrees=False,
        estimates="weights",
        feedback="own",
        formula="neighbours x 8k",
        certainty="code read",
    )

    def __post_init__(self) -> None:
        check_options(self, "choco")
        check_shares(self, "choco", "gamma", "density")
        if self.compressor != "topk" and self.density != _DENSITY:
            raise OptionError(f"choco: density={self.density} changes nothing with compressor={self.compressor}")
        if self.weights is not None and self.graph != "ring":
            raise OptionError(f"choco: graph={self.graph} changes nothing with weights of a file: give one of them")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Take the local step, tell the neighbours what is new, move towards them."""
        mixing = rank.replicated(lambda: mixing_matrix(self.graph, self.weights, rank.size))[rank.index]
        step = flat_vector(gradient)
        zeros = np.zeros_like(step)
        model = step if self.model is None else self.model + step
        public = zeros if self.public is None else self.public
        around = zeros if self.around is None else self.around

        rank.work(cost.add(len(step)))
        rank.work(self._encoding(len(step)))
        message = self._compress(model - public)
        neighbours = [place for place in np.flatnonzero(mixing).tolist() if place != rank.index]
        heard = rank.exchange(dict.fromkeys(neighbours, message), label="differences")
        yield heard

        self.public = public + self._decompress(message, len(step))
        around = around + np.float32(mixing[rank.index]) * (self.public - public)
        for place, other in heard.value.items():
            around += np.float32(mixing[place]) * self._decompress(other, len(step))
            rank.work(self._adding(len(step)))
        self.around = around
        update: Floats32 = step + np.float32(self.gamma) * (around - self.public)
        rank.work(cost.add(len(step)))
        self.model = model + (update - step)
        return Reduced(from_flat_vector(update, gradient), sent=lambda: gradient)

    def _encoding(self, elements: int) -> Work:
        if self.compressor == "topk":
            return cost.select(elements, elements_kept(elements, self.density))
        return cost.encode_values(elements, elements // 8 if self.compressor == "sign" else 0)

    def _adding(self, elements: int) -> Work:
        if self.compressor == "topk":
            return cost.add_pairs(0, elements_kept(elements, self.density))
        return cost.add_codes(elements, 1, elements // 8 if self.compressor == "sign" else 4 * elements)

    def _compress(self, difference: Floats32) -> tuple[NDArray[Any], ...]:
        if self.compressor == "none":
            return (difference,)
        if self.compressor == "sign":
            scale = np.abs(difference).mean(keepdims=True) if len(difference) else difference
            return scale, np.packbits(difference >= 0, bitorder="little")
        kept = select_top_k(difference, elements_kept(len(difference), self.density))
        return tuple(to_pairs(kept, difference[kept], len(kept)).values())

    def _decompress(self, message: tuple[NDArray[Any], ...], elements: int) -> Floats32:
        if self.compressor == "none":
            whole: Floats32 = message[0]
            return whole
        if self.compressor == "sign":
            scale, bits = message
            positive = np.unpackbits(bits, count=elements, bitorder="little").astype(np.bool_)
            return np.where(positive, scale, -scale)
        indices, values = message
        dense = np.zeros(elements, np.float32)
        dense[indices] = values
        return dense
