"""ACP-SGD: one of PowerSGD's two narrow matrices a step, by turns, so that one all-reduce is enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from s2sim.arrays import Floats32
from s2sim.gradients.gradient import Gradient
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared.low_rank import LowRank, Matrices, Matrix, averages, orthonormal_basis, outer_product


@dataclass(slots=True)
class AcpSGD(LowRank):
    """An all-reduce of P = M Q in one step, and of Q = M^T P in the next; what is kept is made orthonormal before.

    L. Zhang et al., "Evaluation and optimization of gradient compression for distributed deep learning", ICDCS 2023;
    the code that was read is ``acpsgd.py`` in github.com/lzhangbv/acpsgd. The first step sends P of a random Q, which
    keeps about r/b of what a matrix with b columns is; later ones find the rest (``warm=true`` shows the second). Each
    rank has sent P Q^T with a P or Q of its own, and keeps what is left (``ef=true``). The original fuses messages of
    up to 5 MB as they become ready in backward; here all of a step are one.

    Attributes
    ----------
    rank : int
        Columns of P and Q; 4 by default, as in the code.
    min_compression : float
        A matrix travels as it is unless the mean of P and Q is more than so many times smaller; by default all do.
    """

    rank: int = 4
    min_compression: float = 0.0
    last: list[Floats32] | None = field(init=False, repr=False, default=None)
    sends_left: bool = field(init=False, repr=False, default=True)

    about = Traits(
        name="acp-sgd",
        summary="one all-reduce of one of two narrow matrices, by turns, whose product is near the gradient",
        source="Zhang et al., Evaluation and Optimization of Gradient Compression, ICDCS 2023; "
        "github.com/lzhangbv/acpsgd",
        carries=True,
        feedback="needed",
        formula="8(P-1)/P (sum over matrices a x b of ra or rb by turns, and all other elements)",
        certainty="code read",
        size_only=True,
    )

    def kept_share(self, matrix: Matrix) -> float:
        """Return what a random subspace keeps: the first step projects the rows on one that knows nothing of them."""
        return matrix.rank / matrix.columns

    def reduce_matrices(self, rank: Rank, split: Matrices) -> Program:
        """Make orthonormal, multiply, sum, multiply."""
        left = self.sends_left
        last = self.last or rank.replicated(lambda: self.random_queries(rank, split))
        for matrix in split.matrices:
            rank.work(cost.orthogonalise_cost(matrix.columns if left else matrix.rows, matrix.rank))
        basis = rank.replicated(lambda: list(map(orthonormal_basis, last)))

        # P = M Q, or Q = M^T P, summed over ranks; layers that are no matrices join its launch.
        own = split.times(rank, basis) if left else split.transposed_times(rank, basis)
        total = split.post(rank, own, "P" if left else "Q")
        others = split.post_others(rank)
        yield total if others is None else total & others

        found = rank.replicated(lambda: averages(total, rank.size))
        self.last, self.sends_left = found, not left

        def products(narrow: Sequence[Floats32]) -> list[Floats32]:
            pairs = zip(narrow, basis, strict=True) if left else zip(basis, narrow, strict=True)
            return [outer_product(*pair) for pair in pairs]

        def sent() -> Gradient:
            split.charge_products(rank, "encode")
            return split.join(products(own), split.others)

        split.charge_products(rank)
        return Reduced(rank.replicated(lambda: split.mean(products(found), others, rank.size)), sent)
