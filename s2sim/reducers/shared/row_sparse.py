"""Rows of shards that everybody concerned knows: bitmaps of them, and values that travel without their numbers.

Elements of tables with two coordinates each, 20 bytes, as frameworks keep sparse tensors and S2's authors send them.

In their code tables are dense, are converted to coordinates in every step and back, and messages of unequal lengths are
padded to the longest: which that is, an all-gather of all lengths tells before.

Rows of tables as they travel: how many of each table and which they are, and their values.

Which rows they are takes 4 bytes a row, or one bit for every row that the table has, whatever is shorter; the number of
rows says which of the two it is. One key stands for a whole row; of a one-dimensional table, for an element.

The support: which rows of each table any rank holds, exchanged as one bitmap.

Libraries have no OR of bits, so that three formats are in use: one bit a row where there is an OR, one byte a row
combined with max, and one float32 a row summed, as the S2 authors' published code does.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Bits, Ints
from s2sim.codecs.bitmap import bitmap_bytes, pack_positions, unpack_positions
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.errors import S2SimError
from s2sim.gradients.gradient import RowSparse, as_row_sparse, union_of
from s2sim.reducers.gpu_cost import GATHER_BYTES, INDEX_BYTES, ROW_ID_BYTES, SCATTER_BYTES, SELECT_LAUNCHES, VALUE_BYTES
from s2sim.reducers.rank import GradientDtype, Pending, Rank
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.script import Phase, Work

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
    return [
        rows_without_values(unpack_positions(part, shape[0]), shape) for part, shape in zip(parts, shapes, strict=True)
    ]


def merge_supports(supports: Iterable[Tables]) -> Tables:
    """Return the rows that any of several ranks holds of each table."""
    return [rows_without_values(union_of(tables), tables[0].shape) for tables in zip(*supports, strict=True)]


def pack_values(tables: Sequence[RowSparse], held: GradientDtype) -> NDArray[Any]:
    """Return the values of some tables, one after the other, as they travel."""
    return round_to_dtype(
        np.concatenate([np.empty(0, np.float32), *(table.values.reshape(-1) for table in tables)]), held
    )


def unpack_values(values: NDArray[Any], supports: Sequence[RowSparse]) -> Tables:
    """Return the tables of which `pack_values` has the values, from those that hold the same rows."""
    ends = np.cumsum([table.values.size for table in supports], dtype=np.int64)
    parts = np.split(widen(values), ends[:-1])
    return [table.with_values(part.reshape(table.values.shape)) for part, table in zip(parts, supports, strict=True)]


def sum_known_rows(parts: Sequence[Tables], supports: Sequence[RowSparse]) -> Tables:
    """Return the sums of what several ranks have of each table, in their order, for the rows that ``supports`` hold."""
    sums = []
    for tables, support in zip(zip(*parts, strict=True), supports, strict=True):
        total = np.zeros(support.values.shape, np.float32)
        with refuse_overflow():
            for table in tables:
                total[np.searchsorted(support.rows, table.rows)] += table.values
        sums.append(support.with_values(total))
    return sums


def split_table(table: RowSparse, cuts: Ints) -> list[RowSparse]:
    """Return the parts of a table between cuts, each with rows of its own numbers."""
    bounds = np.searchsorted(table.rows, cuts).tolist()
    return [
        RowSparse(table.rows[first:stop] - begin, table.values[first:stop], (int(end - begin), *table.shape[1:]))
        for first, stop, begin, end in zip(bounds, bounds[1:], cuts, cuts[1:], strict=False)
    ]


def merge_bitmaps_cost(bitmaps_bytes: int, bitmaps: int) -> Work:
    """Return the cost of merging so many bitmaps of so many bytes each: all are read, one is written."""
    return Work("encode", (bitmaps + 1) * bitmaps_bytes)


def pack_values_cost(tables: Sequence[RowSparse], launches: int) -> Work:
    """Return the cost of copying rows to where the bitmap of them, counted word by word, says that each belongs.

    There are as many launches as tables, in however many parts they are given.
    """
    bytes_moved = sum(
        len(table.rows) * (ROW_ID_BYTES + GATHER_BYTES + 2 * table.width * VALUE_BYTES) for table in tables
    )
    return Work("encode", bytes_moved, launches)


def sum_values_cost(parts: Sequence[Tables], sums: Sequence[RowSparse], phase: Phase = "encode") -> Work:
    """Return the cost of `sum_known_rows`.

    All sums are cleared at once, then each value that came is added in its place.
    """
    bytes_moved = 0
    for tables, total in zip(zip(*parts, strict=True), sums, strict=True):
        row_bytes = total.width * VALUE_BYTES
        came = sum(len(table.rows) for table in tables)
        bytes_moved += len(total.rows) * row_bytes
        bytes_moved += came * (GATHER_BYTES + row_bytes + max(SCATTER_BYTES, 2 * row_bytes))
    return Work(phase, bytes_moved, launches=1 + len(sums))


def rows_without_values(rows: Ints, shape: tuple[int, ...]) -> RowSparse:
    """Return a table of which no values are known; they take no memory."""
    return RowSparse(rows, np.broadcast_to(np.float32(0), (len(rows), *shape[1:])), shape)


Coordinates: TypeAlias = "tuple[Ints, NDArray[Any]]"
"""Rows and columns, int64 of shape (2, k), and values of shape (k,)."""

ELEMENT_BYTES = 2 * ROW_ID_BYTES + VALUE_BYTES
"""An element: two int64 and a float32."""


def to_coordinates(table: RowSparse, held: GradientDtype = "fp32") -> Coordinates:
    """Return all elements of a table that are not zero."""
    values = table.values.reshape(len(table.rows), table.width)
    places, columns = np.nonzero(values)
    return np.stack([table.rows[places], columns]), round_to_dtype(values[places, columns], held)


def agree_on_lengths(rank: Rank, tables: Sequence[Coordinates]) -> Generator[Pending, None, Ints]:
    """Gather how many elements each rank has of each table, int64 of shape (ranks, tables)."""
    counts = rank.all_gather(np.array([len(values) for _, values in tables], np.int64), label="counts of non-zeros")
    yield counts
    return np.stack(counts.value)


def pad_coordinates(table: Coordinates, length: int) -> Coordinates:
    """Return so many elements: those of a table, and zeros at its first place."""
    places, values = table
    more = length - len(values)
    return np.pad(places, ((0, 0), (0, more))), np.concatenate([values, np.zeros(more, values.dtype)])


def sum_coordinates(parts: Sequence[Coordinates], lengths: Ints, shape: tuple[int, ...]) -> RowSparse:
    """Return the sum of what ranks have of one table, in float32 and in their order, without the padding."""
    total = np.zeros((shape[0], int(np.prod(shape[1:]))), np.float32)
    for (places, values), length in zip(parts, lengths, strict=True):
        rows, columns = places[:, :length]
        total[rows, columns] += widen(values[:length])
    return as_row_sparse(total.reshape(shape))


def encode_coordinates_cost(tables: Sequence[RowSparse], coordinates: Sequence[Coordinates]) -> Work:
    """Return the cost of reading dense tables and writing their elements that are not zero."""
    found = sum(len(values) for _, values in coordinates)
    moved = sum(table.nbytes for table in tables) + found * ELEMENT_BYTES
    return Work("encode", moved, launches=SELECT_LAUNCHES * len(tables))


def decode_coordinates_cost(tables: Sequence[RowSparse], elements: int, ranks: int) -> Work:
    """Return the cost of clearing dense tables and adding elements to them, a kernel for each rank's of each table."""
    moved = sum(table.nbytes for table in tables) + elements * (ELEMENT_BYTES + SCATTER_BYTES)
    return Work("decode", moved, launches=len(tables) * (1 + ranks))


