"""How the sketches of several tables share the columns of one message, so that the whole error is least.

Let table t have N values in the union's rows with the sum of squares E, and c columns. What is read back of it has a
squared error of E (N / c)^p: p is 1 for one row, whatever the values; for a median of three rows and more it is near 2
on heavy tails (K. G. Larsen, R. Pagh, J. Tetek, arXiv:2102.02193: a variance of the squared L1 norm over c²). The least
sum over tables at a given sum of columns has c in proportion to (E N^p)^(1 / (p + 1)).

That alone would leave nothing of a table of small gradients, which may need its update as much as the others. So no
table gets less than a part of what it would have by its values alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from s2sim.arrays import Floats


def shared_columns(
    total: int, values: ArrayLike, energies: ArrayLike | None = None, *, rows: int = 1, floor: float = 1.0
) -> list[int]:
    """Return the columns of each table's sketch, at least one, ``total`` together unless that is too few for that.

    Parameters
    ----------
    total : int
        Columns of all tables together.
    values : array of shape (tables,)
        Values in the union's rows of each table, about.
    energies : array of shape (tables,), optional
        Sum of their squares, or what is in proportion to it; where nothing is known, columns are shared by values.
    rows : int
        Rows of the sketches.
    floor : float
        The least that a table gets, as a part of its share by values; 0 to 1.

    Examples
    --------
    >>> shared_columns(1000, [300, 700])
    [300, 700]
    >>> shared_columns(1000, [500, 500], [1, 9], rows=1, floor=0.2)
    [251, 749]
    """
    parts = _shares(np.asarray(values, np.float64), energies, 1 if rows < 3 else 2, floor)
    # Every table has one column, and the others are shared; rounding the partial sums keeps their number.
    ends = np.rint(np.cumsum(parts) * max(0, total - len(parts))).astype(np.int64)
    columns: list[int] = (1 + np.diff(ends, prepend=0)).tolist()
    return columns


def _shares(values: Floats, energies: ArrayLike | None, power: int, floor: float) -> Floats:
    """Return the share of each table, float64, 1 together."""
    by_values = values / values.sum() if values.any() else np.full(len(values), 1 / len(values))
    if energies is None or floor == 1:
        return by_values
    wish = (np.asarray(energies, np.float64) * values**power) ** (1 / (power + 1))
    if not wish.any():
        return by_values
    least = floor * by_values
    at_least = np.zeros(len(values), np.bool_)
    while True:
        free = 1 - least[at_least].sum()
        shares = np.where(at_least, least, wish * (free / wish[~at_least].sum()))
        too_few = ~at_least & (shares < least)
        if not too_few.any():
            return shares
        at_least |= too_few
