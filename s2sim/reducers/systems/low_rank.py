"""Low-rank factors of gradient matrices: PowerSGD; ACP-SGD, which alternates them; ARC-Top-K, which picks rows."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from s2sim.arrays import Array, Floats32, Ints
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, average, stored
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import GradientDtype, Pending, Program, Rank, Reduced, Reducer, wait_all
from s2sim.reducers.script import Phase
from s2sim.reducers.shared.sparse_split import join_layers, post_uncompressed, without_layers
from s2sim.seeds import named_generator


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A layer as the matrix M of shape (n, m): its first dimension, and all others together.

    GPUs store rows that the layer does not store too, and are charged for them.
    """

    layer: Layer
    n: int
    m: int
    r: int  # Its rank: columns of P, of shape (n, r), and of Q, of shape (m, r); at most the shorter side

    def times(self, Q: Floats32) -> Floats32:
        """Return M Q, float32 of shape (n, r)."""
        stored_rows = stored(self.layer).reshape(-1, self.m)
        if not isinstance(self.layer, RowSparse):
            return stored_rows @ Q
        P = np.zeros((self.n, Q.shape[1]), np.float32)
        P[self.layer.rows] = stored_rows @ Q
        return P

    def rows(self, chosen: Ints) -> Floats32:
        """Return some increasing rows, float32 of shape (K, m)."""
        layer = self.layer
        kept = layer.keep(chosen).to_dense() if isinstance(layer, RowSparse) else layer[chosen]
        return kept.reshape(len(chosen), self.m)

    def transposed_times(self, P: Floats32) -> Floats32:
        """Return M^T P, float32 of shape (m, r)."""
        own_rows = P[self.layer.rows] if isinstance(self.layer, RowSparse) else P
        return stored(self.layer).reshape(-1, self.m).T @ own_rows


@dataclass(frozen=True, slots=True, eq=False)
class Matrices:
    """A gradient, separated into matrices and other layers."""

    gradient: Gradient
    places: tuple[int, ...]  # Indices of the layers that are taken as matrices
    matrices: tuple[Matrix, ...]  # These layers
    others: Gradient  # All other layers
    held: GradientDtype  # Dtype of values that are sent

    def products(
        self, rank: Rank, times: Callable[[Matrix, Floats32], Floats32], narrow: Iterable[Floats32]
    ) -> list[Floats32]:
        """Return P by `Matrix.times` a Q, or Q by `Matrix.transposed_times` a P, as sent, and charge the GPU."""
        for matrix in self.matrices:
            rank.work(cost.multiply_cost(matrix.n, matrix.m, matrix.r))
        return [widen(round_to_dtype(product, self.held)) for product in map(times, self.matrices, narrow)]

    def post(self, rank: Rank, narrow: Sequence[Floats32], label: str) -> Pending:
        """Post the all-reduce of P or Q of each matrix, packed into one message."""
        return rank.all_reduce(tuple(round_to_dtype(each, self.held) for each in narrow), label=label)

    def post_others(self, rank: Rank) -> Pending | None:
        """Post the all-reduce of the other layers; None if there are none."""
        return post_uncompressed(rank, self.others, self.held, "other layers")

    def charge_products(self, rank: Rank, phase: Phase = "decode") -> None:
        """Charge the GPU for P Q^T of each matrix."""
        for matrix in self.matrices:
            rank.work(cost.multiply_cost(matrix.n, matrix.r, matrix.m, phase))

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
            n, m = layer.shape[0], layer.size // layer.shape[0]
            matrix = Matrix(layer, n, m, min(rank, n, m))
            if layer.size > min_compression * matrix.r * (n + m):
                matrices[index] = matrix
    return Matrices(gradient, tuple(matrices), tuple(matrices.values()), without_layers(gradient, matrices), held)


def averages(sums: Sequence[Array], ranks: int) -> list[Floats32]:
    """Return the means over ranks of the sums that `Matrices.post` has given."""
    return [np.divide(widen(each), ranks, dtype=np.float32) for each in sums]


def orthonormal_basis(narrow: Floats32) -> Floats32:
    """Return orthonormal columns that span those of P or Q, float32 of its shape.

    Those of Gram-Schmidt except for signs, from a QR factorisation in float64; arbitrary ones replace dependent
    columns.
    """
    return np.linalg.qr(narrow.astype(np.float64)).Q.astype(np.float32)


def multiply(P: Sequence[Floats32], Q: Sequence[Floats32]) -> list[Floats32]:
    """Return P Q^T of each matrix, float32 of shape (n, m)."""
    return [left @ right.T for left, right in zip(P, Q, strict=True)]


