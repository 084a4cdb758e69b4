"""ScaleCom: one rank in turn chooses the elements that all ranks all-reduce."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.top_k import elements_kept
from s2sim.gradients.gradient import Gradient
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.gpu_cost import copy_out_cost
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared.gathered import flat_vector
from s2sim.reducers.shared.pairs import Pairs, pairs_to_mean
from s2sim.reducers.shared.selection import Selecting, select_largest


@dataclass(slots=True)
class ScaleCom(Selecting):
    """A broadcast of the indices of one rank's k largest elements, then an all-reduce of everybody's values at these.

    C.-Y. Chen et al., NeurIPS 2020, by its abstract and reviews: cyclic local top-k (CLT-k). The leader of step t is
    rank t mod P. Given the indices, values add up, and bytes do not grow with the number of ranks. The paper's low-pass
    filtered residual, m <- (1-b) m + b (m + g - sent), is error feedback of its own kind, ``ef=filtered``. Where the
    leader holds fewer than k elements, element 0 fills up.

    Attributes
    ----------
    density : float
        Fraction of the elements, zeros included, that the leader selects, in (0, 1].
    """

    density: float = 0.01

    about = Traits(
        name="scalecom",
        summary="an all-reduce of the elements that are largest on one rank, each in turn",
        source="Chen et al., ScaleCom: Scalable Sparsified Gradient Compression, NeurIPS 2020",
        feedback="needed",
        formula="8k(P-1)/P, and 4k to pass the leader's indices on",
        certainty="summary read",
    )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Let the leader choose, all-reduce what it has chosen."""
        k = elements_kept(gradient.size, self.density)
        leader = rank.step % rank.size
        own_choice = None
        if rank.index == leader:
            own_choice, _ = select_largest(rank, gradient, self.density).message(length=k)
        told = rank.broadcast(own_choice, root=leader, label="the leader's largest elements")
        yield told

        indices = told.value.astype(np.int64)
        rank.work(copy_out_cost(k, scattered=True))
        values = round_to_dtype(flat_vector(gradient)[indices], self.held)
        total = rank.all_reduce(values, label="values of these elements")
        yield total
        rank.work(cost.add_pairs(gradient.nbytes, k))

        # What fills up stands there more than once.
        chosen, places = rank.replicated(lambda: np.unique(indices, return_index=True))
        mean = rank.replicated(lambda: pairs_to_mean(Pairs(chosen, widen(total.value)[places]), rank.size, gradient))
        return Reduced(mean, sent=lambda: self.sent_alone(rank, gradient, Pairs(chosen, widen(values)[places])))
