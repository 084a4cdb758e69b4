"""Rows of sparse tables in messages: with their keys, or with a bitmap that all ranks know.

Keys take 4 bytes per row or one bit per row of the table, whichever is shorter; the number of rows determines which.
Libraries have no OR of bits, so that a bitmap of the union has three formats: one bit per row with OR, one byte with
max, or one float32 with a sum, as in the S2 authors' published code.
"""

from collections.abc import Iterable, Sequence
from itertools import compress, pairwise
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from s2sim.arrays import Array, Bits, Ints, split_sizes
from s2sim.codecs.bitmap import N, bitmap_bytes, pack_positions, unpack_positions
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.errors import S2SimError
from s2sim.gradients.gradient import RowSparse, union_of
from s2sim.reducers.gpu_cost import GATHER_BYTES, INDEX_BYTES, ROW_ID_BYTES, SCATTER_BYTES, SELECT_LAUNCHES, VALUE_BYTES
from s2sim.reducers.rank import GradientDtype, Pending, Rank
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.script import Phase, Work

Tables: TypeAlias = "list[RowSparse]"
"""The rows of each table in a shard, or in an owner's part of it."""


def pack_support(tables: Sequence[RowSparse]) -> Bits:
    """Return the concatenated bitmaps of each table's stored rows, whose size does not depend on data."""
    return np.concatenate([np.empty(0, np.uint8), *(pack_positions(table.rows, table.shape[0]) for table in tables)])


def unpack_support(bits: Bits, like: Sequence[RowSparse]) -> Tables:
    """Return tables of the shapes of others with the rows of `pack_support`, but without values."""
    shapes = [table.shape for table in like]
    pairs = zip(split_sizes(bits, (bitmap_bytes(shape[0]) for shape in shapes)), shapes, strict=True)
    return [rows_without_values(unpack_positions(part, shape[0]), shape) for part, shape in pairs]


def merge_supports(supports: Iterable[Tables]) -> Tables:
    """Return the union over ranks of each table's rows."""
    return [rows_without_values(union_of(tables), tables[0].shape) for tables in zip(*supports, strict=True)]


def pack_values(tables: Sequence[RowSparse], held: GradientDtype) -> Array:
    """Return the concatenated values of some tables, of the gradient dtype."""
    values = np.concatenate([np.empty(0, np.float32), *(table.values.reshape(-1) for table in tables)])
    return round_to_dtype(values, held)


def unpack_values(values: Array, supports: Sequence[RowSparse]) -> Tables:
    """Return the tables of `pack_values`, from tables with the same rows."""
    return _with_packed_values(values, [(table.rows, table.shape) for table in supports])


def _with_packed_values(values: Array, supports: Iterable[tuple[Ints, tuple[int, ...]]]) -> Tables:
    """Return the tables of some rows and shapes, from the values of all."""
    values, tables, start = widen(values), [], 0
    for rows, shape in supports:
        stop = start + len(rows) * prod(shape[1:])
        tables.append(RowSparse(rows, values[start:stop].reshape(len(rows), *shape[1:]), shape))
        start = stop
    return tables


def sum_known_rows(parts: Sequence[Tables], supports: Sequence[RowSparse]) -> Tables:
    """Return the sums of several ranks' tables, in float32 and in their order, over the rows of ``supports``."""
    return [sum_tables(part, table.rows) for part, table in zip(zip(*parts, strict=True), supports, strict=True)]


def split_table(table: RowSparse, cuts: Ints) -> list[RowSparse]:
    """Return the parts of a table between ``cuts``, each with rows numbered from 0."""
    bounds = np.searchsorted(table.rows, cuts).tolist()
    return [
        RowSparse(table.rows[first:stop] - begin, table.values[first:stop], (int(end - begin), *table.shape[1:]))
        for first, stop, begin, end in zip(bounds, bounds[1:], cuts, cuts[1:], strict=False)
    ]


def merge_bitmaps_cost(bitmaps_bytes: int, bitmaps: int) -> Work:
    """Return the cost of merging ``bitmaps`` of ``bitmaps_bytes`` each: all are read, one is written."""
    return Work("encode", (bitmaps + 1) * bitmaps_bytes)


def pack_values_cost(tables: Sequence[RowSparse], launches: int) -> Work:
    """Return the cost of copying rows to their positions in the bitmap, which its counts per word give.

    ``launches`` is the number of tables, which may be given in several parts.
    """
    moved = sum(len(table.rows) * (ROW_ID_BYTES + GATHER_BYTES + 2 * table.width * VALUE_BYTES) for table in tables)
    return Work("encode", moved, launches)


