"""Names for the arrays that most signatures are made of, and tables of the sizes between ranks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias, TypeVar, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

T = TypeVar("T")
Array: TypeAlias = NDArray[Any]
Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Floats32: TypeAlias = NDArray[np.float32]
Words: TypeAlias = NDArray[np.uint32]
Bits: TypeAlias = NDArray[np.uint8]
Ints16: TypeAlias = NDArray[np.int16]


class LazySequence(Sequence[T]):
    """Items that are made on access, because all of them together would take too much memory."""

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return list(map(self._make, range(self._count)[index]))
        return self._make(range(self._count)[index])


def split_sizes(array: Array, sizes: Iterable[int]) -> list[Array]:
    """Return consecutive parts of an array, views of so many elements each."""
    return [array[start:stop] for start, stop in pairwise(accumulate(sizes, initial=0))]


class BlockTable:
    """Sizes from each rank to each, one row a rank; equal rows are kept once.

    ``rows``, int64 of shape (k, ranks), are the distinct ones in the order of the ranks that have them first, ``row``,
    int64 of shape (ranks,), the index of that of each rank. It can be read as a sequence of a tuple for each rank.

    >>> table = BlockTable([[1, 2, 3], [4, 5, 6], [1, 2, 3]])
    >>> table.rows.tolist(), table.row.tolist(), table[2]
    ([[1, 2, 3], [4, 5, 6]], [0, 1, 0], (1, 2, 3))
    """

    def __init__(self, rows: ArrayLike, row: ArrayLike | None = None) -> None:
        given = np.atleast_2d(np.asarray(rows, np.int64))
        of_rank = np.arange(len(given)) if row is None else np.asarray(row, np.int64)
        first: dict[bytes, int] = {}
        same = np.array([first.setdefault(each.tobytes(), place) for place, each in enumerate(given)], np.int64)
        used, begins, number = np.unique(same[of_rank], return_index=True, return_inverse=True)
        order = np.argsort(begins)
        self.rows: Ints = given[used[order]]
        self.row: Ints = np.argsort(order)[number]

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, rank: int) -> tuple[int, ...]:
        return tuple(self.rows[self.row[rank]].tolist())

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return (self[rank] for rank in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BlockTable):
            return isinstance(other, tuple) and len(other) == len(self) and tuple(self) == other
        return np.array_equal(self.row, other.row) and np.array_equal(self.rows, other.rows)

    def __hash__(self) -> int:
        return hash((self.rows.tobytes(), self.row.tobytes()))

    @property
    def dense(self) -> Ints:
        """All rows, int64 of shape (ranks, ranks)."""
        return self.rows[self.row]

    @property
    def totals(self) -> tuple[Ints, Ints]:
        """Sums over each rank's row and column, int64 of shape (ranks,) each."""
        return self.rows.sum(axis=1)[self.row], np.bincount(self.row, minlength=len(self.rows)) @ self.rows

    @property
    def exchanged(self) -> tuple[Ints, Ints]:
        """Sums over each rank's row and column without its own block, int64 of shape (ranks,) each."""
        sent, received = self.totals
        own = self.rows[self.row, np.arange(len(self))]
        return sent - own, received - own


def sum_tables(tables: Sequence[BlockTable], times: Sequence[int]) -> BlockTable:
    """Return the sum of tables of the same ranks, each multiplied by an integer."""
    rows, row = np.unique(np.stack([table.row for table in tables]), axis=1, return_inverse=True)
    terms = (factor * table.rows[own] for factor, table, own in zip(times, tables, rows, strict=True))
    return BlockTable(sum(terms), row.reshape(-1))


def as_table(blocks: BlockTable | Sequence[Sequence[int]]) -> BlockTable | tuple[()]:
    """Return the table of rows, none for none."""
    if isinstance(blocks, BlockTable) or not blocks:
        return cast("BlockTable | tuple[()]", blocks)
    return BlockTable(blocks)


def as_intervals(pairs: Sequence[tuple[int, int]]) -> Ints:
    """Return begins and ends of the intervals that are not empty, int64 of shape (n, 2)."""
    intervals = np.array(pairs, np.int64).reshape(-1, 2)
    return intervals[intervals[:, 0] < intervals[:, 1]]


def is_covered(intervals: Ints, points: Ints) -> Mask:
    """Return which spaces between increasing points lie in an interval, bool (points - 1,); all ends are points."""
    change = np.zeros(len(points), np.int64)
    at = np.searchsorted(points, np.clip(intervals, points[0], points[-1]))
    np.add.at(change, at[:, 0], 1)
    np.add.at(change, at[:, 1], -1)
    return np.cumsum(change)[:-1] > 0