Message: TypeAlias = "tuple[NDArray[Any], ...]"
"""Bytes: the rows of each table as uint32, then the keys of each; after them the values of each table."""

COUNT_BYTES = 4
"""How many rows of a table there are."""

_MAX_ROWS = 2**31
_VALUES_AT_ONCE = 1 << 14


def check_rows(count: int) -> None:
    """Raise `S2SimError` unless the row numbers of a table of ``count`` rows fit in their keys."""
    if count > _MAX_ROWS:
        raise S2SimError(f"a table of {count} rows has more than {_MAX_ROWS}: split it into several layers")


def uses_key_list(rows: int, count: int) -> bool:
    """Return whether the keys of ``rows`` rows of a table of ``count`` are a list; else they are a bitmap."""
    return rows * INDEX_BYTES <= bitmap_bytes(count)


def key_bytes(rows: int, count: int) -> int:
    """Return the bytes of the keys of ``rows`` rows of a table of ``count``.

    >>> key_bytes(3, 1000), key_bytes(300, 1000)
    (12, 125)
    """
    return min(rows * INDEX_BYTES, bitmap_bytes(count))


def pack_tables(tables: Sequence[RowSparse], held: GradientDtype = "fp32") -> Message:
    """Return the stored rows of some tables as one message, with values of the type that gradients are held in."""
    counts = np.array([len(table.rows) for table in tables], "<u4").view(np.uint8)
    return np.concatenate([counts, *map(_keys, tables)]), *(round_to_dtype(table.values, held) for table in tables)


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
        for start, stop in pairwise(_segment_bounds(parts)):
            some = parts[start:stop]
            places = np.searchsorted(rows, np.concatenate([part.rows for part in some]))
            values = np.concatenate([part.values for part in some])
            if len(some) == 1:
                total[places] += values
            else:
                elements = np.add.outer(places * width, np.arange(width))
                np.add.at(total.reshape(-1), elements.reshape(-1), values.reshape(-1))
    return RowSparse(rows, total, parts[0].shape)


