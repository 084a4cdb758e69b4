"""Sketched-SGD: the summed sketch says which elements may be the largest, a second round what they are."""

from __future__ import annotations

from dataclasses import dataclass, replace

from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.top_k import elements_kept
from s2sim.gradients.gradient import Gradient
from s2sim.options import check_options
from s2sim.reducers import gpu_cost
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared.gathered import flat_vector
from s2sim.reducers.shared.pairs import Pairs, intersect_pairs, pairs_to_mean
from s2sim.reducers.shared.sketch_cost import unsketch_cost
from s2sim.reducers.shared.sketch_tables import HeavyHitters, encode_gradient, largest_estimates, seed_of


@dataclass(slots=True)
class SketchedSGD(HeavyHitters):
    """An all-reduce of count sketches of everything, then one of the exact values of C k candidates, of which k stay.

    N. Ivkin et al., NeurIPS 2019, by its abstract and the authors' code, which has a server in the place of the
    all-reduces. A rank counts as sent its own values of the k elements that stay: the rest is for error feedback, as in
    the paper. Its momentum, masked at these elements, is no part of it. Hash functions are others in every step, as in
    ``s2``; in the code they stay. That four times as many candidates travel as stay is recalled, and so is therefore
    what it sends; with ``candidates=1`` everything is the code's.

    Attributes
    ----------
    density : float
        Fraction of the elements, zeros included, that is kept, in (0, 1].
    rows, columns : int
        Of the sketch: 5, and ten columns for each element kept, as in the code, unless given.
    candidates : int
        C: how many times as many elements as are kept travel in the second round. 4 is recalled; the code's is 1.
    """

    density: float = 0.01
    rows: int = 5
    columns: int | None = None
    candidates: int = 4

    about = Traits(
        name="sketched-sgd",
        summary="an all-reduce of count sketches, then one of the exact values of the largest estimates",
        source="Ivkin et al., Communication-efficient Distributed SGD with Sketching, NeurIPS 2019; "
        "github.com/kiddyboots216/CommEfficient",
        feedback="needed",
        formula="8rc(P-1)/P + 8Ck(P-1)/P for r x c cells",
        certainty="recalled",
        scope="gradient",
    )

    @property
    def traits(self) -> Traits:
        """As many candidates as the code has make it that of the code."""
        return replace(self.about, certainty="code read") if self.candidates == 1 else self.about

    def __post_init__(self) -> None:
        HeavyHitters.__post_init__(self)
        check_options(self, "sketched-sgd", candidates=1)

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Sum sketches, look for candidates, sum their values, keep the largest."""
        k = elements_kept(gradient.size, self.density)
        sketch = self.sketch_for(gradient.size, k, rank.size, seed_of(rank.seed, rank.step))
        cells = rank.all_reduce(encode_gradient(rank, sketch, gradient), label="sketch")
        yield cells
        wanted = self.candidates * k
        for work in unsketch_cost(gradient.size, wanted, sketch):
            rank.work(work)
        candidates = rank.replicated(lambda: largest_estimates(sketch, cells.value, gradient.size, wanted))

        rank.work(gpu_cost.copy_out_cost(len(candidates), scattered=True))
        values = round_to_dtype(flat_vector(gradient)[candidates.indices], self.held)
        sums = rank.all_reduce(values, label="values of candidates")
        yield sums
        rank.work(gpu_cost.select(len(candidates), k))
        rank.work(gpu_cost.add_pairs(gradient.nbytes, k))
        kept = rank.replicated(lambda: Pairs(candidates.indices, widen(sums.value)).largest(k))
        mean = rank.replicated(lambda: pairs_to_mean(kept, rank.size, gradient))
        own = Pairs(candidates.indices, widen(values))
        return Reduced(mean, sent=lambda: self.sent_alone(rank, gradient, intersect_pairs(own, kept)))
