"""A count sketch of each table of a gradient: its keys are the numbers of the table's elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.compiled import backend_for
from s2sim.codecs.count_sketch import CountSketch
from s2sim.gradients.gradient import RowSparse, as_row_sparse
from s2sim.reducers.group.combine import refuse_overflow
from s2sim.seeds import named_generator

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s2sim.arrays import Floats, Floats32, Ints
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.sketching.settings import Settings


def seed_of(seed: int, step: int) -> int:
    """Return the seed of a step's hash functions.

    Others in each step, so that keys which collide in one part in the next; with the same ones, error feedback would
    add up what collides and never deliver it.
    """
    return int(named_generator(seed, "count sketch", step).integers(2**63))


def make_sketches(settings: Settings, columns: Sequence[int], seed: int, hashes: int) -> list[CountSketch]:
    """Return sketches of so many columns each, by compiled loops where they pay for so many ``hashes``."""
    backend = backend_for(hashes) if settings.hash == "mix" else "numpy"
    return [CountSketch(settings.rows, count, seed, settings.hash, backend=backend) for count in columns]


def values_in(rows: Iterable[float], tables: Sequence[RowSparse]) -> Floats:
    """Return the elements of so many ``rows`` of each table, float64 of shape (tables,)."""
    return np.array([count * table.width for count, table in zip(rows, tables, strict=True)], np.float64)


def union_sums(gradients: Sequence[Gradient], compressed: Sequence[int]) -> list[Floats32]:
    """Return the sums over ranks of all elements of the union's rows, float32 of shape (values,), of each table."""
    parts = []
    for index in compressed:
        layers = [gradient.layers[index] for gradient in gradients]
        tables = [layer if isinstance(layer, RowSparse) else as_row_sparse(layer.reshape(-1)) for layer in layers]
        rows, place = np.unique(np.concatenate([table.rows for table in tables]), return_inverse=True)
        sums = np.zeros((len(rows), tables[0].width))
        np.add.at(sums, place, np.concatenate([table.values.reshape(len(table.rows), table.width) for table in tables]))
        with refuse_overflow():
            parts.append(sums.astype(np.float32).reshape(-1))
    return parts


def energies(tables: Sequence[RowSparse]) -> Floats:
    """Return the sum of the squares of each table's values, float64 of shape (tables,)."""
    return np.array([np.square(table.values, dtype=np.float64).sum() for table in tables])


def energies_in(cells: Sequence[Floats32]) -> Floats:
    """Return about what `energies` is of the tables whose summed cells these are: the median over rows of the squares.

    N. Alon, Y. Matias, M. Szegedy, "The space complexity of approximating the frequency moments", STOC 1996.
    """
    return np.array([np.median(np.square(rows, dtype=np.float64).sum(axis=1)) for rows in cells])


def encode(sketches: Sequence[CountSketch], tables: Sequence[RowSparse]) -> tuple[Floats32, ...]:
    """Return the cells of the sketch of each table, float32 of shape (rows, columns)."""
    return tuple(
        sketch.encode_rows(table.rows, table.values.reshape(len(table.rows), table.width))
        for sketch, table in zip(sketches, tables, strict=True)
    )


def decode(
    sketches: Sequence[CountSketch], cells: Sequence[Floats32], tables: Sequence[RowSparse], rows: Sequence[Ints]
) -> list[RowSparse]:
    """Return the estimates of all elements of some rows of each table."""
    decoded = []
    for sketch, total, table, chosen in zip(sketches, cells, tables, rows, strict=True):
        values = sketch.decode_rows(total, chosen, table.width)
        decoded.append(RowSparse(chosen, values.reshape(len(chosen), *table.shape[1:]), table.shape))
    return decoded
