"""Where keys go in a table that can be peeled: blocks, three disjoint thirds in each, one cell a key in each third.

A key's 32-bit mix chooses its block with its high bits, so that blocks fill evenly whatever the keys are, and its cells
with what is left. Blocks of up to 32,000 keys keep the work on one of them inside a core's second-level cache.

Peeling gets stuck on two keys that share all three cells, which independent hashes let happen with probability about
13.5 keys^2 / cells^3 (cells all together) in every block. Here the first two columns are digits of the mix, and the
few keys that agree in both are spread over the third by multiples of the golden ratio (Fibonacci hashing; D. E. Knuth,
TAOCP vol. 3, section 6.4, theorem S): no two keys of a block of 2,300 columns or more share all three cells.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf
from typing import Self

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
