"""The support: which rows of each table any rank holds, exchanged as one bitmap.

Libraries have no OR of bits, so that three formats are in use: one bit a row where there is an OR, one byte a row
combined with max, and one float32 a row summed, as the S2 authors' published code does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from s2sim.codecs.bitmap import bitmap_bytes, pack_positions, unpack_positions
from s2sim.gradients.gradient import RowSparse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Bits, Ints
    from s2sim.reducers.rank import Pending, Rank

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
