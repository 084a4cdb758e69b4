"""Global top-k: up a tree, by all-to-all, and by the indices of a leader in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Literal

import numpy as np

from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.hashing import check_key_space
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.gradients.gradient import Gradient
from s2sim.options import option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.gpu_cost import copy_out_cost
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared.gathered import flat_vector, from_flat_vector
from s2sim.reducers.shared.pairs import (
    Pairs,
    gather_dense_sums,
    intersect_pairs,
    merge_pairs,
    pairs_to_mean,
    read_padded_pairs,
    send_to_owners,
)
from s2sim.reducers.shared.selection import Selecting, select_largest


@dataclass(slots=True)
class GTopK(Selecting):
    """A tree of ceil(log2 P) rounds in which k pairs and k pairs become k, then a broadcast of those that are left.

    S. Shi et al., ICDCS 2019, as the authors' code has it. That needs a power of two of ranks; here, a rank without a
    partner in a round waits for the next one, which changes nothing where theirs runs. Their indices travel as
    float32, exact below 2^24 only; here they are uint32, of the same length. Where fewer than k elements are not zero,
    pairs of zero fill up.

    A rank counts those of its k values as sent whose index is among the k that are left: for these the authors' code
    clears its residual. An index that is dropped in one branch of the tree and survives by way of another is cleared
    everywhere, and what the first branch had of it is lost; so the sum over ranks of what is sent is P times the mean
    only where that does not happen, as with two ranks.
    """

    density: float = option(
        0.01, "Fraction of the elements, zeros included, that each rank selects and the result keeps, in (0, 1]."
    )

    about = Traits(
        name="gtopk",
        summary="the k largest of all ranks' k largest, merged up a tree and broadcast",
        source="Shi et al., A Distributed Synchronous SGD Algorithm with Global Top-k Sparsification, ICDCS 2019; "
        "github.com/hclhkbu/gtopkssgd",
        adds_up=False,
        feedback="needed",
        formula="at most 16k; 16k ceil(log2 P) along the longest path",
        certainty="code read",
        scope="gradient",
    )

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Select, merge up the tree, broadcast down."""
        k = elements_kept(gradient.size, self.density)
        own = select_largest(rank, gradient, self.density)

        # Of the ranks that are left, every second one hands its pairs to the one before it, and is done.
        left, gap = own, 1
        while gap < rank.size:
            hands_over = rank.index % (2 * gap) == gap
            handed = {rank.index - gap: left.message(self.held, length=k)} if hands_over else {}
            arrived = rank.exchange(handed, label=f"pairs, {gap} rank{'s' if gap > 1 else ''} down")
            yield arrived
            for message in arrived.value.values():
                merged = merge_pairs([left, read_padded_pairs(message)])
                rank.work(cost.merge_pairs_cost(2 * k, len(merged), 2))
                rank.work(cost.select(len(merged), k))
                left = merged.largest(k)
            gap *= 2

        top = left.message(self.held, length=k) if rank.index == 0 else None
        result = rank.broadcast(top, root=0, label="largest of all")
        yield result
        rank.work(cost.add_pairs(gradient.nbytes, k))
        kept = rank.replicated(lambda: read_padded_pairs(result.value))
        mean = rank.replicated(lambda: pairs_to_mean(kept, rank.size, gradient))
        return Reduced(mean, sent=lambda: self.sent_alone(rank, gradient, intersect_pairs(own, kept)))


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
    """

    density: float = 0.01
    calls: Literal["separate", "together"] = option(
        "separate",
        "Indices and values in an all-to-all each, one after the other, or in one: 3(P-1) or 2(P-1) messages a rank.",
    )

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

    def alignment(self, ranks: int) -> int:
        """Return those of which each shard keeps one."""
        return ranks * super(TopKA2A, self).alignment(ranks)

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


@dataclass(slots=True)
class ScaleCom(Selecting):
    """A broadcast of the indices of one rank's k largest elements, then an all-reduce of everybody's values at these.

    C.-Y. Chen et al., NeurIPS 2020, by its abstract and reviews: cyclic local top-k (CLT-k). The leader of step t is
    rank t mod P. Given the indices, values add up, and bytes do not grow with the number of ranks. The paper's low-pass
    filtered residual, m <- (1-b) m + b (m + g - sent), is error feedback of its own kind, ``ef=filtered``. Where the
    leader holds fewer than k elements, element 0 fills up.
    """

    density: float = option(0.01, "Fraction of the elements, zeros included, that the leader selects, in (0, 1].")

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
