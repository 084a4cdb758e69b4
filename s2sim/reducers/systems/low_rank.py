"""Low-rank factors of gradient matrices: PowerSGD, and ACP-SGD, which alternates them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from s2sim.arrays import Floats32
from s2sim.gradients.gradient import Gradient
from s2sim.options import option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared.low_rank import LowRank, Matrices, Matrix, averages, orthonormal_basis, outer_product


@dataclass(slots=True)
class PowerSGD(LowRank):
    """An all-reduce of P = M Q and one of Q = M^T P, with P made orthonormal between them; the mean of M is P Q^T.

    T. Vogels et al., "PowerSGD: practical low-rank gradient compression for distributed optimization", NeurIPS 2019,
    algorithm 1; the code that was read is ``RankKReducer`` in github.com/epfml/powersgd, paper-code. Q is that of the
    step before, in the first step normal. P is made orthonormal by a QR factorisation, whose columns are those of
    Gram-Schmidt but for signs, which fall out of P Q^T. The original adds 1e-8 to each norm, so that tiny gradients
    shrink and a zero Q stays zero for ever; here a Q is scaled by a power of two, and a zero P becomes unit vectors.

    All ranks end with the same P Q^T, and each keeps what its own M differs from that (algorithm 2): the sum over ranks
    of what was sent is P times the mean, but what a single rank "sent" is not its own contribution. PowerSGD is
    biased and needs this feedback (``ef=true``).
    """

    rank: int = option(2, "Columns of P and Q: 2 by default, the paper's choice for ResNet-18; 1 in later code.")
    min_compression: float = option(
        0.0,
        "A matrix travels as it is unless this makes it more than so many times smaller: 0, all do, in the paper's "
        "code; 2 in the later package and PyTorch's hook.",
    )
    reuse_query: bool = option(True, "Start from the Q of the step before; if not, from a new random one in each step.")
    query: list[Floats32] | None = field(init=False, repr=False, default=None)

    about = Traits(
        name="powersgd",
        summary="two all-reduces of narrow matrices whose product is the gradient's best in few dimensions",
        source="Vogels, Karimireddy and Jaggi, PowerSGD, NeurIPS 2019; github.com/epfml/powersgd, paper-code",
        carries=True,
        feedback="needed",
        formula="8(P-1)/P (sum over matrices a x b of r(a+b), and all other elements)",
        certainty="code read",
        size_only=True,
    )

    def reduce_matrices(self, rank: Rank, split: Matrices) -> Program:
        """Multiply, sum, make orthonormal, multiply, sum, multiply."""
        # P = M Q, summed over ranks; layers that are no matrices join its launch.
        query = self.query or rank.replicated(lambda: self.random_queries(rank, split))
        lefts = split.post(rank, split.times(rank, query), "P")
        others = split.post_others(rank)
        yield lefts if others is None else lefts & others

        for matrix in split.matrices:
            rank.work(cost.orthogonalise_cost(matrix.rows, matrix.rank))
        basis = rank.replicated(lambda: list(map(orthonormal_basis, averages(lefts, rank.size))))

        # Q = M^T P, summed over ranks.
        rights = split.post(rank, split.transposed_times(rank, basis), "Q")
        yield rights
        found = rank.replicated(lambda: averages(rights, rank.size))
        if self.reuse_query:
            self.query = rank.replicated(lambda: [_rescale_query(right) for right in found])

        split.charge_products(rank)
        products = rank.replicated(lambda: list(map(outer_product, basis, found)))
        mean = rank.replicated(lambda: split.mean(products, others, rank.size))
        return Reduced(mean, sent=lambda: split.join(products, split.others))


def _rescale_query(query: Floats32) -> Floats32:
    """Return a matrix times a power of two, so that products with it neither overflow nor vanish over many steps."""
    _, exponent = np.frexp(np.abs(query).max())
    return np.ldexp(query, -int(exponent), dtype=np.float32)


@dataclass(slots=True)
class AcpSGD(LowRank):
    """An all-reduce of P = M Q in one step, and of Q = M^T P in the next; what is kept is made orthonormal before.

    L. Zhang et al., "Evaluation and optimization of gradient compression for distributed deep learning", ICDCS 2023;
    the code that was read is ``acpsgd.py`` in github.com/lzhangbv/acpsgd. The first step sends P of a random Q, which
    keeps about r/b of what a matrix with b columns is; later ones find the rest (``warm=true`` shows the second). Each
    rank has sent P Q^T with a P or Q of its own, and keeps what is left (``ef=true``). The original fuses messages of
    up to 5 MB as they become ready in backward; here all of a step are one.
    """

    rank: int = option(4, "Columns of P and Q; 4 by default, as in the code.")
    min_compression: float = option(
        0.0,
        "A matrix travels as it is unless the mean of P and Q is more than so many times smaller; by default all do.",
    )
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
