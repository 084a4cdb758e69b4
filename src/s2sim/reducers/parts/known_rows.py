"""Rows of shards that everybody concerned knows: bitmaps of them, and values that travel without their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from s2sim.codecs.bfloat16 import as_held, widen
from s2sim.codecs.bitmap import bitmap_bytes, pack_positions, unpack_positions
from s2sim.gradients.gradient import RowSparse, union_of
from s2sim.reducers.gpu_cost import GATHER_BYTES, ROW_ID_BYTES, SCATTER_BYTES, VALUE_BYTES
from s2sim.reducers.group.combine import refuse_overflow
from s2sim.reducers.scripts.script import Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Bits, Ints
    from s2sim.reducers.rank import Held
    from s2sim.reducers.scripts.script import Phase

Tables: TypeAlias = "list[RowSparse]"
"""The rows of a shard, or of one owner's part of it, of each table."""

Shapes: TypeAlias = "Sequence[tuple[int, ...]]"


def pack_support(tables: Sequence[RowSparse]) -> Bits:
    """Return one bitmap after the other, of the rows that each table holds; how long it is depends on no data."""
    return np.concatenate([np.empty(0, np.uint8), *(pack_positions(table.rows, table.shape[0]) for table in tables)])


def unpack_support(bits: Bits, shapes: Shapes) -> Tables:
    """Return tables of these shapes that hold the rows of `pack_support`, but no values."""
    sizes = [bitmap_bytes(shape[0]) for shape in shapes]
    parts = np.split(bits, np.cumsum(sizes, dtype=np.int64)[:-1])
    return [rows_alone(unpack_positions(part, shape[0]), shape) for part, shape in zip(parts, shapes, strict=True)]


def merged(supports: Iterable[Tables]) -> Tables:
    """Return the rows that any of several ranks holds of each table."""
    return [rows_alone(union_of(tables), tables[0].shape) for tables in zip(*supports, strict=True)]


def pack_values(tables: Sequence[RowSparse], held: Held) -> NDArray[Any]:
    """Return the values of some tables, one after the other, as they travel."""
    return as_held(np.concatenate([np.empty(0, np.float32), *(table.values.reshape(-1) for table in tables)]), held)


def unpack_values(values: NDArray[Any], supports: Sequence[RowSparse]) -> Tables:
    """Return the tables of which `pack_values` has the values, from those that hold the same rows."""
    ends = np.cumsum([table.values.size for table in supports], dtype=np.int64)
    parts = np.split(widen(values), ends[:-1])
    return [table.with_values(part.reshape(table.values.shape)) for part, table in zip(parts, supports, strict=True)]


def add_up(parts: Sequence[Tables], supports: Sequence[RowSparse]) -> Tables:
    """Return the sums of what several ranks have of each table, in their order, for the rows that ``supports`` hold."""
    sums = []
    for tables, support in zip(zip(*parts, strict=True), supports, strict=True):
        total = np.zeros(support.values.shape, np.float32)
        with refuse_overflow():
            for table in tables:
                total[np.searchsorted(support.rows, table.rows)] += table.values
        sums.append(support.with_values(total))
    return sums


def stretches(table: RowSparse, cuts: Ints) -> list[RowSparse]:
    """Return the parts of a table between cuts, each with rows of its own numbers."""
    bounds = np.searchsorted(table.rows, cuts).tolist()
    return [
        RowSparse(table.rows[first:stop] - begin, table.values[first:stop], (int(end - begin), *table.shape[1:]))
        for first, stop, begin, end in zip(bounds, bounds[1:], cuts, cuts[1:], strict=False)
    ]


def merge_cost(bitmaps_bytes: int, bitmaps: int) -> Work:
    """Return the cost of merging so many bitmaps of so many bytes each: all are read, one is written."""
    return Work("encode", (bitmaps + 1) * bitmaps_bytes)


def pack_cost(tables: Sequence[RowSparse], launches: int) -> Work:
    """Return the cost of copying rows to where the bitmap of them, counted word by word, says that each belongs.

    There are as many launches as tables, in however many parts they are given.
    """
    bytes_moved = sum(
        len(table.rows) * (ROW_ID_BYTES + GATHER_BYTES + 2 * table.width * VALUE_BYTES) for table in tables
    )
    return Work("encode", bytes_moved, launches)


def add_cost(parts: Sequence[Tables], sums: Sequence[RowSparse], phase: Phase = "encode") -> Work:
    """Return the cost of `add_up`: all sums are cleared at once, then each value that came is added in its place."""
    bytes_moved = 0
    for tables, total in zip(zip(*parts, strict=True), sums, strict=True):
        row_bytes = total.width * VALUE_BYTES
        came = sum(len(table.rows) for table in tables)
        bytes_moved += len(total.rows) * row_bytes
        bytes_moved += came * (GATHER_BYTES + row_bytes + max(SCATTER_BYTES, 2 * row_bytes))
    return Work(phase, bytes_moved, launches=1 + len(sums))


def rows_alone(rows: Ints, shape: tuple[int, ...]) -> RowSparse:
    """Return a table of which no values are known; they take no memory."""
    return RowSparse(rows, np.broadcast_to(np.float32(0), (len(rows), *shape[1:])), shape)
