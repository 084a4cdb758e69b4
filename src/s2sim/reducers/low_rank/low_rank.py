"""What the systems share that send matrices as products of two narrow ones."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from s2sim.errors import OptionError
from s2sim.options import check_options
from s2sim.reducers.low_rank.matrices import split_matrices
from s2sim.reducers.rank import Reduced, Reducer
from s2sim.seeds import named_generator

if TYPE_CHECKING:
    from s2sim.arrays import Floats32
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.low_rank.matrices import Matrices, Matrix
    from s2sim.reducers.rank import Program, Rank


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
        """Return what the first step multiplies the matrices with: normal numbers, the same on all ranks."""
        return [
            named_generator(rank.seed, self.about.name, rank.step, place).standard_normal(
                (matrix.columns, matrix.rank), np.float32
            )
            for place, matrix in zip(split.places, split.matrices, strict=True)
        ]

    def contraction(self, gradient: Gradient) -> float | None:
        """Return the least share of a layer's square that a random query keeps, in expectation.

        A random subspace of dimension r keeps r / n of a matrix with n rows. That of M Q is turned towards what is
        large in M, and keeps no less: by d/dt of tr(A Pi), where Pi projects on exp(Lt) S, A and L being functions of M
        that grow together, which is a sum of squares times (a_i - a_j)(l_i - l_j).
        """
        split = split_matrices(gradient, self.rank, self.min_compression, self.held)
        return min((self.kept_share(matrix) for matrix in split.matrices), default=1.0)

    def kept_share(self, matrix: Matrix) -> float:
        """Return the share of a matrix's square that is kept, in expectation."""
        return matrix.rank / min(matrix.rows, matrix.columns)

    def compresses(self, gradient: Gradient) -> tuple[int, ...]:
        """Return the layers that are taken as matrices."""
        return split_matrices(gradient, self.rank, self.min_compression, self.held).places
