"""Rows of tables as they travel: how many of each table and which they are, and their values.

Which rows they are takes 4 bytes a row, or one bit for every row that the table has, whatever is shorter; the number of
rows says which of the two it is. One key stands for a whole row; of a one-dimensional table, for an element.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from s2sim.codecs.bfloat16 import as_held, widen
from s2sim.codecs.bitmap import bitmap_bytes, pack_positions, unpack_positions
from s2sim.errors import S2SimError
from s2sim.gradients.gradient import RowSparse, union_of
from s2sim.reducers.gpu_cost import INDEX_BYTES
from s2sim.reducers.group.combine import refuse_overflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Bits, Ints
    from s2sim.reducers.rank import Held

Message: TypeAlias = "tuple[NDArray[Any], ...]"
"""Bytes: the rows of each table as uint32, then the keys of each; after them the values of each table."""

COUNT_BYTES = 4
"""How many rows of a table there are."""

_MOST_ROWS = 2**31
_VALUES_AT_ONCE = 1 << 14


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
    return min(rows * INDEX_BYTES, bitmap_bytes(count))


def pack_tables(tables: Sequence[RowSparse], held: Held = "fp32") -> Message:
    """Return the stored rows of some tables as one message, with values of the type that gradients are held in."""
    counts = np.array([len(table.rows) for table in tables], "<u4").view(np.uint8)
    return np.concatenate([counts, *map(_keys, tables)]), *(as_held(table.values, held) for table in tables)


def unpack_tables(message: Message, shapes: Sequence[tuple[int, ...]]) -> list[RowSparse]:
    """Return the rows of a message, the inverse of `pack_tables` for tables of these shapes."""
    header, *values = message
    start = COUNT_BYTES * len(shapes)
    tables = []
    for held, own, shape in zip(header[:start].view("<u4").tolist(), values, shapes, strict=True):
        stop = start + key_bytes(held, shape[0])
        tables.append(RowSparse(_rows(header[start:stop], held, shape[0]), widen(own), shape))
        start = stop
    return tables


def sum_tables(parts: Sequence[RowSparse]) -> RowSparse:
    """Return the sum of several ranks' rows of one table, in float32 and in their order; `S2SimError` on overflow."""
    rows, width = union_of(parts), parts[0].width
    total = np.zeros((len(rows), *parts[0].shape[1:]), np.float32)
    with refuse_overflow():
        for start, stop in pairwise(_cuts(parts)):
            some = parts[start:stop]
            places = np.searchsorted(rows, np.concatenate([part.rows for part in some]))
            values = np.concatenate([part.values for part in some])
            if len(some) == 1:
                total[places] += values
            else:
                elements = np.add.outer(places * width, np.arange(width))
                np.add.at(total.reshape(-1), elements.reshape(-1), values.reshape(-1))
    return RowSparse(rows, total, parts[0].shape)


def _cuts(parts: Sequence[RowSparse]) -> list[int]:
    """Return where to cut so that few parts of many values, or many of few, are added at once."""
    cuts, held = [0], 0
    for index, part in enumerate(parts, 1):
        held += part.values.size
        if held >= _VALUES_AT_ONCE or index == len(parts):
            cuts.append(index)
            held = 0
    return cuts


def _keys(table: RowSparse) -> Bits:
    check_rows(table.shape[0])
    if listed(len(table.rows), table.shape[0]):
        return table.rows.astype("<u4").view(np.uint8)
    return pack_positions(table.rows, table.shape[0])


def _rows(keys: Bits, held: int, count: int) -> Ints:
    return keys.view("<u4").astype(np.int64) if listed(held, count) else unpack_positions(keys, count)
