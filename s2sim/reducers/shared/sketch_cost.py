"""Costs of GPU work on rows and count sketches: bitmaps, messages of rows, sums over ranks, encoding and decoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from s2sim.arrays import Ints
from s2sim.codecs.bitmap import bitmap_bytes
from s2sim.codecs.count_sketch import CountSketch
from s2sim.gradients.gradient import RowSparse
from s2sim.reducers.gpu_cost import GATHER_BYTES, INDEX_BYTES, ROW_ID_BYTES, SCATTER_BYTES, SELECT_LAUNCHES, VALUE_BYTES
from s2sim.reducers.gpu_cost import select as select_cost
from s2sim.reducers.script import Phase, Work
from s2sim.reducers.shared.row_sparse import BitmapFormat, key_bytes, support_bytes, uses_key_list
from s2sim.reducers.shared.sketch_settings import SketchSettings

_DIGIT_BITS = 8
# CUB sorts what fits in one tile, some thousand pairs, in a single kernel (cub/device/dispatch_radix_sort, SingleTile).
_TILE_ROWS = 4096


def mark_bitmap_cost(tables: Sequence[RowSparse], bitmap: BitmapFormat) -> Work:
    """Return the cost of making the bitmaps from the numbers of the stored rows."""
    # One kernel clears all bitmaps; then, for each table, row numbers are read and their bits set.
    bytes_moved = support_bytes(tables, bitmap) + _count_rows(tables) * (ROW_ID_BYTES + SCATTER_BYTES)
    return Work("encode", bytes_moved, launches=1 + len(tables))


def read_bitmaps_cost(tables: Sequence[RowSparse], bitmap: BitmapFormat, union: Sequence[Ints], phase: Phase) -> Work:
    """Return the cost of turning merged bitmaps into row numbers."""
    bytes_moved = support_bytes(tables, bitmap) + sum(map(len, union)) * ROW_ID_BYTES
    return Work(phase, bytes_moved, launches=SELECT_LAUNCHES * len(tables))


def place_rows_cost(tables: Sequence[RowSparse], union: Sequence[Ints]) -> Work:
    """Return the cost of clearing a buffer for the union's values and copying the rank's own rows into it."""
    cleared = sum(len(rows) * table.width for table, rows in zip(tables, union, strict=True)) * VALUE_BYTES
    # For each stored row its number and position are read, then its values are read and written.
    copied = sum(len(table.rows) * (2 * ROW_ID_BYTES + table.width * 2 * VALUE_BYTES) for table in tables)
    return Work("encode", cleared + copied, launches=1 + len(tables))


def pack_rows_cost(tables: Sequence[RowSparse]) -> Work:
    """Return the cost of writing the rows of some tables into a message: keys, and values read and written."""
    keys, values = write_keys_cost(tables), sum(table.values.size for table in tables)
    return Work("encode", keys.bytes_moved + 2 * VALUE_BYTES * values, keys.launches)


def write_keys_cost(tables: Sequence[RowSparse]) -> Work:
    """Return the cost of writing the keys of rows whose values are in the message already."""
    bytes_moved, launches = 0, 0
    for table in tables:
        rows, count = len(table.rows), table.shape[0]
        # Row numbers are read; a list is written, or a bitmap is cleared and its bits are set one by one.
        needs_bitmap = not uses_key_list(rows, count)
        bytes_moved += rows * (ROW_ID_BYTES + needs_bitmap * SCATTER_BYTES) + key_bytes(rows, count)
        launches += 1 + needs_bitmap
    return Work("encode", bytes_moved, launches)


def sort_by_owner_cost(tables: Sequence[RowSparse], ranks: int) -> Work:
    """Return the cost of bringing rows into the order of their owners, before they are packed.

    A radix sort of 4-byte positions with their indices: a histogram reads all of them, then every digit of 8 bits takes
    one pass (A. Adinets and D. Merrill, "Onesweep", arXiv:2206.01784); few rows take one kernel. Packing then reads
    rows in another order than the table's.
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


