"""Elements of tables with two coordinates each, 20 bytes, as frameworks keep sparse tensors and S2's authors send them.

In their code tables are dense, are converted to coordinates in every step and back, and messages of unequal lengths are
padded to the longest: which that is, an all-gather of all lengths tells before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from s2sim.codecs.bfloat16 import as_held, widen
from s2sim.gradients.gradient import RowSparse, as_row_sparse
from s2sim.reducers.gpu_cost import ROW_ID_BYTES, SCATTER_BYTES, SELECT_LAUNCHES, VALUE_BYTES
from s2sim.reducers.scripts.script import Work

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Ints
    from s2sim.reducers.rank import Held, Pending, Rank

Coordinates: TypeAlias = "tuple[Ints, NDArray[Any]]"
"""Rows and columns, int64 of shape (2, k), and values of shape (k,)."""

ELEMENT_BYTES = 2 * ROW_ID_BYTES + VALUE_BYTES
"""An element: two int64 and a float32."""


def to_coordinates(table: RowSparse, held: Held = "fp32") -> Coordinates:
    """Return all elements of a table that are not zero."""
    values = table.values.reshape(len(table.rows), table.width)
    places, columns = np.nonzero(values)
    return np.stack([table.rows[places], columns]), as_held(values[places, columns], held)


def agree_on_lengths(rank: Rank, tables: Sequence[Coordinates]) -> Generator[Pending, None, Ints]:
    """Gather how many elements each rank has of each table, int64 of shape (ranks, tables)."""
    counts = rank.all_gather(np.array([len(values) for _, values in tables], np.int64), label="counts of non-zeros")
    yield counts
    return np.stack(counts.value)


def padded(table: Coordinates, length: int) -> Coordinates:
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


def encode(tables: Sequence[RowSparse], coordinates: Sequence[Coordinates]) -> Work:
    """Return the cost of reading dense tables and writing their elements that are not zero."""
    found = sum(len(values) for _, values in coordinates)
    moved = sum(table.nbytes for table in tables) + found * ELEMENT_BYTES
    return Work("encode", moved, launches=SELECT_LAUNCHES * len(tables))


def decode(tables: Sequence[RowSparse], elements: int, ranks: int) -> Work:
    """Return the cost of clearing dense tables and adding elements to them, a kernel for each rank's of each table."""
    moved = sum(table.nbytes for table in tables) + elements * (ELEMENT_BYTES + SCATTER_BYTES)
    return Work("decode", moved, launches=len(tables) * (1 + ranks))
