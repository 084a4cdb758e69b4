"""Costs of GPU work on an exact sketch: memory traffic of its kernels, as many launches as peeling has rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats, Floats32, Ints, Ints16, Mask
from s2sim.codecs.exact_sketch import CellType, DecodedSums, ExactSketch
from s2sim.codecs.hashing import as_keys
from s2sim.codecs.peel_table import THIRDS
from s2sim.codecs.peeling import peel_order, rounds_needed
from s2sim.codecs.quantize import HEADROOM, error_bound, exponents_for, maxima_from_usage, overflowed, range_usage
from s2sim.gradients.gradient import RowSparse
from s2sim.reducers.gpu_cost import GATHER_BYTES, INDEX_BYTES, ROW_ID_BYTES, SCATTER_BYTES, VALUE_BYTES
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.script import Work
from s2sim.reducers.shared.row_sparse import BitmapFormat
from s2sim.reducers.shared.sketch_cost import read_bitmaps_cost

_MAXIMUM_BYTES = 8
"""A float64 maximum of a group."""

_STATE_BYTES = 4
"""How many keys a cell has, and the sum of their numbers."""

_ORDER_KERNELS = 2
"""Of each round: one finds the cells with a single key and lets it claim one of them, one takes these keys out of their
other cells. Neither can begin before the one before it has ended everywhere."""


def maxima_cost(tables: Sequence[RowSparse], sketches: Sequence[ExactSketch]) -> Work:
    """Return the cost of finding the largest magnitude in each group: row numbers and values are read once."""
    read = sum(len(table.rows) * ROW_ID_BYTES + table.values.nbytes for table in tables)
    return Work("encode", read + _MAXIMUM_BYTES * sum(sketch.groups for sketch in sketches), launches=len(tables))


def encode_exact_cost(tables: Sequence[RowSparse], sketches: Sequence[ExactSketch], *, carried: bool) -> Work:
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


def peel_order_cost(
    tables: Sequence[RowSparse],
    sketches: Sequence[ExactSketch],
    bitmap: BitmapFormat,
    union: Sequence[Ints],
    rounds: int,
) -> Work:
    """Return the cost of finding the rows of the union, and in ``rounds`` rounds from which cell each is to be read.

    One kernel serves all tables, as it does all blocks of one, so that the table with most rounds counts.
    """
    find = read_bitmaps_cost(tables, bitmap, union, "decode")
    ordered = sum(_order_bytes(sketch, len(rows)) for sketch, rows in zip(sketches, union, strict=True))
    # Cells' states are cleared and counted; after the last round one more look finds no key.
    return Work("decode", find.bytes_moved + ordered, find.launches + 2 + _ORDER_KERNELS * rounds + 1)


def read_peeled_cost(sketches: Sequence[ExactSketch], decoded: Sequence[DecodedSums], rounds: int) -> Work:
    """Return the cost of reading the keys' values in this order, one kernel for each of ``rounds`` rounds."""
    moved = sum(
        (len(found.values) - len(found.left)) * _read_bytes(sketch)
        for sketch, found in zip(sketches, decoded, strict=True)
    )
    return Work("decode", moved, max(1, rounds))


def decode_own_exact_cost(
    tables: Sequence[RowSparse], sketches: Sequence[ExactSketch], decoded: Sequence[DecodedSums]
) -> Work:
    """Return the cost of peeling a rank's own rows out of its own cells, for error feedback."""
    ordered = sum(_order_bytes(sketch, len(table.rows)) for table, sketch in zip(tables, sketches, strict=True))
    values = read_peeled_cost(sketches, decoded, max(found.rounds for found in decoded))
    launches = 2 + _ORDER_KERNELS * max(found.rounds for found in decoded) + 1
    return Work("encode", ordered + values.bytes_moved, launches + values.launches)


def pack_resent_cost(tables: Sequence[RowSparse], again: Sequence[Ints]) -> Work:
    """Return the cost of a buffer for the rows that are sent again: cleared, own rows looked up and copied."""
    cleared = sum(len(rows) * table.width for table, rows in zip(tables, again, strict=True)) * VALUE_BYTES
    # Which of these rows a rank holds is not known: it copies no more than all, and looks all of them up.
    copied = sum(
        len(rows) * (2 * ROW_ID_BYTES + GATHER_BYTES + 2 * table.width * VALUE_BYTES)
        for table, rows in zip(tables, again, strict=True)
    )
    return Work("encode", cleared + copied, launches=1 + len(tables))


