"""Exact sketches of tables: GPU cost, fixed-point units carried over between steps, and peeling."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s2sim.arrays import Floats, Floats32, Ints, Ints16, Mask
from s2sim.codecs.exact_sketch import CellType, DecodedSums, ExactSketch
from s2sim.codecs.hashing import as_keys
from s2sim.codecs.peeling import THIRDS, peel_order, rounds_needed
from s2sim.codecs.quantize import HEADROOM, error_bound, exponents_for, maxima_from_usage, overflowed
from s2sim.gradients.gradient import RowSparse
from s2sim.reducers.gpu_cost import GATHER_BYTES, INDEX_BYTES, ROW_ID_BYTES, SCATTER_BYTES, VALUE_BYTES
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.script import Work
from s2sim.reducers.shared.row_sparse import BitmapFormat, read_bitmaps_cost

_MAXIMUM_BYTES = 8  # A float64 maximum of a group

_STATE_BYTES = 4  # Number of keys in a cell and the sum of the keys

_ORDER_KERNELS = 2
"""Kernels per round: one finds cells with a single key, which claims one of them; one removes these keys from their
other cells. Each starts after the end of the previous one."""

_COARSE_BITS = HEADROOM + 1
"""Bits by which carried units may be coarser than the step's own: one more than the headroom."""

Exponents: TypeAlias = "list[Ints16 | None]"
"""Of the units of each group of each table; None for float32 cells, which have no units."""

_CHANCE = 0.01  # Expected number of keys that need more rounds than are launched


def maxima_cost(tables: Sequence[RowSparse], sketches: Sequence[ExactSketch]) -> Work:
    """Return the cost of finding the largest magnitude in each group: row numbers and values are read once."""
    read = sum(len(table.rows) * ROW_ID_BYTES + table.values.nbytes for table in tables)
    return Work("encode", read + _MAXIMUM_BYTES * sum(sketch.groups for sketch in sketches), launches=len(tables))


def encode_exact_cost(tables: Sequence[RowSparse], sketches: Sequence[ExactSketch], *, carried: bool) -> Work:
    """Return the cost of the cells, and of the parts of the range if units were carried over.

    One kernel clears all cells and one per table adds its values, which finds the maxima too.
    """
    bytes_moved = 0
    for table, sketch in zip(tables, sketches, strict=True):
        itemsize = np.dtype(sketch.dtype).itemsize
        bytes_moved += sketch.table.cells * sketch.width * itemsize
        bytes_moved += table.values.nbytes + len(table.rows) * (ROW_ID_BYTES + THIRDS * 2 * _row_bytes(sketch))
        bytes_moved += carried * sketch.groups * (_MAXIMUM_BYTES + itemsize)
    return Work("encode", bytes_moved, launches=1 + len(tables) + carried)


def peel_order_cost(
    tables: Sequence[RowSparse],
    sketches: Sequence[ExactSketch],
    bitmap: BitmapFormat,
    union: Sequence[Ints],
    rounds: int,
) -> Work:
    """Return the cost of finding the rows of the union, and in ``rounds`` rounds the cell from which to read each.

    A kernel processes all blocks of all tables, so that the table with most rounds counts.
    """
    find = read_bitmaps_cost(tables, bitmap, union, "decode")
    moved, launches = _order_cost(sketches, union, rounds)
    return Work("decode", find.bytes_moved + moved, find.launches + launches)


def read_peeled_cost(sketches: Sequence[ExactSketch], decoded: Sequence[DecodedSums], rounds: int) -> Work:
    """Return the cost of reading the keys' values in this order, one kernel for each of ``rounds`` rounds."""
    moved = 0
    for sketch, sums in zip(sketches, decoded, strict=True):
        # Values are read from one cell, written to the result and subtracted from the two other cells.
        values = _row_bytes(sketch) + sketch.width * VALUE_BYTES + (THIRDS - 1) * 2 * _row_bytes(sketch)
        moved += (len(sums.values) - len(sums.left)) * (ROW_ID_BYTES + 2 * INDEX_BYTES + values)
    return Work("decode", moved, max(1, rounds))