def sum_values_cost(parts: Sequence[Tables], sums: Sequence[RowSparse]) -> Work:
    """Return the cost of `sum_known_rows`: one kernel clears all sums, then one per table adds the received values."""
    bytes_moved = 0
    for tables, total in zip(zip(*parts, strict=True), sums, strict=True):
        row_bytes = total.width * VALUE_BYTES
        received = sum(len(table.rows) for table in tables)
        bytes_moved += len(total.rows) * row_bytes
        bytes_moved += received * (GATHER_BYTES + row_bytes + max(SCATTER_BYTES, 2 * row_bytes))
    return Work("encode", bytes_moved, launches=1 + len(sums))


def rows_without_values(rows: Ints, shape: tuple[int, ...]) -> RowSparse:
    """Return a table with unknown values, which take no memory."""
    return RowSparse(rows, np.broadcast_to(np.float32(0), (len(rows), *shape[1:])), shape)


Message: TypeAlias = "tuple[Array, Array]"
"""Bytes: the number of rows of each table as uint32, then the keys of each; and the values of all tables."""

COUNT_BYTES = 4  # Of a number of rows
_MAX_ROWS, _VALUES_AT_ONCE = 2**31, 1 << 14


def check_rows(count: int) -> None:
    """Raise `S2SimError` unless the row numbers of a table of ``count`` rows fit in their keys."""
    if count > _MAX_ROWS:
        raise S2SimError(f"a table of {count} rows has more than {_MAX_ROWS}: split it into several layers")


def uses_key_list(rows: N, count: N) -> Any:
    """Return whether the keys of ``rows`` rows of a table of ``count`` are a list; else they are a bitmap."""
    return rows * INDEX_BYTES <= bitmap_bytes(count)


def key_bytes(rows: int, count: int) -> int:
    """Return the bytes of the keys of ``rows`` rows of a table of ``count``: a list or a bitmap.

    >>> key_bytes(3, 1000), key_bytes(300, 1000)
    (12, 125)
    """
    return min(rows * INDEX_BYTES, bitmap_bytes(count))


def pack_tables(tables: Sequence[RowSparse], held: GradientDtype = "fp32") -> Message:
    """Return the stored rows of some tables as one message, with values of the gradient dtype."""
    if not tables:
        return np.empty(0, np.uint8), pack_values((), held)
    return pack_parts(tables, [np.array([0, table.shape[0]]) for table in tables], held)[0]


def pack_parts(tables: Sequence[RowSparse], cuts: Sequence[Ints], held: GradientDtype = "fp32") -> list[Message]:
    """Return a message for each part of some tables, of the rows between ``cuts`` of each, numbered from 0.

    Cuts are int64 of shape (parts + 1,). Each message is that of `pack_tables` for the parts of `split_table`.
    """
    stored, keys, values = [], [], []
    for table, begins in zip(tables, cuts, strict=True):
        check_rows(table.shape[0])
        bounds, packed = np.searchsorted(table.rows, begins), bitmap_bytes(np.diff(begins))
        counts, places = np.diff(bounds), np.cumsum(packed) - packed
        is_list = uses_key_list(counts, np.diff(begins))
        rows = table.rows - np.repeat(begins[:-1], counts)
        listed, bits = rows.astype("<u4").view(np.uint8), np.empty(0, np.uint8)
        if not is_list.all():
            bits = pack_positions(rows + np.repeat(8 * places, counts), 8 * int(packed.sum()))
        ends = zip(is_list.tolist(), pairwise((4 * bounds).tolist()), places.tolist(), packed.tolist(), strict=True)
        keys.append([listed[first:stop] if one else bits[at : at + size] for one, (first, stop), at, size in ends])
        own = round_to_dtype(table.values.reshape(-1), held)
        values.append([own[first:stop] for first, stop in pairwise((bounds * table.width).tolist())])
        stored.append(counts)
    header = np.stack(stored, axis=1).astype("<u4").view(np.uint8)
    columns = zip(header, zip(*keys, strict=True), zip(*values, strict=True), strict=True)
    return [(np.concatenate([head, *of_tables]), np.concatenate(own)) for head, of_tables, own in columns]


