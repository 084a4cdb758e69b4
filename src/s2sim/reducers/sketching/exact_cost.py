"""Costs of GPU work on an exact sketch: memory traffic of its kernels, as many launches as peeling has rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.peel_table import THIRDS
from s2sim.reducers.gpu_cost import GATHER_BYTES, INDEX_BYTES, ROW_ID_BYTES, SCATTER_BYTES, VALUE_BYTES
from s2sim.reducers.row_sparse.cost import read_bitmaps
from s2sim.reducers.scripts.script import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Ints
    from s2sim.codecs.exact_sketch import Decoded, ExactSketch
    from s2sim.gradients.gradient import RowSparse
    from s2sim.reducers.row_sparse.support import BitmapFormat

_MAXIMUM_BYTES = 8
"""A float64 maximum of a group."""

_STATE_BYTES = 4
"""How many keys a cell has, and the sum of their numbers."""

_ORDER_KERNELS = 2
"""Of each round: one finds the cells with a single key and lets it claim one of them, one takes these keys out of their
other cells. Neither can begin before the one before it has ended everywhere."""


def maxima(tables: Sequence[RowSparse], sketches: Sequence[ExactSketch]) -> Work:
    """Return the cost of finding the largest magnitude in each group: row numbers and values are read once."""
    read = sum(len(table.rows) * ROW_ID_BYTES + table.values.nbytes for table in tables)
    return Work("encode", read + _MAXIMUM_BYTES * sum(sketch.groups for sketch in sketches), launches=len(tables))


def encode(tables: Sequence[RowSparse], sketches: Sequence[ExactSketch], *, carried: bool) -> Work:
    """Return the cost of the cells, and of the parts of the range if units were carried over."""
    # One kernel clears all cells and one a table adds its values; this one sees the maxima.
    bytes_moved, launches = 0, 1 + len(tables)
    for table, sketch in zip(tables, sketches, strict=True):
        bytes_moved += _cells(sketch) * sketch.width * _itemsize(sketch)
        bytes_moved += table.values.nbytes + len(table.rows) * (ROW_ID_BYTES + THIRDS * 2 * _row_bytes(sketch))
    if carried:
        bytes_moved += sum(sketch.groups * (_MAXIMUM_BYTES + _itemsize(sketch)) for sketch in sketches)
        launches += 1
    return Work("encode", bytes_moved, launches)


def order(
    tables: Sequence[RowSparse],
    sketches: Sequence[ExactSketch],
    bitmap: BitmapFormat,
    union: Sequence[Ints],
    rounds: int,
) -> Work:
    """Return the cost of finding the rows of the union, and in ``rounds`` rounds from which cell each is to be read.

    One kernel serves all tables, as it does all blocks of one, so that the table with most rounds counts.
    """
    find = read_bitmaps(tables, bitmap, union, "decode")
    ordered = sum(_order_bytes(sketch, len(rows)) for sketch, rows in zip(sketches, union, strict=True))
    # Cells' states are cleared and counted; after the last round one more look finds no key.
    return Work("decode", find.bytes_moved + ordered, find.launches + 2 + _ORDER_KERNELS * rounds + 1)


def read(sketches: Sequence[ExactSketch], decoded: Sequence[Decoded], rounds: int) -> Work:
    """Return the cost of reading the keys' values in this order, one kernel for each of ``rounds`` rounds."""
    moved = sum(
        (len(found.values) - len(found.left)) * _read_bytes(sketch)
        for sketch, found in zip(sketches, decoded, strict=True)
    )
    return Work("decode", moved, max(1, rounds))


def decode_own(tables: Sequence[RowSparse], sketches: Sequence[ExactSketch], decoded: Sequence[Decoded]) -> Work:
    """Return the cost of peeling a rank's own rows out of its own cells, for error feedback."""
    ordered = sum(_order_bytes(sketch, len(table.rows)) for table, sketch in zip(tables, sketches, strict=True))
    values = read(sketches, decoded, max(found.rounds for found in decoded))
    launches = 2 + _ORDER_KERNELS * max(found.rounds for found in decoded) + 1
    return Work("encode", ordered + values.bytes_moved, launches + values.launches)


def pack_again(tables: Sequence[RowSparse], again: Sequence[Ints]) -> Work:
    """Return the cost of a buffer for the rows that are sent again: cleared, own rows looked up and copied."""
    cleared = sum(len(rows) * table.width for table, rows in zip(tables, again, strict=True)) * VALUE_BYTES
    # Which of these rows a rank holds is not known: it copies no more than all, and looks all of them up.
    copied = sum(
        len(rows) * (2 * ROW_ID_BYTES + GATHER_BYTES + 2 * table.width * VALUE_BYTES)
        for table, rows in zip(tables, again, strict=True)
    )
    return Work("encode", cleared + copied, launches=1 + len(tables))


def place_again(tables: Sequence[RowSparse], again: Sequence[Ints]) -> Work:
    """Return the cost of writing the sums of the rows that were sent again to their places."""
    moved = sum(
        len(rows) * (ROW_ID_BYTES + 2 * table.width * VALUE_BYTES) for table, rows in zip(tables, again, strict=True)
    )
    return Work("decode", moved, launches=len(tables))


def _order_bytes(sketch: ExactSketch, keys: int) -> int:
    """Return the traffic of finding the order of ``keys`` keys, all of which can be read."""
    # States are cleared, every key is counted in its three cells, and all states are looked at once.
    counted = 2 * _cells(sketch) * _STATE_BYTES + keys * (ROW_ID_BYTES + THIRDS * SCATTER_BYTES)
    # Each is written down with its cell, claims it, and is taken out of three states, which are looked at again.
    found = 2 * INDEX_BYTES + SCATTER_BYTES + GATHER_BYTES + THIRDS * (SCATTER_BYTES + GATHER_BYTES)
    return counted + keys * found


def _read_bytes(sketch: ExactSketch) -> int:
    """Return the traffic of reading one key: its values, which go to the result and out of the two other cells."""
    values = _row_bytes(sketch) + sketch.width * VALUE_BYTES + (THIRDS - 1) * 2 * _row_bytes(sketch)
    return ROW_ID_BYTES + 2 * INDEX_BYTES + values


def _cells(sketch: ExactSketch) -> int:
    return sketch.table.cells


def _itemsize(sketch: ExactSketch) -> int:
    return np.dtype(sketch.dtype).itemsize


def _row_bytes(sketch: ExactSketch) -> int:
    """Return what reading one key's values in one cell moves: whole sectors."""
    return -(-sketch.width * _itemsize(sketch) // GATHER_BYTES) * GATHER_BYTES
