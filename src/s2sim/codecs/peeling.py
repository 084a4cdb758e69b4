"""Peeling: reading every key's sum from a table in which each key was added to three cells, exactly.

A cell with one key left holds this key's sum. It is read, and subtracted from the key's other cells, which may leave
these with one key; and so on. The keys are known (from a merged bitmap), so that cells need neither counts nor key sums
as those of an invertible Bloom lookup table have (M. Goodrich, M. Mitzenmacher, "Invertible Bloom lookup tables",
Allerton 2011): the receiver computes them. Sums of gradients by a sketch that is peeled are prior art (H. Li et al.,
"Accelerating distributed deep learning using lossless homomorphic compression", arXiv:2402.07529, 2024).

Which key is read where depends on the keys alone, not on what the cells hold: the order can be had before the cells
arrive, serves any number of values a key, and says which keys cannot be read. All cells that have one key left are read
in one round, breadth first, as a parallel machine would. That is also what float32 cells need: rounding errors grow
with the length of the chain of subtractions, which is at most one a round here, and can be anything depth first.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_SLICE_BYTES = 3 << 19
"""Bytes of a block's cells that are peeled at once where a key has several values: they stay in cache."""


@dataclass(frozen=True, slots=True, eq=False)
class PeelOrder:
    """Which keys of a block are read, in which order and where.

    Attributes
    ----------
    keys : int64 array, shape (p,)
        Indices of the keys that can be read, each once.
    cells : int64 array, shape (p,)
        The cell that each is read from.
    stops : tuple of int
        Where in these each round ends; a round needs the ones before it.
    """

    keys: NDArray[np.int64]
    cells: NDArray[np.int64]
    stops: tuple[int, ...]

    @property
    def rounds(self) -> int:
        """Rounds that wait for each other."""
        return len(self.stops)

    def left(self, count: int) -> NDArray[np.int64]:
        """Return which of ``count`` keys are not read (the 2-core of the table), int64, increasing."""
        if len(self.keys) == count:
            return np.empty(0, np.int64)
        unread = np.ones(count, np.bool_)
        unread[self.keys] = False
        return np.flatnonzero(unread)


def peel_order(columns: NDArray[np.int64], cells: int) -> PeelOrder:
    """Return the order in which the keys of one block are read.

    Parameters
    ----------
    columns : int64 array, shape (3, k)
        The cells of each key.
    cells : int
        Cells of the block; at most 2^31 / k keys may share one of them.

    Examples
    --------
    Keys 0 and 1 share a cell; key 1 is also alone in one. Keys 2 and 3 share all of theirs.

    >>> order = peel_order(np.array([[0, 0, 1, 1], [2, 2, 3, 3], [4, 5, 6, 6]]), 7)
    >>> order.keys, order.left(4)
    (array([0, 1]), array([2, 3]))
    """
    count = columns.shape[1]
    # One number a cell: how many keys it has, above the sum of their indices. A cell with one key names it.
    one = np.uint32(1 << max(1, (count - 1).bit_length()))
    marks = np.arange(count, dtype=np.uint32)
    marks += one
    state = np.zeros(cells, np.uint32)
    for third in columns:
        np.add.at(state, third, marks)
    claims = np.empty(count, np.int32)
    keys: list[NDArray[np.int64]] = []
    sources: list[NDArray[np.int64]] = []
    touched: NDArray[np.int64] = np.arange(cells)
    while True:
        indices = state.take(touched)
        # Cells with none or several keys wrap around or stay above: what is below is the index of a single key.
        indices -= one
        single = np.flatnonzero(indices < one)
        if not len(single):
            break
        found, where = indices.take(single).astype(np.int64), touched.take(single)
        # A key that is alone in several cells is read from the one that claims it last.
        turns = np.arange(len(found), dtype=np.int32)
        claims[found] = turns
        claimed = claims.take(found) == turns
        found, where = found[claimed], where[claimed]
        keys.append(found)
        sources.append(where)
        own_marks = marks.take(found)
        own_cells = [third.take(found) for third in columns]
        for third in own_cells:
            np.subtract.at(state, third, own_marks)
        touched = np.concatenate(own_cells)
    if not keys:
        return PeelOrder(np.empty(0, np.int64), np.empty(0, np.int64), ())
    return PeelOrder(
        np.concatenate(keys), np.concatenate(sources), tuple(np.cumsum([len(part) for part in keys]).tolist())
    )


def read_values(
    order: PeelOrder, columns: NDArray[np.int64], cells: NDArray[Any]
) -> Iterator[tuple[slice, NDArray[Any], bool]]:
    """Yield the sums of a block's keys, some of a key's values at a time, so that the work stays in cache.

    Integers wrap around, so that the cells may have done so as often as they like.

    Parameters
    ----------
    order : PeelOrder
        As `peel_order` makes it of ``columns``.
    columns : int64 array, shape (3, k)
        The cells of each key.
    cells : array, shape (cells, width)
        The block; it is not changed.

    Yields
    ------
    part : slice
        Which of a key's values.
    values : array, shape (k, part)
        Of the cells' type; zeros for keys that cannot be read. The next part overwrites it.
    clean : bool
        Whether nothing is left in the cells. If all keys are read, integers leave nothing unless other keys were added.
    """
    count, height, width = columns.shape[1], len(cells), cells.shape[1]
    step = min(width, max(1, _SLICE_BYTES // max(1, height * cells.itemsize)))
    # One buffer each for all parts: fresh memory would cost as much as the reading.
    rest_buffer, values_buffer = np.empty(height * step, cells.dtype), np.empty(count * step, cells.dtype)
    for start in range(0, width, step):
        part = slice(start, min(width, start + step))
        breadth = part.stop - part.start
        rest = rest_buffer[: height * breadth].reshape(height, breadth)
        values = values_buffer[: count * breadth].reshape(count, breadth)
        rest[...] = cells[:, part]
        values.fill(0)
        _move(order, columns, squeezed(rest), squeezed(values))
        yield part, values, not rest.any()


def _move(order: PeelOrder, columns: NDArray[np.int64], cells: NDArray[Any], values: NDArray[Any]) -> None:
    """Move the keys' sums from ``cells`` to ``values``."""
    for start, stop in pairwise((0, *order.stops)):
        keys = order.keys[start:stop]
        sums = cells.take(order.cells[start:stop], axis=0)
        values[keys] = sums
        for third in columns:
            np.subtract.at(cells.reshape(-1), _elements(third.take(keys), cells), sums.reshape(-1))


def add_values(cells: NDArray[Any], columns: NDArray[np.int64], values: NDArray[Any]) -> None:
    """Add to the ``cells`` of a block, shape (cells, width), keys with ``columns`` (3, k) and ``values`` (k, width)."""
    for third in columns:
        np.add.at(cells.reshape(-1), _elements(third, squeezed(cells)), values.reshape(-1))


def squeezed(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view without the second dimension if that is 1: NumPy gathers from vectors several times as fast."""
    return array[:, 0] if array.shape[1] == 1 else array


def _elements(rows: NDArray[np.int64], array: NDArray[Any]) -> NDArray[np.int64]:
    """Return where the elements of some rows of ``array`` lie in memory; adding there is several times as fast, too."""
    if array.ndim == 1:
        return rows
    width = array.shape[1]
    elements: NDArray[np.int64] = np.add.outer(rows * width, np.arange(width)).ravel()
    return elements
