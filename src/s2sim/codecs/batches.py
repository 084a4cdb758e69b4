"""Keys in batches: enough to be worth the calls, few enough that all that is made of them stays in the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.codecs.hashing import check_key_space

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from s2sim.arrays import Ints, Words

BATCH_KEYS = 1 << 16
"""Keys hashed at once; half a megabyte for each 64-bit temporary keeps all of them in a core's second-level cache."""

_LEAST_KEYS = 1 << 15
"""Keys that are worth the calls of one batch."""


def batches(parts: Iterable[tuple[NDArray[Any], ...]]) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield the same arrays, `_LEAST_KEYS` elements or more at once as far as there are, and at most `BATCH_KEYS`.

    Each part is one array or several of the same length; a batch has as many.
    """
    held: list[tuple[NDArray[Any], ...]] = []
    for part in parts:
        held.append(part)
        if sum(len(first) for first, *_ in held) >= _LEAST_KEYS:
            yield from _cut(held)
            held = []
    if held:
        yield from _cut(held)


def _cut(held: list[tuple[NDArray[Any], ...]]) -> Iterator[tuple[NDArray[Any], ...]]:
    joined = held[0] if len(held) == 1 else tuple(map(np.concatenate, zip(*held, strict=True)))
    for start in range(0, len(joined[0]), BATCH_KEYS):
        yield tuple(array[start : start + BATCH_KEYS] for array in joined)


def row_batches(row_ids: Ints, width: int, offset: int) -> Iterator[tuple[slice, slice, Words]]:
    """Yield (slice of ``row_ids``, slice of columns, their element keys row by row), about `BATCH_KEYS` at a time."""
    if not len(row_ids) or not width:
        return
    check_key_space(offset + int(row_ids.min()) * width, offset + (int(row_ids.max()) + 1) * width)
    rows_at_once = max(1, BATCH_KEYS // width)
    columns_at_once = min(width, BATCH_KEYS)
    for first_row in range(0, len(row_ids), rows_at_once):
        rows = slice(first_row, first_row + rows_at_once)
        # Keys are below 2^32, so arithmetic modulo 2^32 is exact for them.
        row_keys = (row_ids[rows] * width + offset).astype(np.uint32)
        for first_column in range(0, width, columns_at_once):
            columns = slice(first_column, min(width, first_column + columns_at_once))
            column_keys: Words = np.arange(columns.start, columns.stop, dtype=np.uint32)
            yield rows, columns, np.add.outer(row_keys, column_keys).ravel()
