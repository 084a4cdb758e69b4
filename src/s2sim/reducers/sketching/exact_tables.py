"""The exact sketches of all tables of a gradient: cells, units, and what can be read of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from s2sim.codecs.fixed_point import exponents_for, range_parts
from s2sim.codecs.hashing import as_keys
from s2sim.codecs.peeling import enough_rounds, peel_order
from s2sim.gradients.gradient import RowSparse
from s2sim.reducers.group.combine import refuse_overflow
from s2sim.reducers.sketching.exact_units import unserved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from s2sim.arrays import Floats, Floats32, Ints, Ints16, Mask
    from s2sim.codecs.exact_sketch import CellType, Decoded, ExactSketch

Exponents: TypeAlias = "list[Ints16 | None]"
"""Of the units of each group of each table; None for float32 cells, which have none."""

_CHANCE = 0.01
"""Keys that are expected to need more rounds than are launched."""


def exponents(maxima: Sequence[Floats], dtype: CellType) -> Exponents:
    """Return the units of each table for bounds on the sums in its groups."""
    return [exponents_for(found, dtype) for found in maxima]


def maxima(tables: Sequence[RowSparse], sketches: Sequence[ExactSketch]) -> list[Floats]:
    """Return the largest magnitude in each group of each table."""
    return [sketch.maxima(table.rows, _matrix(table)) for sketch, table in zip(sketches, tables, strict=True)]


def _matrix(table: RowSparse) -> Floats32:
    """Return the values of the held rows as one row each, whatever the table's shape."""
    matrix: Floats32 = table.values.reshape(len(table.rows), table.width)
    return matrix


def encode(sketches: Sequence[ExactSketch], tables: Sequence[RowSparse], exponents: Exponents) -> tuple[RowSparse, ...]:
    """Return the cells of each table, of which a rank fills few."""
    return tuple(
        RowSparse(*sketch.encode_touched(table.rows, _matrix(table), powers), (sketch.table.cells, sketch.width))
        for sketch, table, powers in zip(sketches, tables, exponents, strict=True)
    )


def parts_of_range(maxima: Sequence[Floats], exponents: Exponents, dtype: CellType) -> tuple[NDArray[Any], ...]:
    """Return how much of the range a rank needs in each group of each table."""
    return tuple(
        range_parts(own, powers, dtype) for own, powers in zip(maxima, exponents, strict=True) if powers is not None
    )


def unserved_groups(parts: Sequence[NDArray[Any]], exponents: Exponents) -> list[Mask] | None:
    """Return the groups of each table whose keys must be sent again; None if units are the step's own."""
    if not parts:
        return None
    return [unserved(used, powers) for used, powers in zip(parts, exponents, strict=True) if powers is not None]


def rounds(sketch: ExactSketch, rows: Ints) -> int:
    """Return the rounds that wait for each other when ``rows`` are peeled; blocks are peeled side by side.

    As many as nearly always suffice, because the host does not wait for the GPU to say when it has come to an end; more
    where the hash functions at hand need more.
    """
    blocks, cells = sketch.table.blocks, sketch.table.block_cells
    needed = max(peel_order(columns, cells).rounds for _, columns in sketch.table.by_block(as_keys(rows)))
    return max(needed, enough_rounds(len(rows) / blocks, cells, chance=_CHANCE / blocks))


def decode(
    sketches: Sequence[ExactSketch], cells: Sequence[NDArray[Any]], rows: Sequence[Ints], exponents: Exponents
) -> list[Decoded]:
    """Return what can be read of some rows of each table."""
    with refuse_overflow():
        return [
            sketch.decode(total.reshape(sketch.shape), keys, powers)
            for sketch, total, keys, powers in zip(sketches, cells, rows, exponents, strict=True)
        ]


def rows_to_send_again(
    sketches: Sequence[ExactSketch], union: Sequence[Ints], decoded: Sequence[Decoded], flags: Sequence[Mask] | None
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


def with_exact(
    tables: Sequence[RowSparse],
    rows: Sequence[Ints],
    decoded: Sequence[Decoded],
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
