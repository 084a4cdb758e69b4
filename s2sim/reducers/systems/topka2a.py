"""TopKA2A: the largest elements of each shard go to its owner, and the dense sums of shards to all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Literal

import numpy as np

from s2sim.codecs.hashing import check_key_space
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.gradients.gradient import Gradient
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared.gathered import flat_vector, from_flat_vector
from s2sim.reducers.shared.owners import gather_dense_sums, send_to_owners
from s2sim.reducers.shared.pairs import Pairs
from s2sim.reducers.shared.selection import Selecting

MAX_DENSITY = 0.5
"""Density from which on TopKA2A sends more than a dense all-reduce: 2k + n < 2n."""


def least_density(ranks: int) -> float:
    """Return the density up to which gathering all pairs sends no more than TopKA2A: (2k + n) / P < 2k.

    >>> round(least_density(16), 4)
    0.0333
    """
    return 1 / (2 * (ranks - 1)) if ranks > 1 else inf


@dataclass(slots=True)
class TopKA2A(Selecting):
    """An all-to-all of (index, value) pairs, the largest of each of P shards, and an all-gather of the shards' sums.

    Algorithm 1 as a third-party re-implementation (HymaJayaram-067/AlltoAll) says that it follows; the paper itself was
    not read. It takes the largest by MSTopK, a search for a threshold that finds about as many; here they are exactly
    the largest, k/n of each shard and at least one.

    It sends less than an all-gather of as many pairs where k/n > 1/(2(P-1)), and less than a dense all-reduce where
    k/n < 1/2; the notes of a run say on which side it is.

    Attributes
    ----------
    calls : {"separate", "together"}
        Indices and values in an all-to-all each, one after the other, or in one: 3(P-1) or 2(P-1) messages a rank.
    """

    density: float = 0.01
    calls: Literal["separate", "together"] = "separate"

    ranks: int | None = field(init=False, repr=False, compare=False, default=None, metadata={"fitted": True})
    """Ranks of the run that its notes are about."""

    about = Traits(
        name="topka2a",
        summary="each shard's largest elements to its owner, who sums them; an all-gather of the dense sums",
        source="Peng, Li, Shi and Li, Sparse Gradient Communication with AlltoAll, ICPP 2024",
        feedback="needed",
        formula="(8k+4n)(P-1)/P",
        certainty="summary read",
    )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Select in each shard, send to the owners, sum, gather the sums."""
        check_key_space(0, gradient.size)
        vector = flat_vector(gradient)
        cuts = chunk_bounds(len(vector), rank.size)
        shards = [vector[start:stop] for start, stop in pairwise(cuts)]

        kept = [select_top_k(shard, elements_kept(len(shard), self.density)) for shard in shards]
        pairs = [Pairs(places, shard[places]) for places, shard in zip(kept, shards, strict=True)]
        rank.work(cost.select(len(vector), sum(map(len, pairs))))

        calls = 2 if self.calls == "separate" else 1
        came = yield from send_to_owners(rank, pairs, self.held, calls=calls, size_from_data=False)
        total = yield from gather_dense_sums(rank, came, cuts, self.held)
        mean = rank.replicated(lambda: from_flat_vector(total / np.float32(rank.size), gradient))

        def sent() -> Gradient:
            indices = np.concatenate([each.indices + start for each, start in zip(pairs, cuts, strict=False)])
            values = np.concatenate([each.values for each in pairs])
            return self.sent_alone(rank, gradient, Pairs(indices, values))

        return Reduced(mean, sent)

    def unit(self, ranks: int) -> int:
        """Return those of which each shard keeps one."""
        return ranks * super(TopKA2A, self).unit(ranks)

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> TopKA2A:
        """Return one that knows how many ranks its notes are about."""
        return self.variant(ranks=len(gradients))

    def notes(self) -> tuple[str, ...]:
        """Return whether this density is one at which it sends the least."""
        if self.ranks is None or self.ranks == 1:
            return ()
        least = least_density(self.ranks)
        condition = (
            f"where {self.ranks} ranks take part, it sends fewer bytes than topk above a density of {least:.3g}, "
            f"1/(2(P-1)), and than dense below {MAX_DENSITY:g}"
        )
        if self.density <= least:
            return (f"{condition}: at {self.density:g} topk sends less",)
        return (f"{condition}: at {self.density:g} {'it does' if self.density < MAX_DENSITY else 'dense sends less'}",)
