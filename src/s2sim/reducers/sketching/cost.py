"""Costs of GPU work on a count sketch: traffic of its kernels, or the measured conversions of the authors' code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s2sim.reducers.gpu_cost import GATHER_BYTES, ROW_ID_BYTES, SCATTER_BYTES, VALUE_BYTES, select
from s2sim.reducers.row_sparse.cost import mark, read_bitmaps
from s2sim.reducers.scripts.script import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Ints
    from s2sim.codecs.count_sketch import CountSketch
    from s2sim.codecs.hyperloglog import HyperLogLog
    from s2sim.gradients.gradient import RowSparse
    from s2sim.reducers.sketching.settings import Settings


def encode(tables: Sequence[RowSparse], sketches: Sequence[CountSketch], settings: Settings) -> Work:
    """Return the cost of the sketches and the bitmaps, before both are sent."""
    if settings.published is not None:
        # That code converts dense tables to coordinates first; its measured time, as passes, holds all kernels. A
        # launch a table keeps small tables from taking no time.
        return Work("encode", 0, launches=len(tables), dense_encode_bytes=sum(table.nbytes for table in tables))
    marked = mark(tables, settings.bitmap)
    inserted = sum(_insert_bytes(table, sketch) for table, sketch in zip(tables, sketches, strict=True))
    # Beside the bitmaps' kernels, one clears all cells and one a table inserts its values.
    return Work("encode", marked.bytes_moved + inserted, marked.launches + 1 + len(tables))


def decode(
    tables: Sequence[RowSparse], union: Sequence[Ints], sketches: Sequence[CountSketch], settings: Settings
) -> Work:
    """Return the cost of finding the rows of the union and reading them from the summed sketches."""
    if settings.published is not None:
        # Likewise, back to dense tables.
        return Work("decode", 0, launches=len(tables), dense_decode_bytes=sum(table.nbytes for table in tables))
    found = read_bitmaps(tables, settings.bitmap, union, "decode")
    read = sum(
        _estimate_bytes(len(rows) * table.width, sketch)
        for rows, table, sketch in zip(union, tables, sketches, strict=True)
    )
    return Work("decode", found.bytes_moved + read, found.launches + len(tables))


def decode_own(tables: Sequence[RowSparse], sketches: Sequence[CountSketch]) -> Work:
    """Return the cost of reading a rank's own rows from its own sketches, for error feedback."""
    read = sum(_estimate_bytes(table.values.size, sketch) for table, sketch in zip(tables, sketches, strict=True))
    return Work("encode", read, launches=len(tables))


def estimate(tables: Sequence[RowSparse], counter: HyperLogLog) -> Work:
    """Return the cost of HyperLogLog registers: row numbers are read, registers stay in shared memory until the end."""
    rows = sum(len(table.rows) for table in tables)
    return Work("encode", rows * ROW_ID_BYTES + len(tables) * counter.size, launches=len(tables))


def energies(tables: Sequence[RowSparse]) -> Work:
    """Return the cost of the sums of the squares of each table's values."""
    return Work("encode", sum(table.values.nbytes for table in tables), launches=len(tables))


def energies_in(sketches: Sequence[CountSketch]) -> Work:
    """Return the cost of the sums of the squares of summed cells."""
    read = sum(sketch.rows * sketch.columns for sketch in sketches) * VALUE_BYTES
    return Work("decode", read, launches=len(sketches))


def _insert_bytes(table: RowSparse, sketch: CountSketch) -> int:
    """Clear the cells; read row numbers and values; add each value to one cell of each row of the sketch."""
    cleared = sketch.rows * sketch.columns * VALUE_BYTES
    return cleared + len(table.rows) * ROW_ID_BYTES + table.values.size * (VALUE_BYTES + sketch.rows * SCATTER_BYTES)


def _estimate_bytes(keys: int, sketch: CountSketch) -> int:
    """Read one cell of each row of the sketch for each key, write the median."""
    return keys * (sketch.rows * GATHER_BYTES + VALUE_BYTES)


def insert(values: int, sketch: CountSketch) -> Work:
    """Return the cost of clearing a sketch and adding ``values`` values to it, read in order."""
    cells = sketch.rows * sketch.columns * VALUE_BYTES
    return Work("encode", cells + values * (VALUE_BYTES + sketch.rows * SCATTER_BYTES), launches=2)


def unsketch(n: int, k: int, sketch: CountSketch) -> tuple[Work, Work]:
    """Return the cost of estimating ``n`` elements, and of finding the ``k`` largest."""
    return Work("decode", _estimate_bytes(n, sketch)), select(n, k)