def place_resent_cost(tables: Sequence[RowSparse], again: Sequence[Ints]) -> Work:
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


_COARSE_BITS = HEADROOM + 1
"""Bits by which units may be coarser than the step itself would have chosen them: one more than the headroom takes."""


@dataclass(frozen=True, slots=True, eq=False)
class TableState:
    """The ranks' common knowledge of a table from its last step.

    ``union`` counts the rows that any rank held; ``maxima``, float64 of shape (groups,), bound the magnitude of sums
    over ranks in each group, None if there are none to rely on.
    """

    union: int
    maxima: Floats | None


def carried_exponents(maxima: Floats, sketch: ExactSketch) -> Ints16:
    """Return the exponents that ``sketch`` encodes with, from the bounds of an earlier step's groups."""
    return exponents_for(regroup_maxima(maxima, sketch.groups), sketch.dtype, HEADROOM)


def regroup_maxima(maxima: Floats, groups: int) -> Floats:
    """Return bounds for another number of groups, each the largest of those whose part of the hash space it meets.

    >>> regroup_maxima(np.array([1.0, 5.0, 2.0]), 2).tolist()
    [5.0, 5.0]
    """
    found = len(maxima)
    if found == groups:
        return maxima
    part = np.arange(groups)
    starts, stops = part * found // groups, -(-(part + 1) * found // groups)
    # Neighbours may meet the same group of before: pairs of (start, stop), of which every second range counts.
    padded = np.append(maxima, 0.0)
    bounds: Floats = np.maximum.reduceat(padded, np.column_stack((starts, stops)).ravel())[::2]
    return bounds


def groups_to_resend(parts: NDArray[Any], exponents: Ints16) -> Mask:
    """Return the groups whose keys must be sent again: sums did not fit, or units were far too coarse.

    Rounding counts where the table as a whole suffers: if it leaves more than 2^`_COARSE_BITS` times the noise that
    units of this step's own would have left, all groups with units that much too coarse are sent again. One that a
    single large value has left is not. The parts of a range that ranks send are whole numbers, at least one a rank
    that has values: with more than two thousand ranks a decline may go unseen.

    ``parts``, int32 or int64 of shape (groups,), are the sum over ranks of `s2sim.codecs.quantize.range_usage`, and
    ``exponents``, int16 of that shape, what they encoded with.
    """
    over = overflowed(parts)
    judged = ~over & (parts > 0)
    if not judged.any():
        return over
    fresh = exponents_for(maxima_from_usage(parts, exponents), parts.dtype)
    # Groups have about as many keys each, because they are parts of a hash space.
    noise, fresh_noise = (np.ldexp(1.0, -2 * powers[judged].astype(np.int64)).sum() for powers in (exponents, fresh))
    if noise <= 4.0**_COARSE_BITS * fresh_noise:
        return over
    return over | (judged & (fresh - exponents > _COARSE_BITS))


def next_table_state(
    union: Sequence[Ints],
    maxima: Sequence[Floats],
    exponents: Sequence[Ints16 | None],
    flags: Sequence[Mask] | None,
    parts: Sequence[NDArray[Any]],
) -> tuple[list[TableState], list[float] | None]:
    """Return what the next step needs of each table, and how far any element of this mean can be from the exact one.

    Bounds that did not serve, or of no value at all, are exchanged again. For float32 cells there are none.

    Parameters
    ----------
    union : sequence of int64 array
        Rows of each table that any rank held.
    maxima : sequence of float64 array
        Bounds on the sums in each group, where units are the step's own.
    exponents : sequence of int16 array or None
        The units.
    flags, parts : sequence of bool array or None, sequence of array
        Where units were carried over: groups that they did not serve, and how much of the range was used.
    """
    units = [powers for powers in exponents if powers is not None]
    if not units:
        return [TableState(len(rows), None) for rows in union], None
    if flags is not None:
        maxima = [maxima_from_usage(*pair) for pair in zip(parts, units, strict=True)]
    # Half a unit a rank in the sum is half a unit in the mean.
    errors = [
        float(error_bound(powers, 1).max()) if bound.any() else 0.0 for powers, bound in zip(units, maxima, strict=True)
    ]
    served = [True] * len(union) if flags is None else [not flagged.any() for flagged in flags]
    bounds = [bound if good and bound.any() else None for bound, good in zip(maxima, served, strict=True)]
    return [TableState(len(rows), bound) for rows, bound in zip(union, bounds, strict=True)], errors


