"""Layers as matrices, and a gradient as its matrices and what travels beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.bfloat16 import as_held, widen
from s2sim.gradients.gradient import Gradient, RowSparse, average
from s2sim.reducers.low_rank import cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Floats32
    from s2sim.gradients.gradient import Layer
    from s2sim.reducers.rank import Held, Pending, Rank
    from s2sim.reducers.scripts.script import Phase


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A layer as a matrix of ``rows`` x ``columns``: its first dimension, and all others together.

    Attributes
    ----------
    layer : array or RowSparse
        Its values; rows that it does not store are zero. GPUs hold them, and are charged for them.
    rank : int
        Columns of each of the two narrow matrices that stand for it; at most the shorter of its sides.
    """

    layer: Layer
    rank: int

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
    """A gradient in two parts.

    Attributes
    ----------
    gradient : Gradient
        The whole.
    places : tuple of int
        Indices of the layers that are taken as matrices.
    matrices : tuple of Matrix
        These layers.
    others : Gradient
        All other layers.
    held : {"fp32", "bf16"}
        Type in which values travel.
    """

    gradient: Gradient
    places: tuple[int, ...]
    matrices: tuple[Matrix, ...]
    others: Gradient
    held: Held

    def times(self, rank: Rank, rights: Sequence[Floats32]) -> list[Floats32]:
        """Return the products with one matrix each, as they travel, and charge the GPU for them."""
        self._charge(rank)
        return [self._rounded(each.times(right)) for each, right in zip(self.matrices, rights, strict=True)]

    def transposed_times(self, rank: Rank, lefts: Sequence[Floats32]) -> list[Floats32]:
        """Return the products of the transposed matrices with one matrix each, as `times` does."""
        self._charge(rank)
        return [self._rounded(each.transposed_times(left)) for each, left in zip(self.matrices, lefts, strict=True)]

    def post(self, rank: Rank, narrow: Sequence[Floats32], label: str) -> Pending:
        """Post the all-reduce of one narrow matrix for each, packed into one message."""
        return rank.all_reduce(tuple(as_held(matrix, self.held) for matrix in narrow), label=label)

    def post_others(self, rank: Rank) -> Pending | None:
        """Post the all-reduce of the other layers; None if there are none."""
        if not self.others.layers:
            return None
        return rank.all_reduce(self.others.map(lambda values: as_held(values, self.held)), label="other layers")

    def charge_products(self, rank: Rank, phase: Phase = "decode") -> None:
        """Charge the GPU for multiplying both narrow matrices of each."""
        for matrix in self.matrices:
            rank.work(cost.multiply(matrix.rows, matrix.rank, matrix.columns, phase))

    def mean(self, products: Sequence[Floats32], others: Pending | None, ranks: int) -> Gradient:
        """Return the mean of all layers: the matrices' given, the others' from their finished all-reduce."""
        return self.join(products, self.others if others is None else average(others.value.map(widen), ranks))

    def join(self, products: Sequence[Floats32], others: Gradient) -> Gradient:
        """Return the whole gradient with other values, each layer in its own shape."""
        dense, layers = dict(zip(self.places, products, strict=True)), iter(others.layers)
        return Gradient(
            self.gradient.names,
            tuple(
                dense[index].reshape(like.shape) if index in dense else next(layers)
                for index, like in enumerate(self.gradient.layers)
            ),
        )

    def _rounded(self, narrow: Floats32) -> Floats32:
        return widen(as_held(narrow, self.held))

    def _charge(self, rank: Rank) -> None:
        for matrix in self.matrices:
            rank.work(cost.multiply(matrix.rows, matrix.columns, matrix.rank))


def split_matrices(gradient: Gradient, rank: int, min_compression: float, held: Held) -> Matrices:
    """Return a gradient as matrices of this rank and other layers: vectors, and what would shrink too little.

    Parameters
    ----------
    min_compression : float
        Elements of a matrix have to be more than this times those of the two that stand for it.
    """
    matrices, others = {}, []
    for index, (name, layer) in enumerate(gradient):
        if len(layer.shape) > 1 and layer.size:
            rows, columns = layer.shape[0], layer.size // layer.shape[0]
            matrix = Matrix(layer, min(rank, rows, columns))
            if layer.size > min_compression * matrix.rank * (rows + columns):
                matrices[index] = matrix
                continue
        others.append((name, layer))
    rest = Gradient(tuple(name for name, _ in others), tuple(layer for _, layer in others))
    return Matrices(gradient, tuple(matrices), tuple(matrices.values()), rest, held)


def averages(total: Pending, ranks: int) -> list[Floats32]:
    """Return the narrow matrices of a finished `Matrices.post`, divided by the number of ranks."""
    return [np.divide(widen(each), ranks, dtype=np.float32) for each in total.value]


def orthonormal(narrow: Floats32) -> Floats32:
    """Return orthonormal columns that span those of a matrix with at least as many rows, float32 of its shape.

    Those of Gram-Schmidt but for signs, taken from a QR factorisation in float64. Where columns depend on each other
    the missing ones are any orthonormal ones.
    """
    return np.linalg.qr(narrow.astype(np.float64)).Q.astype(np.float32)


def product(left: Floats32, right: Floats32) -> Floats32:
    """Return ``left`` times the transposed ``right``, of shapes (rows, rank) and (columns, rank)."""
    return left @ right.T
