"""Low-rank factors of gradient matrices: PowerSGD, and ACP-SGD, which alternates them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from s2sim.arrays import Floats32
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, average, stored
from s2sim.options import option
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import GradientDtype, Pending, Program, Rank, Reduced, Reducer, Traits, wait_all
from s2sim.reducers.script import Phase
from s2sim.reducers.shared.sparse_split import join_layers, post_uncompressed, without_layers
from s2sim.seeds import named_generator


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A layer as a matrix of ``rows`` x ``columns``: its first dimension, and all others together.

    GPUs store rows that the layer does not store too, and are charged for them.
    """

    layer: Layer
    rows: int
    columns: int
    rank: int  # Columns of each of the two narrow matrices; at most the shorter side

    def times(self, factor: Floats32, *, transposed: bool) -> Floats32:
        """Return its product, or that of the transposed matrix, with a narrow one, float32 of shape (..., rank)."""
        stored_rows = stored(self.layer).reshape(-1, self.columns)
        if not isinstance(self.layer, RowSparse):
            return (stored_rows.T if transposed else stored_rows) @ factor
        if transposed:
            return stored_rows.T @ factor[self.layer.rows]
        product = np.zeros((self.rows, factor.shape[1]), np.float32)
        product[self.layer.rows] = stored_rows @ factor
        return product


@dataclass(frozen=True, slots=True, eq=False)
class Matrices:
    """A gradient, separated into matrices and other layers."""

    gradient: Gradient
    places: tuple[int, ...]  # Indices of the layers that are taken as matrices
    matrices: tuple[Matrix, ...]  # These layers
    others: Gradient  # All other layers
    held: GradientDtype  # Dtype of values that are sent

    def times(self, rank: Rank, factors: Sequence[Floats32], *, transposed: bool = False) -> list[Floats32]:
        """Return the product of each matrix, or of each transposed one, with a factor, as sent, and charge the GPU."""
        for matrix in self.matrices:
            rank.work(cost.multiply_cost(matrix.rows, matrix.columns, matrix.rank))
        pairs = zip(self.matrices, factors, strict=True)
        return [widen(round_to_dtype(matrix.times(own, transposed=transposed), self.held)) for matrix, own in pairs]

    def post(self, rank: Rank, narrow: Sequence[Floats32], label: str) -> Pending:
        """Post the all-reduce of one narrow matrix per matrix, packed into one message."""
        return rank.all_reduce(tuple(round_to_dtype(matrix, self.held) for matrix in narrow), label=label)

    def post_others(self, rank: Rank) -> Pending | None:
        """Post the all-reduce of the other layers; None if there are none."""
        return post_uncompressed(rank, self.others, self.held, "other layers")

    def charge_products(self, rank: Rank, phase: Phase = "decode") -> None:
        """Charge the GPU for multiplying the two narrow matrices of each matrix."""
        for matrix in self.matrices:
            rank.work(cost.multiply_cost(matrix.rows, matrix.rank, matrix.columns, phase))

    def mean(self, products: Sequence[Floats32], others: Pending | None, ranks: int) -> Gradient:
        """Return the mean of all layers: of the matrices ``products``, of the others from their all-reduce."""
        return self.join(products, self.others if others is None else average(others.value.map(widen), ranks))

    def join(self, products: Sequence[Floats32], others: Gradient) -> Gradient:
        """Return the gradient of these products and other layers, each layer in its original shape."""
        return join_layers(self.gradient, dict(zip(self.places, products, strict=True)), others)


def split_matrices(gradient: Gradient, rank: int, min_compression: float, held: GradientDtype) -> Matrices:
    """Return a gradient as matrices of this rank and other layers: vectors, and what would shrink too little.

    A matrix must have more than ``min_compression`` times the elements of the two narrow ones.
    """
    matrices = {}
    for index, layer in enumerate(gradient.layers):
        if len(layer.shape) > 1 and layer.size:
            rows, columns = layer.shape[0], layer.size // layer.shape[0]
            matrix = Matrix(layer, rows, columns, min(rank, rows, columns))
            if layer.size > min_compression * matrix.rank * (rows + columns):
                matrices[index] = matrix
    others = without_layers(gradient, matrices)
    return Matrices(gradient, tuple(matrices), tuple(matrices.values()), others, held)


def averages(total: Pending, ranks: int) -> list[Floats32]:
    """Return the narrow matrices of a finished `Matrices.post`, divided by the number of ranks."""
    return [np.divide(widen(matrix), ranks, dtype=np.float32) for matrix in total.value]