def decode_own_exact_cost(
    tables: Sequence[RowSparse], sketches: Sequence[ExactSketch], decoded: Sequence[DecodedSums]
) -> Work:
    """Return the cost of peeling a rank's own rows out of its own cells, for error feedback."""
    rounds = max(sums.rounds for sums in decoded)
    moved, launches = _order_cost(sketches, [table.rows for table in tables], rounds)
    values = read_peeled_cost(sketches, decoded, rounds)
    return Work("encode", moved + values.bytes_moved, launches + values.launches)


def resent_costs(tables: Sequence[RowSparse], again: Sequence[Ints]) -> tuple[Work, Work]:
    """Return the cost of a buffer for rows that are sent again, and of writing their sums into the result.

    The buffer is cleared, and all of these rows are looked up among a rank's own; at most all of them are copied.
    """
    rows = sum(map(len, again))
    values = sum(len(rows) * table.width for table, rows in zip(tables, again, strict=True)) * VALUE_BYTES
    packed = Work("encode", rows * (2 * ROW_ID_BYTES + GATHER_BYTES) + 3 * values, launches=1 + len(tables))
    return packed, Work("decode", rows * ROW_ID_BYTES + 2 * values, launches=len(tables))


def _order_cost(sketches: Sequence[ExactSketch], rows: Sequence[Ints], rounds: int) -> tuple[int, int]:
    """Return the traffic in bytes and the launches of ordering the rows of each sketch, all of which can be read."""
    # A key is written with its cell, claims it, and is removed from three states, which are read again.
    per_key = ROW_ID_BYTES + 2 * INDEX_BYTES + SCATTER_BYTES + GATHER_BYTES
    per_key += THIRDS * (2 * SCATTER_BYTES + GATHER_BYTES)
    cells = sum(sketch.table.cells for sketch in sketches)
    # States are cleared, keys are counted in their cells, and all states are read; a last look finds no key.
    return 2 * cells * _STATE_BYTES + sum(map(len, rows)) * per_key, 3 + _ORDER_KERNELS * rounds