def add_rows_cost(contributions: Iterable[Sequence[RowSparse]], sums: Sequence[RowSparse], phase: Phase) -> Work:
    """Return the cost of adding up the rows of several messages of all tables."""
    bytes_moved = 0
    for parts, total in zip(zip(*contributions, strict=True), sums, strict=True):
        count, row_bytes = total.shape[0], total.width * VALUE_BYTES
        received = _count_rows(parts)
        keys = sum(key_bytes(len(part.rows), count) for part in parts)
        # All keys become row numbers, and mark a bitmap that has been cleared.
        bytes_moved += keys + received * (ROW_ID_BYTES + SCATTER_BYTES) + bitmap_bytes(count)
        # The bitmap gives the rows of the sum, and the count before each word, from which follows a row's position.
        bytes_moved += 2 * bitmap_bytes(count) + len(total.rows) * ROW_ID_BYTES
        # Sums are cleared; then the position of each received row is looked up and its values are added there.
        added = received * (ROW_ID_BYTES + GATHER_BYTES + row_bytes + max(SCATTER_BYTES, 2 * row_bytes))
        bytes_moved += len(total.rows) * row_bytes + added
    # One kernel clears all bitmaps, one all sums; marking, selecting and adding take kernels per table.
    return Work(phase, bytes_moved, launches=2 + (2 + SELECT_LAUNCHES) * len(sums))


def join_rows_cost(sums: Sequence[RowSparse]) -> Work:
    """Return the cost of joining the rows of all owners to tables: numbers from keys, values copied."""
    bytes_moved = sum(len(table.rows) * (INDEX_BYTES + ROW_ID_BYTES + 2 * table.width * VALUE_BYTES) for table in sums)
    return Work("decode", bytes_moved, launches=2 * len(sums))


def encode_cost(tables: Sequence[RowSparse], sketches: Sequence[CountSketch], settings: SketchSettings) -> Work:
    """Return the cost of the sketches and the bitmaps, before both are sent."""
    if settings.published is not None:
        # That code converts dense tables to coordinates first; its measured time, as passes, includes all kernels. A
        # launch per table keeps the time of small tables above zero.
        return Work("encode", 0, launches=len(tables), dense_encode_bytes=sum(table.nbytes for table in tables))
    marked = mark_bitmap_cost(tables, settings.bitmap)
    pairs = zip(tables, sketches, strict=True)
    inserted = sum(insert_cost(table.values.size, sketch).bytes_moved for table, sketch in pairs)
    inserted += _count_rows(tables) * ROW_ID_BYTES
    # In addition to the bitmaps' kernels, one clears all cells and one per table inserts its values.
    return Work("encode", marked.bytes_moved + inserted, marked.launches + 1 + len(tables))


def decode_cost(
    tables: Sequence[RowSparse], union: Sequence[Ints], sketches: Sequence[CountSketch], settings: SketchSettings
) -> Work:
    """Return the cost of finding the rows of the union and reading them from the summed sketches."""
    if settings.published is not None:
        # Likewise, back to dense tables.
        return Work("decode", 0, launches=len(tables), dense_decode_bytes=sum(table.nbytes for table in tables))
    found = read_bitmaps_cost(tables, settings.bitmap, union, "decode")
    read = sum(
        _estimate_bytes(len(rows) * table.width, sketch)
        for rows, table, sketch in zip(union, tables, sketches, strict=True)
    )
    return Work("decode", found.bytes_moved + read, found.launches + len(tables))


def decode_own_cost(tables: Sequence[RowSparse], sketches: Sequence[CountSketch]) -> Work:
    """Return the cost of reading a rank's own rows from its own sketches, for error feedback."""
    read = sum(_estimate_bytes(table.values.size, sketch) for table, sketch in zip(tables, sketches, strict=True))
    return Work("encode", read, launches=len(tables))


def _count_rows(tables: Iterable[RowSparse]) -> int:
    return sum(len(table.rows) for table in tables)


def _estimate_bytes(keys: int, sketch: CountSketch) -> int:
    # One cell of each row of the sketch is read for each key, and the median is written.
    return keys * (sketch.rows * GATHER_BYTES + VALUE_BYTES)


def insert_cost(values: int, sketch: CountSketch) -> Work:
    """Return the cost of clearing a sketch, then adding each of ``values`` values to one cell of each of its rows."""
    cells = sketch.rows * sketch.columns
    return Work("encode", cells * VALUE_BYTES + values * (VALUE_BYTES + sketch.rows * SCATTER_BYTES), launches=2)


def unsketch_cost(n: int, k: int, sketch: CountSketch) -> tuple[Work, Work]:
    """Return the cost of estimating ``n`` elements, and of finding the ``k`` largest."""
    return Work("decode", _estimate_bytes(n, sketch)), select_cost(n, k)