class LowRank(Reducer):
    """A reducer of matrices; vectors, and matrices that would shrink too little, are all-reduced as they are."""

    __slots__ = ()
    minimums: ClassVar = {"rank": 1}
    intervals: ClassVar = {"min_compression": "[0, inf)"}
    rank: int  # r, the columns of P and Q, at most the shorter side of M
    min_compression: float  # A matrix travels as it is unless it becomes more than so many times smaller

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        split = split_matrices(gradient, self.rank, self.min_compression, self.held)
        if split.matrices:
            return (yield from self.reduce_matrices(rank, split))
        others = split.post_others(rank)
        yield from wait_all(others)
        return Reduced(rank.replicated(lambda: split.mean([], others, rank.size)), sent=lambda: gradient)

    @property
    def least_side(self) -> int:
        """The rank, which no shorter side can have."""
        return self.rank

    @abstractmethod
    def reduce_matrices(self, rank: Rank, split: Matrices) -> Program:
        """Return the program for a gradient with at least one matrix."""

    def random_Q(self, rank: Rank, split: Matrices) -> list[Floats32]:
        """Return the first step's Q of each matrix: normal numbers, the same on all ranks."""
        return [
            named_generator(rank.seed, self.about.name, rank.step, place).standard_normal((each.m, each.r), np.float32)
            for place, each in zip(split.places, split.matrices, strict=True)
        ]

    def contraction(self, gradient: Gradient) -> float | None:
        """Return the least share of a layer's square that a random Q keeps, in expectation.

        A random subspace of dimension r keeps r / n of a matrix with n rows. That of M Q is turned towards the large
        components of M, and keeps at least as much: by d/dt of tr(A Pi), where Pi projects on exp(Lt) S, and A and L
        are functions of M that grow together, which is a sum of squares times (a_i - a_j)(l_i - l_j).
        """
        split = split_matrices(gradient, self.rank, self.min_compression, self.held)
        return min((self.kept_share(matrix) for matrix in split.matrices), default=1.0)

    def kept_share(self, matrix: Matrix) -> float:
        """Return the share of a matrix's square that is kept, in expectation."""
        return matrix.r / min(matrix.n, matrix.m)

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        return split_matrices(gradient, self.rank, self.min_compression, self.held).places


@dataclass(slots=True)
class PowerSGD(LowRank):
    """An all-reduce of P = M Q and one of Q = M^T P, with P made orthonormal between them; the mean of M is P Q^T.

    T. Vogels et al., "PowerSGD: practical low-rank gradient compression for distributed optimization", NeurIPS 2019,
    algorithm 1; the code that was read is ``RankKReducer`` in github.com/epfml/powersgd, paper-code. Of each layer, M
    (n, m) is the gradient, P (n, r) and P_hat (n, r), its orthonormal form, span its columns, and Q (m, r) is that of
    the step before, in the first step normal; all are float32. P_hat is of a QR factorisation: Gram-Schmidt
    but for signs, which fall out of P_hat Q^T. The original adds 1e-8 to each norm, so that tiny gradients shrink and a
    zero Q stays zero for ever; here a Q is scaled by a power of two, and a zero P becomes unit vectors.

    All ranks end with the same P_hat Q^T, and each keeps what its own M differs from that (algorithm 2): the sum of
    what all have sent is that of the means, but what a single rank "sent" is not its own contribution. PowerSGD is
    biased and needs this feedback (``ef=true``).
    """

    rank: int = 2
    min_compression: float = 0.0
    reuse_query: bool = True
    Q: list[Floats32] | None = field(init=False, repr=False, default=None)  # Of each matrix, as the last step left it

    def reduce_matrices(self, rank: Rank, split: Matrices) -> Program:
        # P = M Q, summed over ranks; layers that are no matrices join its launch.
        last_Q = self.Q or rank.replicated(lambda: self.random_Q(rank, split))
        P = split.post(rank, split.products(rank, Matrix.times, last_Q), "P")
        others = split.post_others(rank)
        yield from wait_all(P, others)

        for matrix in split.matrices:
            rank.work(cost.orthogonalise_cost(matrix.n, matrix.r))
        P_hat = rank.replicated(lambda: list(map(orthonormal_basis, averages(P.value, rank.size))))

        # Q = M^T P_hat, summed over ranks.
        total_Q = yield from split.post(rank, split.products(rank, Matrix.transposed_times, P_hat), "Q")
        Q = rank.replicated(lambda: averages(total_Q, rank.size))
        if self.reuse_query:
            # Times powers of two, so that products with them neither overflow nor vanish over many steps.
            exponents = [-int(np.frexp(np.abs(each).max())[1]) for each in Q]
            self.Q = rank.replicated(lambda: list(map(np.ldexp, Q, exponents)))

        split.charge_products(rank)
        products = rank.replicated(lambda: multiply(P_hat, Q))
        mean = rank.replicated(lambda: split.mean(products, others, rank.size))
        return Reduced(mean, sent=lambda: split.join(products, split.others))