Exponents: TypeAlias = "list[Ints16 | None]"
"""Of the units of each group of each table; None for float32 cells, which have none."""

_CHANCE = 0.01
"""Keys that are expected to need more rounds than are launched."""


def table_exponents(maxima: Sequence[Floats], dtype: CellType) -> Exponents:
    """Return the units of each table for bounds on the sums in its groups."""
    return [exponents_for(found, dtype) for found in maxima]


def table_maxima(tables: Sequence[RowSparse], sketches: Sequence[ExactSketch]) -> list[Floats]:
    """Return the largest magnitude in each group of each table."""
    return [sketch.maxima(table.rows, _matrix(table)) for sketch, table in zip(sketches, tables, strict=True)]


def _matrix(table: RowSparse) -> Floats32:
    """Return the values of the held rows as one row each, whatever the table's shape."""
    matrix: Floats32 = table.values.reshape(len(table.rows), table.width)
    return matrix


def encode_tables(
    sketches: Sequence[ExactSketch], tables: Sequence[RowSparse], exponents: Exponents
) -> tuple[RowSparse, ...]:
    """Return the cells of each table, of which a rank fills few."""
    return tuple(
        RowSparse(*sketch.encode_touched(table.rows, _matrix(table), powers), (sketch.table.cells, sketch.width))
        for sketch, table, powers in zip(sketches, tables, exponents, strict=True)
    )


def table_range_usage(maxima: Sequence[Floats], exponents: Exponents, dtype: CellType) -> tuple[NDArray[Any], ...]:
    """Return how much of the range a rank needs in each group of each table."""
    return tuple(
        range_usage(own, powers, dtype) for own, powers in zip(maxima, exponents, strict=True) if powers is not None
    )


def unserved_groups(parts: Sequence[NDArray[Any]], exponents: Exponents) -> list[Mask] | None:
    """Return the groups of each table whose keys must be sent again; None if units are the step's own."""
    if not parts:
        return None
    return [groups_to_resend(used, powers) for used, powers in zip(parts, exponents, strict=True) if powers is not None]


def peel_rounds(sketch: ExactSketch, rows: Ints) -> int:
    """Return the rounds that wait for each other when ``rows`` are peeled; blocks are peeled side by side.

    As many as nearly always suffice, because the host does not wait for the GPU to say when it has come to an end; more
    where the hash functions at hand need more.
    """
    blocks, cells = sketch.table.blocks, sketch.table.block_cells
    needed = max(peel_order(columns, cells).rounds for _, columns in sketch.table.by_block(as_keys(rows)))
    return max(needed, rounds_needed(len(rows) / blocks, cells, chance=_CHANCE / blocks))


def decode_tables(
    sketches: Sequence[ExactSketch], cells: Sequence[NDArray[Any]], rows: Sequence[Ints], exponents: Exponents
) -> list[DecodedSums]:
    """Return what can be read of some rows of each table."""
    with refuse_overflow():
        return [
            sketch.decode(total.reshape(sketch.shape), keys, powers)
            for sketch, total, keys, powers in zip(sketches, cells, rows, exponents, strict=True)
        ]


def rows_to_resend(
    sketches: Sequence[ExactSketch], union: Sequence[Ints], decoded: Sequence[DecodedSums], flags: Sequence[Mask] | None
) -> list[Ints]:
    """Return the rows of each table that could not be read, or are in a group that its units did not serve."""
    again = []
    for index, (sketch, rows, found) in enumerate(zip(sketches, union, decoded, strict=True)):
        chosen = np.zeros(len(rows), np.bool_)
        chosen[found.left] = True
        if flags is not None and flags[index].any():
            chosen |= flags[index][sketch.group_of(rows)]
        again.append(rows[chosen])
    return again


def replace_resent(
    tables: Sequence[RowSparse],
    rows: Sequence[Ints],
    decoded: Sequence[DecodedSums],
    again: Sequence[Ints],
    exact: Sequence[Floats32] | None,
) -> list[RowSparse]:
    """Return the decoded ``rows`` of each table, those that were sent ``again`` with their ``exact`` values."""
    result = []
    for index, (table, keys, found) in enumerate(zip(tables, rows, decoded, strict=True)):
        values = found.values.reshape(len(keys), *table.shape[1:])
        if exact is not None:
            values[np.searchsorted(keys, again[index])] = exact[index]
        result.append(RowSparse(keys, values, table.shape))
    return result
