"""gTop-k: the k largest of everybody's k largest, merged pair by pair up a tree and broadcast from its root."""

from __future__ import annotations

from dataclasses import dataclass

from s2sim.codecs.top_k import elements_kept
from s2sim.gradients.gradient import Gradient
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared.pairs import intersect_pairs, merge_pairs, pairs_to_mean, read_padded_pairs
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

    Attributes
    ----------
    density : float
        Fraction of the elements, zeros included, that each rank selects and the result keeps, in (0, 1].
    """

    density: float = 0.01

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