@dataclass(slots=True)
class AcpSGD(LowRank):
    """An all-reduce of P = M Q in one step, and of Q = M^T P in the next; what is kept is made orthonormal before.

    L. Zhang et al., "Evaluation and optimization of gradient compression for distributed deep learning", ICDCS 2023;
    the code that was read is ``acpsgd.py`` in github.com/lzhangbv/acpsgd. M, P and Q have the shapes of `PowerSGD`. The
    first step sends P of a random Q, which keeps about r/m of what a matrix with m columns is; later ones find the rest
    (``warm=true`` shows the second). Each rank has sent P Q^T with a P or Q of its own, and keeps what is left
    (``ef=true``). The original fuses messages of up to 5 MB as they become ready in backward; here a step has one.
    """

    rank: int = 4
    min_compression: float = 0.0
    # P or Q of each matrix, whichever the last step sent, and whether the next sends P
    last: list[Floats32] | None = field(init=False, repr=False, default=None)
    sends_P: bool = field(init=False, repr=False, default=True)

    def kept_share(self, matrix: Matrix) -> float:
        """Return what a random subspace keeps: the first step projects the rows on one that knows nothing of them."""
        return matrix.r / matrix.m

    def reduce_matrices(self, rank: Rank, split: Matrices) -> Program:
        sends_P = self.sends_P
        last = self.last or rank.replicated(lambda: self.random_Q(rank, split))
        for matrix in split.matrices:
            rank.work(cost.orthogonalise_cost(matrix.m if sends_P else matrix.n, matrix.r))
        kept = rank.replicated(lambda: list(map(orthonormal_basis, last)))

        # P = M Q, or Q = M^T P, summed over ranks; layers that are no matrices join its launch.
        own = split.products(rank, Matrix.times if sends_P else Matrix.transposed_times, kept)
        total = split.post(rank, own, "P" if sends_P else "Q")
        others = split.post_others(rank)
        yield from wait_all(total, others)

        found = rank.replicated(lambda: averages(total.value, rank.size))
        self.last, self.sends_P = found, not sends_P

        def products(new: Sequence[Floats32]) -> list[Floats32]:
            return multiply(new, kept) if sends_P else multiply(kept, new)

        def sent() -> Gradient:
            split.charge_products(rank, "encode")
            return split.join(products(own), split.others)

        split.charge_products(rank)
        return Reduced(rank.replicated(lambda: split.mean(products(found), others, rank.size)), sent)


@dataclass(slots=True)
class ArcTopK(LowRank):
    """An all-reduce of the sketch P = G V, by which all find the K largest rows of the sum, and one of these rows.

    C. Chen et al., "An All-Reduce Compatible Top-K Compressor for Communication-Efficient Distributed Learning",
    arXiv:2510.26709; read in the authors' github.com/Aris-ma/ARC-TopK-release. Of each layer, G (n, m) is the gradient,
    V (m, r) is normal, new in every step and the same on all ranks, P is (n, r), and K rows are kept, whose norms in
    the sum of all P are largest; they need no index. Around it the authors put EF21 with momentum, which is not here,
    EF21 (``ef=ef21``) or error feedback (``ef=true``); convolutions have rows by the kernel's width there.
    """

    fractions = ("density",)
    min_compression = 0.0
    density: float = 0.2
    rank: int = 4

    def kept_share(self, matrix: Matrix) -> float:
        """Return what random rows keep: larger ones are likelier."""
        return elements_kept(matrix.n, self.density) / matrix.n

    def reduce_matrices(self, rank: Rank, split: Matrices) -> Program:
        V = rank.replicated(lambda: self.random_Q(rank, split))
        P = split.post(rank, split.products(rank, Matrix.times, V), "P")
        others = split.post_others(rank)
        yield from wait_all(P, others)

        K = [elements_kept(matrix.n, self.density) for matrix in split.matrices]
        norms = [np.linalg.norm(each.astype(np.float64), axis=1) for each in P.value]
        chosen = rank.replicated(lambda: list(map(select_top_k, norms, K)))
        selected = zip(split.matrices, chosen, strict=True)
        own = [widen(round_to_dtype(each.rows(kept), split.held)) for each, kept in selected]
        for matrix, kept in zip(split.matrices, K, strict=True):
            rank.work(cost.select(matrix.n, kept))
            rank.work(cost.copy_out_cost(kept * matrix.m, scattered=False))
            rank.work(cost.scatter_cost(cost.VALUE_BYTES * matrix.n * matrix.m, kept * matrix.m, scattered=False))
        total = yield from split.post(rank, own, "rows")

        def whole(rows: Sequence[Floats32]) -> list[Floats32]:
            triples = zip(split.matrices, chosen, rows, strict=True)
            return [RowSparse(kept, values, (each.n, each.m)).to_dense() for each, kept, values in triples]

        mean = rank.replicated(lambda: split.mean(whole(averages(total, rank.size)), others, rank.size))
        return Reduced(mean, sent=lambda: split.join(whole(own), split.others))
