"""Peeling: reading every key's sum from a table in which each key was added to three cells, exactly.

A cell with one key left holds this key's sum. It is read, and subtracted from the key's other cells, which may leave
these with one key; and so on. The keys are known (from a merged bitmap), so that cells need neither counts nor key sums
as those of an invertible Bloom lookup table have (M. Goodrich, M. Mitzenmacher, "Invertible Bloom lookup tables",
Allerton 2011): the receiver computes them. Sums of gradients by a sketch that is peeled are prior art (H. Li et al.,
"Accelerating distributed deep learning using lossless homomorphic compression", arXiv:2402.07529, 2024).

A key's 32-bit mix chooses its block with its high bits, so that blocks fill evenly whatever the keys are, and with what
is left its cells, one in each of three disjoint thirds. Blocks of up to 32,000 keys keep the work on one of them inside
a core's second-level cache. Peeling gets stuck on two keys that share all three cells, which independent hashes let
happen with probability about 13.5 keys^2 / cells^3 (cells all together) in every block. Here the first two columns are
digits of the mix, and the few keys that agree in both are spread over the third by multiples of the golden ratio
(Fibonacci hashing; D. E. Knuth, TAOCP vol. 3, section 6.4, theorem S): no two keys of a block of 2,300 columns or more
share all three cells.

Which key is read where depends on the keys alone, not on what the cells hold: the order can be had before the cells
arrive, serves any number of values a key, and says which keys cannot be read. All cells that have one key left are read
in one round, breadth first, as a parallel machine would. That is also what float32 cells need: rounding errors grow
with the length of the chain of subtractions, which is at most one a round here, and can be anything depth first.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, expm1, inf
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Array, Ints, Words
from s2sim.codecs.hashing import mix32
from s2sim.errors import OptionError

THIRDS = 3
"""Cells of a key; with three, fewer cells a key suffice than with any other number (Goodrich, Mitzenmacher 2011)."""

BLOCK_KEYS = 1 << 15
"""Keys of a block, at most about: the arrays that peeling it needs fill half of a second-level cache of 1 MiB."""

THRESHOLD = 1.222
"""Cells a key below which large tables have a core that cannot be peeled (M. Molloy, "Cores in random hypergraphs and
Boolean formulas", Random Structures & Algorithms 2005; three cells a key)."""

CELLS_PER_KEY = 1.3
"""Cells for each key; what is above the threshold is for blocks that get more keys than others."""

_CHUNK_KEYS = 1 << 17  # Keys that are sorted by block at once: three megabytes with all temporaries
_SMALL = 14.0  # Cells are at least this times keys^(2/3), see `cells_for`
_MAX_BLOCKS, _MAX_COLUMNS = 1 << 16, 1 << 16
# Arrays, because NumPy takes twice as long to prepare a scalar.
_LOW = np.array(0xFFFFFFFF, np.uint64)
_SHIFT = np.array(32, np.uint64)
_GOLDEN = np.array(0x9E3779B1, np.uint32)
_PAIR_WORD = np.uint32(0x85EBCA77)


def cells_for(keys: float, cells_per_key: float = CELLS_PER_KEY) -> int:
    """Return the cells that ``keys`` of one block need so that at least 99 % of tables can be peeled.

    Few keys need more than `CELLS_PER_KEY`: two of k keys share their cells with probability at most
    (k^2 / 2) / (cells / 3)^3, which cells = 14 k^(2/3) keep below 0.5 %.

    >>> cells_for(100), cells_for(32768)
    (302, 42599)
    """
    small: float = _SMALL * keys ** (2 / 3)
    return max(THIRDS, ceil(max(cells_per_key * keys, small)))


@lru_cache(maxsize=64)
def _seed_word(seed: int) -> np.uint32:
    word: np.uint32 = np.random.SeedSequence([seed, *b"peel table"]).generate_state(1)[0]
    return word


@dataclass(frozen=True, slots=True, eq=False)
class SortedRuns:
    """Numbers of keys, shape (k,), sorted by block in each of several chunks of them.

    ``stops``, int64 of shape (chunks, blocks + 1), says where in these the first block of each chunk begins, and each
    ends.
    """

    numbers: Array
    stops: Ints

    def take(self, block: int) -> Array:
        """Return the numbers of the keys of one block, in the order of the keys."""
        return np.concatenate([self.numbers[:0], *(self.numbers[run] for run in self._of(block))])

    def put(self, block: int, numbers: Array) -> None:
        """Replace the numbers that `take` returns."""
        done = 0
        for run in self._of(block):
            following = done + run.stop - run.start
            self.numbers[run] = numbers[done:following]
            done = following

    def _of(self, block: int) -> list[slice]:
        return [slice(start, stop) for start, stop in self.stops[:, block : block + 2].tolist()]


@dataclass(frozen=True, slots=True)
class PeelTable:
    """Shape and hash functions of a table of cells; all ranks must agree on them before they encode.

    >>> PeelTable.for_keys(1_000_000)
    PeelTable(blocks=31, columns=13979, seed=0)
    """

    blocks: int  # Independent tables, 1 to 65536; which one a key is in depends on its hash
    columns: int  # Cells in each third of a block, 1 to 65536
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.blocks <= _MAX_BLOCKS:
            raise OptionError(f"a table of {self.blocks} blocks was asked for; it can have 1 to {_MAX_BLOCKS}")
        if not 1 <= self.columns <= _MAX_COLUMNS:
            raise OptionError(f"blocks of 3 x {self.columns} cells were asked for; 3 x 1 to 3 x {_MAX_COLUMNS} can be")
        if self.seed < 0:
            raise OptionError(f"seed {self.seed} of a table is negative; it must be 0 or more")

    @classmethod
    def for_keys(cls, keys: float, *, cells_per_key: float = CELLS_PER_KEY, seed: int = 0) -> Self:
        """Return the table for a union of about ``keys``, in blocks of at most about `BLOCK_KEYS`."""
        if not THRESHOLD < cells_per_key < inf:
            raise OptionError(
                f"{cells_per_key} cells a key were asked for: at {THRESHOLD} or fewer most keys could not be read; "
                f"use {CELLS_PER_KEY}"
            )
        blocks = max(1, ceil(keys / BLOCK_KEYS))
        return cls(blocks, ceil(cells_for(keys / blocks, cells_per_key) / THIRDS), seed)

    @property
    def block_cells(self) -> int:
        """Cells of one block, its thirds together."""
        return THIRDS * self.columns

    @property
    def cells(self) -> int:
        """Cells of all blocks."""
        return self.blocks * self.block_cells

    def parts(self, keys: Words, parts: int) -> Ints:
        """Return in which of ``parts`` equal parts of the hash space each key is, int64 of the shape of ``keys``.

        Parts nest: with ``parts`` = f times `blocks`, part p lies in block p // f.
        """
        return (self._scaled(keys, parts) >> _SHIFT).view(np.int64)

    def by_block(self, keys: Words) -> Iterator[tuple[Ints, Ints]]:
        """Yield, for each block in order, which of ``keys`` (uint32, shape (k,)) are in it and where they go there.

        These are indices into ``keys``, int64 of shape (b,), increasing; and the key's cell in each third, as an index
        into the block's cells, int64 of shape (3, b).
        """
        if self.blocks == 1:
            yield np.arange(len(keys)), self.columns_of(keys)
            return
        runs = self.sorted_runs(keys, np.arange(len(keys), dtype=np.uint32))
        for block in range(self.blocks):
            places = runs.take(block).astype(np.int64)
            yield places, self.columns_of(keys.take(places))

    def sorted_runs(self, keys: Words, numbers: Array) -> SortedRuns:
        """Return a number for each of ``keys``, both of shape (k,), such that a block's can be taken at once.

        The numbers are sorted where they are, chunk by chunk; `restore` puts what they were replaced by in order.
        """
        stops = [np.zeros((0, self.blocks + 1), np.int64)]
        for chunk, order, ends in self._orders(keys):
            numbers[chunk] = numbers[chunk].take(order)
            stops.append(chunk.start + np.concatenate(([0], ends))[None])
        return SortedRuns(numbers, np.concatenate(stops))

    def restore(self, keys: Words, numbers: Array) -> None:
        """Put ``numbers`` that `sorted_runs` has sorted back in the order of the keys."""
        for chunk, order, _ in self._orders(keys):
            numbers[chunk][order] = numbers[chunk].copy()

    def columns_of(self, keys: Words) -> Ints:
        """Return the cells of each of ``keys`` in its block, int64 of shape (3, k)."""
        count = np.array(self.columns, np.uint64)
        # Keys of one block differ in these low halves, because they do in their mix.
        inner = self._scaled(keys, self.blocks)
        inner &= _LOW
        inner32 = inner.astype(np.uint32)
        columns = np.empty((THIRDS, len(keys)), np.uint64)
        for digit in columns[:2]:
            inner *= count
            np.right_shift(inner, _SHIFT, out=digit)
            inner &= _LOW
        # The third column is random given the first two, and differs among the few keys that agree in these.
        pair = np.multiply(columns[0], count, out=inner)
        pair += columns[1]
        mixed = mix32(pair.astype(np.uint32), _PAIR_WORD)
        inner32 *= _GOLDEN
        mixed += inner32
        columns[2] = mixed
        columns[2] *= count
        columns[2] >>= _SHIFT
        columns[1] += count
        columns[2] += count + count
        return columns.view(np.int64)

    def _scaled(self, keys: Words, parts: int) -> NDArray[np.uint64]:
        """Return the part of each key in the high halves, and its place in there in the low halves."""
        scaled = mix32(keys, _seed_word(self.seed)).astype(np.uint64)
        scaled *= np.array(parts, np.uint64)
        return scaled

    def _orders(self, keys: Words) -> Iterator[tuple[slice, Ints, Ints]]:
        """Yield which keys are sorted at once, their order, block by block, and where in there each block ends."""
        for start in range(0, len(keys), _CHUNK_KEYS):
            chunk = slice(start, start + _CHUNK_KEYS)
            blocks = self.parts(keys[chunk], self.blocks).astype(np.uint16)
            # Chunks are sorted in cache, by counting.
            yield chunk, np.argsort(blocks, kind="stable"), np.cumsum(np.bincount(blocks, minlength=self.blocks))


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
