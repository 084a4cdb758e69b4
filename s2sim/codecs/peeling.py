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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import expm1
from typing import NamedTuple

import numpy as np

from s2sim.arrays import Array, Ints

_SLICE_BYTES = 5 << 18
"""Bytes of a block's cells that are peeled at once where a key has several values: they stay in cache."""

_MAX_ROUNDS = 64
_MAX_KEYS_A_CELL = 8
"""With more no cell has a single key, which peeling begins with, and the numbers of cells may overflow."""


class PeelRound(NamedTuple):
    """The keys that are read at once, because each is alone in a cell after the rounds before."""

    # keys, cells: their indices, and the cell that each is read from
    keys: Ints
    cells: Ints
    columns: Ints  # All cells of each


@dataclass(frozen=True, slots=True, eq=False)
class PeelOrder:
    """Which keys of a block are read, and in which order."""

    keys: Ints  # Indices of the keys that can be read, each once
    rounds: int  # Rounds that wait for each other

    def left(self, count: int) -> Ints:
        """Return which of ``count`` keys are not read (the 2-core of the table), int64, increasing."""
        unread = np.ones(count, np.bool_)
        unread[self.keys] = False
        return np.flatnonzero(unread)


@dataclass(frozen=True, slots=True, eq=False)
class BlockSums:
    """Some of the values of each key of a block."""

    part: slice  # Which of a key's values
    values: Array  # Of the cells' type; zeros for keys that cannot be read. The next part may overwrite it.
    # Whether nothing is left in the cells. If all keys are read, integers leave nothing unless other keys were added.
    clean: bool
    # read, rounds: how many keys were read, in how many rounds that waited for each other
    read: int
    rounds: int


def peel_order(columns: Ints, cells: int) -> PeelOrder:
    """Return the order in which the keys of one block are read.

    ``columns`` are the cells of each key, int64 of shape (3, k), of so many ``cells``; at most 2^31 / k keys may share
    one. Here keys 0 and 1 share a cell, key 1 is also alone in one, and keys 2 and 3 share all of theirs:

    >>> order = peel_order(np.array([[0, 0, 1, 1], [2, 2, 3, 3], [4, 5, 6, 6]]), 7)
    >>> order.keys, order.left(4)
    (array([0, 1]), array([2, 3]))
    """
    found = [each.keys for each in peel(columns, cells)]
    return PeelOrder(np.concatenate([np.empty(0, np.int64), *found]), len(found))


def rounds_needed(keys: float, cells: int, *, chance: float = 0.01) -> int:
    """Return the rounds after which fewer than ``chance`` keys are expected to be left, of those that can be read.

    Density evolution of random tables with three cells a key (M. Molloy, "Cores in random hypergraphs and Boolean
    formulas", Random Structures and Algorithms 2005): after t rounds a key is left with probability (1 - e^(-a q))^3,
    where a = 3 keys / cells and q, which was 1, becomes (1 - e^(-a q))^2 in every round. Where rounds do not lead to an
    end, because the table is too full, their number is limited.

    >>> rounds_needed(7000, 10_010), rounds_needed(7000, 9_100), rounds_needed(0, 100)
    (12, 20, 0)
    """
    if keys <= 0:
        return 0
    load, edge = 3 * keys / cells, 1.0
    for rounds in range(1, _MAX_ROUNDS):
        held = -expm1(-load * edge)
        if keys * held**3 < chance:
            return rounds
        edge = held**2
    return _MAX_ROUNDS


def peel(columns: Ints, cells: int) -> Iterator[PeelRound]:
    """Yield the rounds in which the keys of one block are read; parameters as in `peel_order`."""
    count = columns.shape[1]
    if count > _MAX_KEYS_A_CELL * cells:
        return
    # One number a cell: how many keys it has, in units of a power of two above all indices, and the sum of these.
    one = np.array(1 << max(1, (count - 1).bit_length()), np.uint32)
    marks = np.arange(count, dtype=np.uint32) + one
    numbers = np.zeros(cells, np.uint32)
    for third in columns:
        np.add.at(numbers, third, marks)
    claims = np.empty(count, np.int32)
    contents, touched = numbers, None
    while True:
        # Cells with none or several keys wrap around or stay above: what is below is the index of a single key.
        low = contents - one
        single = (low < one).nonzero()[0]
        if not len(single):
            return
        found = low[single].astype(np.int64)
        # A key that is alone in several cells is read from the one that claims it last.
        turns = np.arange(len(found), dtype=np.int32)
        claims[found] = turns
        claimed = (claims[found] == turns).nonzero()[0]
        found, single = found[claimed], single[claimed]
        where = single if touched is None else touched[single]
        own, taken = columns.take(found, axis=1), contents[single]
        yield PeelRound(found, where, own)
        touched = own.reshape(-1)
        np.subtract.at(numbers, touched, np.concatenate((taken, taken, taken)))
        contents = numbers[touched]


def read_values(columns: Ints, cells: Array) -> Iterator[BlockSums]:
    """Yield the sums of a block's keys, some of a key's values at a time: the work stays in cache, and memory small.

    ``columns`` are the cells of each key, int64 of shape (3, k). The block's cells, of shape (cells, width), are not
    changed; integers wrap around, so that they may have done so as often as they like.
    """
    count, height, width = columns.shape[1], len(cells), cells.shape[1]
    step = min(width, max(1, _SLICE_BYTES // max(1, height * cells.itemsize)))
    rounds: Iterable[PeelRound] = peel(columns, height)
    if step < width:
        rounds = list(rounds)
    # One buffer each for all parts: fresh memory would cost as much as the reading.
    rest_buffer, values_buffer = np.empty(height * step, cells.dtype), np.empty(count * step, cells.dtype)
    for start in range(0, width, step):
        part = slice(start, min(width, start + step))
        breadth = part.stop - part.start
        rest = rest_buffer[: height * breadth].reshape(height, breadth)
        values = values_buffer[: count * breadth].reshape(count, breadth)
        rest[...] = cells[:, part]
        values.fill(0)
        left, found, read, waits = drop_unit_axis(rest), drop_unit_axis(values), 0, 0
        for keys, where, taken in rounds:
            found[keys] = sums = left.take(where, axis=0)
            for third in taken:
                np.subtract.at(rest.reshape(-1), _flat_indices(third, left), sums.reshape(-1))
            read += len(keys)
            waits += 1
        yield BlockSums(part, values, not rest.any(), read, waits)


def add_values(cells: Array, columns: Ints, values: Array) -> None:
    """Add to the ``cells`` of a block, shape (cells, width), keys with ``columns`` (3, k) and ``values`` (k, width)."""
    for third in columns:
        np.add.at(cells.reshape(-1), _flat_indices(third, drop_unit_axis(cells)), values.reshape(-1))


def drop_unit_axis(array: Array) -> Array:
    """Return a view without the second dimension if that is 1: NumPy gathers from vectors several times as fast."""
    return array[:, 0] if array.shape[1] == 1 else array


def _flat_indices(rows: Ints, array: Array) -> Ints:
    """Return where the elements of some rows of ``array`` lie in memory; adding there is several times as fast, too."""
    if array.ndim == 1:
        return rows
    width = array.shape[1]
    elements: Ints = np.add.outer(rows * width, np.arange(width)).ravel()
    return elements
