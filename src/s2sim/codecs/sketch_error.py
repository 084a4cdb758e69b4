"""Published laws of a count sketch's error."""

from __future__ import annotations

from math import ceil, comb, sqrt


def rms_relative_error(keys: float, columns: int) -> float:
    """Return the relative L2 error of a one-row sketch, as RMS over hash functions: sqrt(keys / columns).

    Every other element lands in an element's cell with probability 1 / columns and with a random sign, so the estimate
    is unbiased with variance (sum of the other squares) / columns (Charikar, Chen, Farach-Colton 2002, section 3).
    Summed over all elements read, of which ``keys`` counts zeros too, this is (keys - 1) / columns times the squared
    norm, whatever the values are.

    >>> rms_relative_error(10_000, 40_000)
    0.5
    """
    return sqrt(keys / columns)


def tail_probability(rows: int, columns: int, relative_error: float) -> float:
    """Return a bound on the probability that one element's error exceeds ``relative_error`` times the L2 norm.

    One row exceeds it with probability at most p = 1 / (columns relative_error^2) by Chebyshev's inequality. The median
    can only be off if half of the rows are, so independent rows give the binomial tail
    P(at least ceil(rows / 2) of rows), which falls exponentially with rows (Charikar, Chen, Farach-Colton 2002,
    section 3; K. G. Larsen, R. Pagh, J. Tetek, "CountSketches, Feature Hashing and the Median of Three",
    arXiv:2102.02193).

    >>> [round(tail_probability(rows, 400, 0.1), 5) for rows in (1, 3, 5)]
    [0.25, 0.15625, 0.10352]
    """
    p = min(1.0, 1.0 / (columns * relative_error**2))
    return sum(comb(rows, off) * p**off * (1.0 - p) ** (rows - off) for off in range(ceil(rows / 2), rows + 1))