def unpack_messages(messages: Sequence[Message], shapes: Sequence[Sequence[tuple[int, ...]]]) -> list[Tables]:
    """Return the tables of each of some messages, the inverse of `pack_tables` for tables of ``shapes`` of each."""
    if not shapes[0]:
        return [[] for _ in messages]
    header = np.stack([keys[: COUNT_BYTES * len(shapes[0])] for keys, _ in messages]).view("<u4").astype(np.int64)
    begins, columns = np.full(len(messages), COUNT_BYTES * len(shapes[0])), []
    for counts, own_shapes in zip(header.T, zip(*shapes, strict=True), strict=True):
        sizes = np.array([shape[0] for shape in own_shapes])
        packed, is_list = bitmap_bytes(sizes), uses_key_list(counts, sizes)
        lengths = np.where(is_list, INDEX_BYTES * counts, packed)
        spans = zip(messages, begins.tolist(), (begins + lengths).tolist(), strict=True)
        keys = [own[first:stop] for (own, _), first, stop in spans]
        rows, listed = np.empty(counts.sum(), np.int64), np.repeat(is_list, counts)
        if is_list.any():
            rows[listed] = np.concatenate(list(compress(keys, is_list))).view("<u4")
        if not is_list.all():
            bits, packed = np.concatenate(list(compress(keys, ~is_list))), packed[~is_list]
            places = np.repeat(8 * (np.cumsum(packed) - packed), counts[~is_list])
            rows[~listed] = unpack_positions(bits, 8 * len(bits)) - places
        columns.append([rows[first:stop] for first, stop in pairwise([0, *np.cumsum(counts).tolist()])])
        begins += lengths
    return [
        _with_packed_values(values, zip(rows, own, strict=True))
        for (_, values), rows, own in zip(messages, zip(*columns, strict=True), shapes, strict=True)
    ]


def unpack_tables(message: Message, shapes: Sequence[tuple[int, ...]]) -> Tables:
    """Return the rows of a message, the inverse of `pack_tables` for tables of these shapes."""
    return unpack_messages([message], [shapes])[0]


def sum_tables(parts: Sequence[RowSparse], rows: Ints | None = None) -> RowSparse:
    """Return the sum of several ranks' rows of one table, in float32 and in their order; `S2SimError` on overflow.

    The result has the given ``rows``, by default the union.
    """
    rows, width = union_of(parts) if rows is None else rows, parts[0].width
    total = np.zeros((len(rows), *parts[0].shape[1:]), np.float32)
    batch: list[RowSparse] = []
    size = 0
    with refuse_overflow():
        for index, part in enumerate(parts, 1):
            # Large parts are added one by one, small ones in one batch.
            batch.append(part)
            size += part.values.size
            if size < _VALUES_AT_ONCE and index < len(parts):
                continue
            positions = np.searchsorted(rows, np.concatenate([table.rows for table in batch]))
            values = np.concatenate([table.values for table in batch])
            if len(batch) == 1:
                total[positions] += values
            else:
                elements = np.add.outer(positions * width, np.arange(width))
                np.add.at(total.reshape(-1), elements.reshape(-1), values.reshape(-1))
            batch, size = [], 0
    return RowSparse(rows, total, parts[0].shape)


BitmapFormat: TypeAlias = Literal["packed", "byte", "float32"]

_DTYPE: dict[str, type[np.generic]] = {"byte": np.uint8, "float32": np.float32}


def post_support(rank: Rank, tables: Sequence[RowSparse], bitmap: BitmapFormat, label: str = "support") -> Pending:
    """Post the all-reduce of the bitmaps of all tables, packed into one buffer."""
    payload = tuple(
        pack_positions(table.rows, table.shape[0])
        if bitmap == "packed"
        else RowSparse(table.rows, np.ones(len(table.rows), _DTYPE[bitmap]), table.shape[:1])
        for table in tables
    )
    return rank.all_reduce(payload, {"packed": "or", "byte": "max", "float32": "sum"}[bitmap], label=label)


def union_rows(support: tuple[Array, ...], tables: Sequence[RowSparse], bitmap: BitmapFormat) -> list[Ints]:
    """Return the union of each table's rows, strictly increasing, from the merged bitmaps."""
    if bitmap != "packed":
        return list(map(np.flatnonzero, support))
    return [unpack_positions(bits, table.shape[0]) for bits, table in zip(support, tables, strict=True)]


def support_bytes(tables: Sequence[RowSparse], bitmap: BitmapFormat) -> int:
    """Return the bytes of the bitmaps of all tables; each packed one starts on a whole byte."""
    counts = [table.shape[0] for table in tables]
    return sum(map(bitmap_bytes, counts)) if bitmap == "packed" else sum(counts) * np.dtype(_DTYPE[bitmap]).itemsize


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
        keys = int(np.minimum([len(part.rows) * INDEX_BYTES for part in parts], bitmap_bytes(count)).sum())
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


def _count_rows(tables: Iterable[RowSparse]) -> int:
    return sum(len(table.rows) for table in tables)