def orthonormal_basis(narrow: Floats32) -> Floats32:
    """Return orthonormal columns that span those of a matrix with at least as many rows, float32 of its shape.

    Those of Gram-Schmidt except for signs, from a QR factorisation in float64; arbitrary ones replace dependent
    columns.
    """
    return np.linalg.qr(narrow.astype(np.float64)).Q.astype(np.float32)


class LowRank(Reducer):
    """A reducer of matrices; vectors, and matrices that would shrink too little, are all-reduced as they are.

    Attributes
    ----------
    rank : int
        Columns of the two matrices, at most the shorter side of the one that they stand for.
    min_compression : float
        A matrix travels as it is unless it becomes more than so many times smaller.
    """

    __slots__ = ()
    minimums: ClassVar = {"rank": 1}
    rank: int
    min_compression: float

    def __post_init__(self) -> None:
        Reducer.__post_init__(self)
        if not 0 <= self.min_compression < float("inf"):
            raise OptionError(f"{self.about.name}: min_compression={self.min_compression} is not a number from 0")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Reduce matrices and others."""
        split = split_matrices(gradient, self.rank, self.min_compression, self.held)
        if split.matrices:
            return (yield from self.reduce_matrices(rank, split))
        others = split.post_others(rank)
        yield from wait_all(others)
        mean = rank.replicated(lambda: split.mean([], others, rank.size))
        return Reduced(mean, sent=lambda: gradient)

    @property
    def least_side(self) -> int:
        """The rank, which no shorter side can have."""
        return self.rank

    @abstractmethod
    def reduce_matrices(self, rank: Rank, split: Matrices) -> Program:
        """Return the program for a gradient with at least one matrix."""

    def random_queries(self, rank: Rank, split: Matrices) -> list[Floats32]:
        """Return the right factors of the first step: normal numbers, the same on all ranks."""
        return [
            named_generator(rank.seed, self.about.name, rank.step, place).standard_normal(
                (matrix.columns, matrix.rank), np.float32
            )
            for place, matrix in zip(split.places, split.matrices, strict=True)
        ]

    def contraction(self, gradient: Gradient) -> float | None:
        """Return the least share of a layer's square that a random query keeps, in expectation.

        A random subspace of dimension r keeps r / n of a matrix with n rows. That of M Q is turned towards the large
        components of M, and keeps at least as much: by d/dt of tr(A Pi), where Pi projects on exp(Lt) S, and A and L
        are functions of M that grow together, which is a sum of squares times (a_i - a_j)(l_i - l_j).
        """
        split = split_matrices(gradient, self.rank, self.min_compression, self.held)
        return min((self.kept_share(matrix) for matrix in split.matrices), default=1.0)

    def kept_share(self, matrix: Matrix) -> float:
        """Return the share of a matrix's square that is kept, in expectation."""
        return matrix.rank / min(matrix.rows, matrix.columns)

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return the layers that are taken as matrices."""
        return split_matrices(gradient, self.rank, self.min_compression, self.held).places


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
        yield from wait_all(lefts, others)

        for matrix in split.matrices:
            rank.work(cost.orthogonalise_cost(matrix.rows, matrix.rank))
        basis = rank.replicated(lambda: list(map(orthonormal_basis, averages(lefts, rank.size))))

        # Q = M^T P, summed over ranks.
        rights = split.post(rank, split.times(rank, basis, transposed=True), "Q")
        yield rights
        found = rank.replicated(lambda: averages(rights, rank.size))
        if self.reuse_query:
            # Times powers of two, so that products with them neither overflow nor vanish over many steps.
            exponents = [-int(np.frexp(np.abs(right).max())[1]) for right in found]
            self.query = rank.replicated(lambda: list(map(np.ldexp, found, exponents)))

        split.charge_products(rank)
        products = rank.replicated(lambda: [left @ right.T for left, right in zip(basis, found, strict=True)])
        mean = rank.replicated(lambda: split.mean(products, others, rank.size))
        return Reduced(mean, sent=lambda: split.join(products, split.others))


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
        own = split.times(rank, basis, transposed=not left)
        total = split.post(rank, own, "P" if left else "Q")
        others = split.post_others(rank)
        yield from wait_all(total, others)

        found = rank.replicated(lambda: averages(total, rank.size))
        self.last, self.sends_left = found, not left

        def products(narrow: Sequence[Floats32]) -> list[Floats32]:
            pairs = zip(narrow, basis, strict=True) if left else zip(basis, narrow, strict=True)
            return [left_factor @ right.T for left_factor, right in pairs]

        def sent() -> Gradient:
            split.charge_products(rank, "encode")
            return split.join(products(own), split.others)

        split.charge_products(rank)
        return Reduced(rank.replicated(lambda: split.mean(products(found), others, rank.size)), sent)
