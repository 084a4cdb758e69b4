"""Top-k sparsification: every rank sends its k largest elements to all others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from s2sim.gradients.gradient import Gradient
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared.gathered import from_flat_vector
from s2sim.reducers.shared.pairs import add_pairs
from s2sim.reducers.shared.selection import Granularity, Selecting, count_kept, select_largest, smallest_kept_share


@dataclass(slots=True)
class TopK(Selecting):
    """An all-gather of (index, value) pairs of the k elements of largest magnitude, of the gradient or of each layer.

    k is known in advance and the same on all ranks, so that no size is exchanged and no host waits for one. Pairs
    (0, 0.0) fill up where a rank stores fewer values.

    Attributes
    ----------
    granularity : {"layer", "global"}
        Whether the largest are those of each layer (``TopKReducer`` of github.com/epfml/powersgd, GRACE) or of the
        whole gradient (``GlobalTopKReducer``). The pairs of all layers are packed into one message in both. Where
        training exchanges gradients in buckets, those of a layer leave with their bucket; those of the whole gradient
        wait for it, as no bucket by itself knows which they are.
    """

    density: float = 0.01
    granularity: Granularity = "global"

    about = Traits(
        name="topk",
        summary="an all-gather of each rank's k largest elements as index and value",
        source="Aji and Heafield, Sparse Communication for Distributed Gradient Descent, EMNLP 2017",
        feedback="needed",
        formula="8k(P-1)",
        certainty="code read",
        size_only=True,
        scope="gradient",
    )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Select, gather, add all pairs up."""
        k = count_kept(gradient, self.density, self.granularity)
        pairs = select_largest(rank, gradient, self.density, self.granularity)
        gathered = rank.all_gather(pairs.message(self.held, length=k), label="largest elements")
        yield gathered
        rank.work(cost.add_pairs(gradient.nbytes, rank.size * k))

        def mean() -> Gradient:
            total = add_pairs(np.zeros(gradient.size, np.float32), gathered.value)
            return from_flat_vector(total / np.float32(rank.size), gradient)

        return Reduced(rank.replicated(mean), sent=lambda: self.sent_alone(rank, gradient, pairs))

    @property
    def traits(self) -> Traits:
        """With what it is defined over, which the granularity decides."""
        return self.about if self.granularity == "global" else replace(self.about, scope="bucket")

    def contraction(self, gradient: Gradient) -> float | None:
        """Return k/n: no k elements have a larger square (Stich et al., NeurIPS 2018, section 2)."""
        return smallest_kept_share(gradient, self.density, self.granularity)