def _segment_bounds(parts: Sequence[RowSparse]) -> list[int]:
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
    if uses_key_list(len(table.rows), table.shape[0]):
        return table.rows.astype("<u4").view(np.uint8)
    return pack_positions(table.rows, table.shape[0])


def _rows(keys: Bits, held: int, count: int) -> Ints:
    return keys.view("<u4").astype(np.int64) if uses_key_list(held, count) else unpack_positions(keys, count)


BitmapFormat: TypeAlias = Literal["packed", "byte", "float32"]

_OPERATION = {"packed": "or", "byte": "max", "float32": "sum"}
_DTYPE: dict[str, type[np.generic]] = {"byte": np.uint8, "float32": np.float32}


def post_support(rank: Rank, tables: Sequence[RowSparse], bitmap: BitmapFormat, label: str = "support") -> Pending:
    """Post the all-reduce of the bitmaps of all tables, packed into one buffer."""
    payload = tuple(_flags(table, bitmap) for table in tables)
    return rank.all_reduce(payload, _OPERATION[bitmap], label=label)


def union_rows(support: tuple[NDArray[Any], ...], tables: Sequence[RowSparse], bitmap: BitmapFormat) -> list[Ints]:
    """Return which rows of each table any rank holds, strictly increasing, from the merged bitmaps."""
    return [_positions(flags, table, bitmap) for flags, table in zip(support, tables, strict=True)]


def support_bytes(tables: Sequence[RowSparse], bitmap: BitmapFormat) -> int:
    """Return the bytes of the bitmaps of all tables; packed ones begin on a whole byte each."""
    counts = [table.shape[0] for table in tables]
    if bitmap == "packed":
        return sum(map(bitmap_bytes, counts))
    return sum(counts) * np.dtype(_DTYPE[bitmap]).itemsize


def _flags(table: RowSparse, bitmap: BitmapFormat) -> Bits | RowSparse:
    count = table.shape[0]
    if bitmap == "packed":
        return pack_positions(table.rows, count)
    return RowSparse(table.rows, np.ones(len(table.rows), _DTYPE[bitmap]), (count,))


def _positions(flags: NDArray[Any], table: RowSparse, bitmap: BitmapFormat) -> Ints:
    return unpack_positions(flags, table.shape[0]) if bitmap == "packed" else np.flatnonzero(flags)
