"""Which rank owns which row of a table: as many rows each, wherever in the table the busy ones lie."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd, sqrt
from typing import TYPE_CHECKING

import numpy as np

from s2sim.gradients.gradient import RowSparse
from s2sim.reducers.row_sparse.messages import check_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Ints


_GOLDEN = (sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Owners:
    """The owners of a table's rows: row r stands at position r·m mod n, and rank i owns positions [i·n//P, (i+1)·n//P).

    With m the first number from n times the golden ratio on that has no factor in common with n, this is a permutation
    that spreads neighbours, and most rows at equal distances, evenly (Fibonacci hashing: Knuth, The Art of Computer
    Programming 3, section 6.4). Vocabularies are sorted by frequency: a rank that owned a stretch of rows would get
    most of them. An owner numbers its rows without gaps, so that a bitmap of them is as short as it can be.

    Attributes
    ----------
    rows : int
        Rows of the table, n.
    ranks : int
        Owners, P.
    """

    rows: int
    ranks: int

    def __post_init__(self) -> None:
        check_rows(self.rows)

    @cached_property
    def cuts(self) -> Ints:
        """Where the positions of each owner begin and end, int64 of shape (ranks + 1,)."""
        return np.arange(self.ranks + 1, dtype=np.int64) * self.rows // self.ranks

    @cached_property
    def multiplier(self) -> int:
        """The number that spreads the rows."""
        found = round(self._modulus * _GOLDEN)
        while gcd(found, self._modulus) > 1:
            found += 1
        return found

    @property
    def _modulus(self) -> int:
        return max(self.rows, 1)

    def split(self, table: RowSparse) -> list[RowSparse]:
        """Return the rows of ``table`` for each owner, numbered as it numbers its own."""
        position = table.rows * self.multiplier % self._modulus
        order = np.argsort(position)
        position, values = position[order], table.values[order]
        bounds = np.searchsorted(position, self.cuts)
        return [
            RowSparse(position[first:stop] - begin, values[first:stop], (int(end - begin), *table.shape[1:]))
            for first, stop, begin, end in zip(bounds, bounds[1:], self.cuts, self.cuts[1:], strict=False)
        ]

    def rows_in_order(self) -> Ints:
        """Return the rows of all owners as they number them, one owner after the other, int64 of shape (rows,)."""
        return np.arange(self.rows, dtype=np.int64) * pow(self.multiplier, -1, self._modulus) % self._modulus

    def place(self, part: RowSparse, owner: int) -> RowSparse:
        """Return one owner's part as a table of all rows, of which it has its own."""
        rows = self.rows_in_order()[part.rows + self.cuts[owner]]
        order = np.argsort(rows)
        return RowSparse(rows[order], part.values[order], (self.rows, *part.shape[1:]))

    def join(self, parts: Sequence[RowSparse]) -> RowSparse:
        """Return the table of which all owners hold parts, the inverse of `split`."""
        position = np.concatenate([part.rows + begin for part, begin in zip(parts, self.cuts, strict=False)])
        rows = position * pow(self.multiplier, -1, self._modulus) % self._modulus
        order = np.argsort(rows)
        values = np.concatenate([part.values for part in parts])
        return RowSparse(rows[order], values[order], (self.rows, *parts[0].shape[1:]))
