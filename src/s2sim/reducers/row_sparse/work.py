"""What it costs a GPU to send rows with their numbers, and to sum those of several ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.codecs.bitmap import bitmap_bytes
from s2sim.reducers.row_sparse.gpu_memory import (
    GATHER_BYTES,
    INDEX_BYTES,
    ROW_ID_BYTES,
    SCATTER_BYTES,
    SELECT_LAUNCHES,
    VALUE_BYTES,
)
from s2sim.reducers.row_sparse.messages import key_bytes, listed
from s2sim.reducers.scripts.script import Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s2sim.gradients.gradient import RowSparse
    from s2sim.reducers.scripts.script import Phase

_DIGIT_BITS = 8
# CUB sorts what fits in one tile, some thousand pairs, in a single kernel (cub/device/dispatch_radix_sort, SingleTile).
_TILE_ROWS = 4096


def pack_work(tables: Sequence[RowSparse]) -> Work:
    """Return the cost of writing the rows of some tables into a message: keys, and values read and written."""
    keys = key_work(tables)
    copied = sum(2 * len(table.rows) * table.width * VALUE_BYTES for table in tables)
    return Work("encode", keys.bytes_moved + copied, keys.launches)


def key_work(tables: Sequence[RowSparse]) -> Work:
    """Return the cost of writing the keys of rows whose values lie in the message already."""
    bytes_moved, launches = 0, 0
    for table in tables:
        rows, count = len(table.rows), table.shape[0]
        # Row numbers are read; a list is written, or a bitmap is cleared and its bits are set one by one.
        bytes_moved += rows * ROW_ID_BYTES + key_bytes(rows, count)
        bytes_moved += 0 if listed(rows, count) else rows * SCATTER_BYTES
        launches += 1 if listed(rows, count) else 2
    return Work("encode", bytes_moved, launches)


def split_work(tables: Sequence[RowSparse], ranks: int) -> Work:
    """Return the cost of bringing rows into the order of their owners, before they are packed.

    A radix sort of 4-byte positions with the places they come from: a histogram reads all of them, then every digit of
    8 bits takes one pass (A. Adinets and D. Merrill, "Onesweep", arXiv:2206.01784); few rows take one kernel. Packing
    then reads rows in an order that is not the table's.
    """
    bytes_moved, launches = 0, 0
    for table in tables if ranks > 1 else ():
        rows = len(table.rows)
        digits = -(-max(table.shape[0] - 1, 1).bit_length() // _DIGIT_BITS)
        passes, histograms = (1, 0) if rows <= _TILE_ROWS else (digits, 1)
        bytes_moved += rows * INDEX_BYTES * (histograms + 4 * passes)
        bytes_moved += rows * max(GATHER_BYTES - table.width * VALUE_BYTES, 0)
        launches += histograms + passes
    return Work("encode", bytes_moved, launches)


def sum_work(contributions: Iterable[Sequence[RowSparse]], sums: Sequence[RowSparse], phase: Phase) -> Work:
    """Return the cost of adding the rows of several messages up.

    Parameters
    ----------
    contributions : iterable of sequence of RowSparse
        The tables of each message.
    sums : sequence of RowSparse
        What they come to.
    phase : {"encode", "decode"}
        Which time it counts to.
    """
    bytes_moved = 0
    for parts, total in zip(zip(*contributions, strict=True), sums, strict=True):
        count, row_bytes = total.shape[0], total.width * VALUE_BYTES
        came = sum(len(part.rows) for part in parts)
        keys = sum(key_bytes(len(part.rows), count) for part in parts)
        # All keys become row numbers, and mark a bitmap that has been cleared.
        bytes_moved += keys + came * (ROW_ID_BYTES + SCATTER_BYTES) + bitmap_bytes(count)
        # From the bitmap come the rows of the sum, and how many there are before each word: the place of any row.
        bytes_moved += 2 * bitmap_bytes(count) + len(total.rows) * ROW_ID_BYTES
        # Sums are cleared; then the place of every row that came is looked up and its values are added there.
        added = came * (ROW_ID_BYTES + GATHER_BYTES + row_bytes + max(SCATTER_BYTES, 2 * row_bytes))
        bytes_moved += len(total.rows) * row_bytes + added
    # All bitmaps and all sums are cleared at once; each table is marked, selected and added to by itself.
    return Work(phase, bytes_moved, launches=2 + (2 + SELECT_LAUNCHES) * len(sums))


def join_work(sums: Sequence[RowSparse]) -> Work:
    """Return the cost of making tables of the rows that all owners hold: numbers from keys, values side by side."""
    bytes_moved = sum(len(table.rows) * (INDEX_BYTES + ROW_ID_BYTES + 2 * table.width * VALUE_BYTES) for table in sums)
    return Work("decode", bytes_moved, launches=2 * len(sums))