def _row_bytes(sketch: ExactSketch) -> int:
    """Return the bytes read for one key's values in one cell: whole sectors."""
    return -(-sketch.width * np.dtype(sketch.dtype).itemsize // GATHER_BYTES) * GATHER_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class TableState:
    """A table's state from the last step, known to all ranks."""

    union: int  # Rows
    maxima: Floats | None  # Bounds on the magnitude of sums in each group, float64 of shape (groups,), if known


def regroup_maxima(maxima: Floats, groups: int) -> Floats:
    """Return bounds for another number of groups, each the largest of the groups that overlap it in the hash space.

    >>> regroup_maxima(np.array([1.0, 5.0, 2.0]), 2).tolist()
    [5.0, 5.0]
    """
    count, part = len(maxima), np.arange(groups)
    if count == groups:
        return maxima
    starts, stops = part * count // groups, -(-(part + 1) * count // groups)
    # Ranges of neighbours may overlap: reduceat over pairs of (start, stop), of which every second range counts.
    return np.maximum.reduceat(np.append(maxima, 0.0), np.column_stack((starts, stops)).ravel())[::2]


def groups_to_resend(parts: NDArray[Any], exponents: Ints16) -> Mask:
    """Return the groups whose keys must be sent again: sums did not fit, or units were far too coarse.

    Units are far too coarse if they leave the table more than 2^`_COARSE_BITS` times the noise of the step's own; then
    all groups with units that much too coarse are sent again. A rank with values uses at least one part of the range:
    with more than two thousand ranks a decline may go unseen.

    ``parts``, int32 or int64 of shape (groups,), are the sum over ranks of `s2sim.codecs.quantize.range_usage`, and
    ``exponents``, int16 of shape (groups,), those of the encoded values.
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
    """Return each table's state for the next step, and bounds on the error of this mean's elements in each table.

    Bounds that were too small or too large, or all zero, are dropped: they are exchanged again. float32 cells have
    neither. ``maxima`` are bounds on the sums in each group if units are the step's own; for carried units, ``flags``
    marks the groups that must be sent again and ``parts`` is the used part of the range.
    """
    if not (units := [powers for powers in exponents if powers is not None]):
        return [TableState(len(rows), None) for rows in union], None
    if flags is not None:
        maxima = [maxima_from_usage(*pair) for pair in zip(parts, units, strict=True)]
    # Half a unit a rank in the sum is half a unit in the mean.
    bounded = zip(units, maxima, strict=True)
    errors = [float(error_bound(powers, 1).max()) if bound.any() else 0.0 for powers, bound in bounded]
    failed = [False] * len(union) if flags is None else [flagged.any() for flagged in flags]
    pairs = zip(union, maxima, failed, strict=True)
    return [TableState(len(rows), None if bad or not bound.any() else bound) for rows, bound, bad in pairs], errors


def table_exponents(maxima: Sequence[Floats], dtype: CellType, headroom: int = 0) -> Exponents:
    """Return the exponents of each table for bounds on the sums in its groups."""
    return [exponents_for(bounds, dtype, headroom) for bounds in maxima]


def table_maxima(tables: Sequence[RowSparse], sketches: Sequence[ExactSketch]) -> list[Floats]:
    """Return the largest magnitude in each group of each table."""
    return [sketch.maxima(table.rows, _matrix(table)) for sketch, table in zip(sketches, tables, strict=True)]


def _matrix(table: RowSparse) -> Floats32:
    return table.values.reshape(len(table.rows), table.width)


def encode_tables(
    sketches: Sequence[ExactSketch], tables: Sequence[RowSparse], exponents: Exponents
) -> tuple[RowSparse, ...]:
    """Return the cells of each table as row-sparse ones, of which a rank fills few."""
    return tuple(
        RowSparse(*sketch.encode_touched(table.rows, _matrix(table), powers), (sketch.table.cells, sketch.width))
        for sketch, table, powers in zip(sketches, tables, exponents, strict=True)
    )


def peel_rounds(sketch: ExactSketch, rows: Ints) -> int:
    """Return the consecutive rounds of peeling ``rows``; blocks are peeled concurrently."""
    # At least the number that nearly always suffices, because the host does not wait for the GPU to finish.
    blocks, cells = sketch.table.blocks, sketch.table.block_cells
    needed = max(peel_order(columns, cells).rounds for _, columns in sketch.table.by_block(as_keys(rows)))
    return max(needed, rounds_needed(len(rows) / blocks, cells, chance=_CHANCE / blocks))


def decode_tables(
    sketches: Sequence[ExactSketch], cells: Sequence[NDArray[Any]], rows: Sequence[Ints], exponents: Exponents
) -> list[DecodedSums]:
    """Return the sums of some rows of each table, and the rows that cannot be read."""
    with refuse_overflow():
        return [
            sketch.decode(total.reshape(sketch.shape), keys, powers)
            for sketch, total, keys, powers in zip(sketches, cells, rows, exponents, strict=True)
        ]


def rows_to_resend(
    sketches: Sequence[ExactSketch], union: Sequence[Ints], decoded: Sequence[DecodedSums], flags: Sequence[Mask] | None
) -> list[Ints]:
    """Return the rows of each table that could not be read or are in a flagged group."""
    again = []
    for index, (sketch, rows, sums) in enumerate(zip(sketches, union, decoded, strict=True)):
        chosen = np.zeros(len(rows), np.bool_)
        chosen[sums.left] = True
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
    """Return the decoded ``rows`` of each table; those sent ``again`` have their ``exact`` values."""
    result = []
    for index, (table, keys, sums) in enumerate(zip(tables, rows, decoded, strict=True)):
        values = sums.values.reshape(len(keys), *table.shape[1:])
        if exact is not None:
            values[np.searchsorted(keys, again[index])] = exact[index]
        result.append(RowSparse(keys, values, table.shape))
    return result
