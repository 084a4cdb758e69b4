"""Base class of reducers that send matrices as products of two narrow ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from s2sim.arrays import Floats32
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, average
from s2sim.options import check_options
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import GradientDtype, Pending, Program, Rank, Reduced, Reducer
from s2sim.reducers.script import Phase
from s2sim.reducers.shared.sparse_split import join_layers, post_uncompressed, without_layers
from s2sim.seeds import named_generator


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A layer as a matrix of ``rows`` x ``columns``: its first dimension, and all others together.

    GPUs store rows that the layer does not store too, and are charged for them.
    """

    layer: Layer
    rank: int  # Columns of each of the two narrow matrices; at most the shorter side

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.layer.shape[0])

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self.layer.size // self.rows

    def times(self, right: Floats32) -> Floats32:
        """Return the product with ``right``, float32 of shape (columns, rank)."""
        if not isinstance(self.layer, RowSparse):
            return self.layer.reshape(self.rows, -1) @ right
        product = np.zeros((self.rows, right.shape[1]), np.float32)
        product[self.layer.rows] = self.layer.values.reshape(-1, self.columns) @ right
        return product

    def transposed_times(self, left: Floats32) -> Floats32:
        """Return the product of the transposed matrix with ``left``, float32 of shape (rows, rank)."""
        if not isinstance(self.layer, RowSparse):
            return self.layer.reshape(self.rows, -1).T @ left
        return self.layer.values.reshape(-1, self.columns).T @ left[self.layer.rows]


@dataclass(frozen=True, slots=True, eq=False)
class Matrices:
    """A gradient, separated into matrices and other layers."""

    gradient: Gradient
    places: tuple[int, ...]  # Indices of the layers that are taken as matrices
    matrices: tuple[Matrix, ...]  # These layers
    others: Gradient  # All other layers
    held: GradientDtype  # Dtype of values that are sent

    def times(self, rank: Rank, rights: Sequence[Floats32]) -> list[Floats32]:
        """Return the product of each matrix with one of ``rights``, as sent, and charge the GPU for them."""
        return self._products(rank, map(Matrix.times, self.matrices, rights))

    def transposed_times(self, rank: Rank, lefts: Sequence[Floats32]) -> list[Floats32]:
        """Return the product of each transposed matrix with one of ``lefts``, as sent, and charge the GPU for them."""
        return self._products(rank, map(Matrix.transposed_times, self.matrices, lefts))

    def _products(self, rank: Rank, products: Iterable[Floats32]) -> list[Floats32]:
        for matrix in self.matrices:
            rank.work(cost.multiply_cost(matrix.rows, matrix.columns, matrix.rank))
        return [widen(round_to_dtype(product, self.held)) for product in products]

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
            matrix = Matrix(layer, min(rank, rows, columns))
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


def outer_product(left: Floats32, right: Floats32) -> Floats32:
    """Return ``left`` times the transposed ``right``, of shapes (rows, rank) and (columns, rank)."""
    return left @ right.T


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
    rank: int
    min_compression: float

    def __post_init__(self) -> None:
        name = self.about.name
        check_options(self, name, rank=1)
        if not 0 <= self.min_compression < float("inf"):
            raise OptionError(f"{name}: min_compression={self.min_compression} is not a number from 0")

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Reduce matrices and others."""
        split = split_matrices(gradient, self.rank, self.min_compression, self.held)
        if split.matrices:
            return (yield from self.reduce_matrices(rank, split))
        others = split.post_others(rank)
        if others is not None:
            yield others
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
