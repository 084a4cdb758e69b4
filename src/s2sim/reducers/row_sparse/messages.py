"""Rows of tables as they travel: how many of each table, their values, and which they are.

Which rows they are takes 4 bytes a row, or one bit for every row that the table has, whatever is shorter; the number of
rows says which of the two it is. One key stands for a whole row; of a one-dimensional table, for an element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from s2sim.codecs.bitmap import bitmap_bytes, pack_positions, unpack_positions
from s2sim.errors import S2SimError
from s2sim.gradients.gradient import RowSparse, union_of
from s2sim.reducers.group.combine import refuse_overflow
from s2sim.reducers.row_sparse.gpu_memory import INDEX_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Message: TypeAlias = "tuple[NDArray[np.uint32], tuple[NDArray[Any], ...], tuple[NDArray[np.uint8], ...]]"
"""Rows of each table, uint32 of shape (tables,); their values; their keys as bytes."""

_MOST_ROWS = 2**31


def check_rows(count: int) -> None:
    """Raise `S2SimError` unless the row numbers of a table of ``count`` rows fit in their keys."""
    if count > _MOST_ROWS:
        raise S2SimError(f"a table of {count} rows has more than {_MOST_ROWS}: split it into several layers")


def listed(rows: int, count: int) -> bool:
    """Return whether the keys of ``rows`` rows of a table of ``count`` are a list; else they are a bitmap."""
    return rows * INDEX_BYTES <= bitmap_bytes(count)


def key_bytes(rows: int, count: int) -> int:
    """Return the bytes of the keys of ``rows`` rows of a table of ``count``.

    >>> key_bytes(3, 1000), key_bytes(300, 1000)
    (12, 125)
    """
    return rows * INDEX_BYTES if listed(rows, count) else bitmap_bytes(count)


def pack_tables(tables: Sequence[RowSparse]) -> Message:
    """Return the stored rows of some tables as one message."""
    counts = np.array([len(table.rows) for table in tables], np.uint32)
    return counts, tuple(table.values for table in tables), tuple(map(_keys, tables))


def unpack_tables(message: Message, shapes: Sequence[tuple[int, ...]]) -> list[RowSparse]:
    """Return the rows of a message, the inverse of `pack_tables` for tables of these shapes."""
    return [
        RowSparse(_rows(keys, int(held), shape[0]), values, shape)
        for held, values, keys, shape in zip(*message, shapes, strict=True)
    ]


def sum_tables(parts: Sequence[RowSparse]) -> RowSparse:
    """Return the sum of several ranks' rows of one table, in float32 and in their order; `S2SimError` on overflow."""
    rows = union_of(parts)
    total = np.zeros((len(rows), *parts[0].shape[1:]), np.float32)
    with refuse_overflow():
        for part in parts:
            total[np.searchsorted(rows, part.rows)] += part.values
    return RowSparse(rows, total, parts[0].shape)


def _keys(table: RowSparse) -> NDArray[np.uint8]:
    check_rows(table.shape[0])
    if listed(len(table.rows), table.shape[0]):
        return table.rows.astype("<u4").view(np.uint8)
    return pack_positions(table.rows, table.shape[0])


def _rows(keys: NDArray[np.uint8], held: int, count: int) -> NDArray[np.int64]:
    return keys.view("<u4").astype(np.int64) if listed(held, count) else unpack_positions(keys, count)
