"""Costs of GPU work on matrices of few columns: products, and columns made orthonormal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.reducers.gpu_cost import VALUE_BYTES
from s2sim.reducers.scripts.script import Work

if TYPE_CHECKING:
    from s2sim.reducers.scripts.script import Phase


def multiply(rows: int, inner: int, columns: int, phase: Phase = "encode") -> Work:
    """Return the cost of a product of dense matrices, of ``rows x inner`` and ``inner x columns`` values.

    Each matrix crosses the memory once, as blocked kernels have it where one of them is narrow.
    """
    values = rows * inner + inner * columns + rows * columns
    return Work(phase, values * VALUE_BYTES, flops=2 * rows * inner * columns)


def orthogonalise(rows: int, columns: int) -> Work:
    """Return the cost of making the columns of a narrow matrix orthonormal by Gram-Schmidt, one after the other.

    Kernels as plain PyTorch has them (``orthogonalize`` in github.com/epfml/powersgd, paper-code/gradient_reducers.py):
    five that square, sum up, take the root, add and divide, and, where columns are left, four that multiply them with
    this one, sum up, multiply again and subtract. A launch for each of them is pessimistic for large ranks, where later
    code has a library's QR factorisation, and where matrices of one shape are done at once.
    """
    pairs = columns * (columns - 1) // 2
    # A column is read and written to be squared, read to be summed, read and written to be divided, and read twice for
    # those that are left; of these each goes through memory seven times.
    moved = rows * VALUE_BYTES * (5 * columns + 2 * max(0, columns - 1) + 7 * pairs)
    return Work("encode", moved, launches=max(0, 9 * columns - 4), flops=rows * (3 * columns + 4 * pairs))
