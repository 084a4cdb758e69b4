"""Top-k of each rank, by sampled thresholds, and of all: up a tree, by all-to-all, by a leader's indices."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from typing import Literal, Self

import numpy as np

from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.hashing import check_key_space, decode_distances, encode_distances
from s2sim.codecs.top_k import elements_kept, select_top_k, to_pairs
from s2sim.gradients.gradient import Gradient
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared import pairs as coo
from s2sim.reducers.shared import selection
from s2sim.reducers.shared.gathered import flat_vector, from_flat_vector


@dataclass(slots=True)
class TopK(selection.Selecting):
    """An all-gather of (index, value) pairs of the k elements of largest magnitude, of the gradient or of each layer.

    k is known in advance and the same on all ranks, so that no size is exchanged and no host waits for one. Pairs
    (0, 0.0) fill up where a rank stores fewer values.
    """

    density: float = 0.01
    granularity: selection.Granularity = "global"

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        k = selection.count_kept(gradient, self.density, self.granularity)
        pairs = selection.select_largest(rank, gradient, self.density, self.granularity)
        gathered = yield from rank.all_gather(pairs.message(self.held, length=k), label="largest elements")
        rank.work(cost.add_pairs(gradient.nbytes, rank.size * k))

        def mean() -> Gradient:
            total = coo.add_pairs(np.zeros(gradient.size, np.float32), gathered)
            return from_flat_vector(total / np.float32(rank.size), gradient)

        return Reduced(rank.replicated(mean), sent=lambda: self.sent_alone(rank, gradient, pairs))

    @property
    def traits(self) -> Traits:
        return self.about if self.granularity == "global" else replace(self.about, scope="bucket")

    def contraction(self, gradient: Gradient) -> float | None:
        """Return k/n: no k elements have a larger square (Stich et al., NeurIPS 2018, section 2)."""
        return selection.smallest_kept_share(gradient, self.density, self.granularity)


@dataclass(slots=True)
class DgcSelect(selection.Selecting):
    """An all-gather of the elements of largest magnitude of each layer, with 0.001 of them as default.

    Y. Lin et al., "Deep gradient compression", ICLR 2018, algorithm 4 less momentum, as recalled; the authors'
    repository was read. There vectors, such as biases, travel densely beside it, which is not done here.
    """

    density: float = 0.001
    coding: Literal["int32", "int64", "distance16"] = "int64"
    threshold: Literal["exact", "sampled"] = "exact"

    @property
    def traits(self) -> Traits:
        pair_bytes = {"int32": 8, "int64": 12, "distance16": 6}[self.coding]
        return replace(self.about, formula=f"{pair_bytes}k(P-1)")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        known, coded = self.threshold == "exact", self.coding == "distance16"
        find = selection.select_largest if known else selection.select_approximately
        pairs = find(rank, gradient, self.density, "layer")
        if coded:
            message = encode_distances(pairs.indices, round_to_dtype(pairs.values, self.held))
        else:
            # Where the size is fixed, zeros fill up.
            k = selection.count_kept(gradient, self.density, "layer") if known else len(pairs)
            padded = to_pairs(pairs.indices, pairs.values, k)
            dtype = np.int64 if self.coding == "int64" else np.uint32
            message = padded["indices"].astype(dtype), round_to_dtype(padded["values"], self.held)
        gathered = yield from rank.all_gather(message, label="largest elements", size_from_data=coded or not known)
        rank.work(cost.add_pairs(gradient.nbytes, sum(len(values) for _, values in gathered)))

        def mean() -> Gradient:
            decoded = [(decode_distances(at, gradient.size), values) for at, values in gathered] if coded else gathered
            total = coo.add_pairs(np.zeros(gradient.size, np.float32), decoded)
            return from_flat_vector(total / np.float32(rank.size), gradient)

        return Reduced(rank.replicated(mean), sent=lambda: self.sent_alone(rank, gradient, pairs))

    def contraction(self, gradient: Gradient) -> float | None:
        """Return k/n of the layer that keeps least, where selection is exact."""
        return selection.smallest_kept_share(gradient, self.density, "layer") if self.threshold == "exact" else None


@dataclass(slots=True)
class GTopK(selection.Selecting):
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

    density: float = 0.01

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        k = elements_kept(gradient.size, self.density)
        own = selection.select_largest(rank, gradient, self.density)

        # Of the ranks that are left, every second one hands its pairs to the one before it, and is done.
        left, gap = own, 1
        while gap < rank.size:
            handed = {rank.index - gap: left.message(self.held, length=k)} if rank.index % (2 * gap) == gap else {}
            arrived = yield from rank.exchange(handed, label=f"pairs, {gap} rank{'s' if gap > 1 else ''} down")
            for message in arrived.values():
                merged = coo.merge_pairs([left, coo.read_padded_pairs(message)])
                rank.work(cost.merge_pairs_cost(2 * k, len(merged), 2))
                rank.work(cost.select(len(merged), k))
                left = merged.largest(k)
            gap *= 2

        top = left.message(self.held, length=k) if rank.index == 0 else None
        result = yield from rank.broadcast(top, root=0, label="largest of all")
        rank.work(cost.add_pairs(gradient.nbytes, k))
        kept = rank.replicated(lambda: coo.read_padded_pairs(result))
        mean = rank.replicated(lambda: coo.pairs_to_mean(kept, rank.size, gradient))
        return Reduced(mean, sent=lambda: self.sent_alone(rank, gradient, coo.intersect_pairs(own, kept)))


MAX_DENSITY = 0.5
"""Density from which on TopKA2A sends more than a dense all-reduce: 2k + n < 2n."""


def least_density(ranks: int) -> float:
    """Return the density up to which gathering all pairs sends no more than TopKA2A: (2k + n) / P < 2k.

    >>> round(least_density(16), 4)
    0.0333
    """
    return 1 / (2 * (ranks - 1)) if ranks > 1 else inf


@dataclass(slots=True)
class TopKA2A(selection.Selecting):
    """An all-to-all of (index, value) pairs, the largest of each of P shards, and an all-gather of the shards' sums.

    Algorithm 1 as a third-party re-implementation (HymaJayaram-067/AlltoAll) says that it follows; the paper itself was
    not read. It takes the largest by MSTopK, a search for a threshold that finds about as many; here they are exactly
    the largest, k/n of each shard and at least one.

    It sends less than an all-gather of as many pairs where k/n > 1/(2(P-1)), and less than a dense all-reduce where
    k/n < 1/2; the notes of a run say on which side it is.
    """

    density: float = 0.01
    calls: Literal["separate", "together"] = "separate"

    ranks: int | None = field(init=False, repr=False, compare=False, default=None, metadata={"fitted": True})
    """Ranks of the run that its notes are about."""

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        check_key_space(0, gradient.size)
        vector = flat_vector(gradient)
        cuts = chunk_bounds(len(vector), rank.size)
        shards = [vector[start:stop] for start, stop in pairwise(cuts)]

        kept = [select_top_k(shard, elements_kept(len(shard), self.density)) for shard in shards]
        pairs = [coo.Pairs(places, shard[places]) for places, shard in zip(kept, shards, strict=True)]
        rank.work(cost.select(len(vector), sum(map(len, pairs))))

        calls = 2 if self.calls == "separate" else 1
        came = yield from coo.send_to_owners(rank, pairs, self.held, calls=calls, size_from_data=False)
        total = yield from coo.gather_dense_sums(rank, came, cuts, self.held)
        mean = rank.replicated(lambda: from_flat_vector(total / np.float32(rank.size), gradient))

        own = [each.shifted(start) for each, start in zip(pairs, cuts, strict=False)]
        return Reduced(mean, sent=lambda: self.sent_alone(rank, gradient, coo.concatenate_pairs(own)))

    def alignment(self, ranks: int) -> int:
        """Return those of which each shard keeps one."""
        return ranks * super(TopKA2A, self).alignment(ranks)

    def fitted(self, gradients: Sequence[Gradient], seed: int) -> Self:
        return self.variant(ranks=len(gradients))

    def notes(self) -> tuple[str, ...]:
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
class ScaleCom(selection.Selecting):
    """A broadcast of the indices of one rank's k largest elements, then an all-reduce of everybody's values at these.

    C.-Y. Chen et al., NeurIPS 2020, by its abstract and reviews: cyclic local top-k (CLT-k). The leader of step t is
    rank t mod P. Given the indices, values add up, and bytes do not grow with the number of ranks. The paper's low-pass
    filtered residual, m <- (1-b) m + b (m + g - sent), is error feedback of its own kind, ``ef=filtered``. Where the
    leader holds fewer than k elements, element 0 fills up.
    """

    density: float = 0.01

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        k = elements_kept(gradient.size, self.density)
        leader = rank.step % rank.size
        own_choice = None
        if rank.index == leader:
            own_choice, _ = selection.select_largest(rank, gradient, self.density).message(length=k)
        told = yield from rank.broadcast(own_choice, root=leader, label="the leader's largest elements")

        indices = told.astype(np.int64)
        rank.work(cost.copy_out_cost(k, scattered=True))
        values = round_to_dtype(flat_vector(gradient)[indices], self.held)
        total = yield from rank.all_reduce(values, label="values of these elements")
        rank.work(cost.add_pairs(gradient.nbytes, k))

        # What fills up stands there more than once.
        chosen, places = rank.replicated(lambda: np.unique(indices, return_index=True))
        mean = rank.replicated(lambda: coo.pairs_to_mean(coo.Pairs(chosen, widen(total)[places]), rank.size, gradient))
        return Reduced(mean, sent=lambda: self.sent_alone(rank, gradient, coo.Pairs(chosen, widen(values)[places])))
