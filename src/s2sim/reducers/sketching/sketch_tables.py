"""One count sketch of all tables of a gradient: keys number the elements of all of them in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.compiled import backend_for
from s2sim.codecs.count_sketch import CountSketch
from s2sim.gradients.gradient import RowSparse, as_row_sparse
from s2sim.reducers.group.combine import refuse_overflow
from s2sim.seeds import named_generator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s2sim.arrays import Floats32, Ints
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.sketching.settings import Settings


def seed_of(seed: int, step: int) -> int:
    """Return the seed of a step's hash functions.

    Others in each step, so that keys which collide in one part in the next; with the same ones, error feedback would
    add up what collides and never deliver it.
    """
    return int(named_generator(seed, "count sketch", step).integers(2**63))


def make_sketch(settings: Settings, columns: int, seed: int, hashes: int) -> CountSketch:
    """Return a sketch by compiled loops where they pay for so many ``hashes``."""
    backend = backend_for(hashes) if settings.hash == "mix" else "numpy"
    return CountSketch(settings.rows, columns, seed, settings.hash, backend=backend)


def values_in(union: Sequence[Ints], tables: Sequence[RowSparse]) -> int:
    """Return the elements of the union's rows in all tables."""
    return sum(len(rows) * table.width for rows, table in zip(union, tables, strict=True))


def union_sums(gradients: Sequence[Gradient], compressed: Sequence[int]) -> Floats32:
    """Return the sums over ranks of all elements of the union's rows, float32 of shape (values,)."""
    parts = [np.zeros(0, np.float32)]
    for index in compressed:
        layers = [gradient.layers[index] for gradient in gradients]
        tables = [layer if isinstance(layer, RowSparse) else as_row_sparse(layer.reshape(-1)) for layer in layers]
        rows, place = np.unique(np.concatenate([table.rows for table in tables]), return_inverse=True)
        sums = np.zeros((len(rows), tables[0].width))
        np.add.at(sums, place, np.concatenate([table.values.reshape(len(table.rows), table.width) for table in tables]))
        with refuse_overflow():
            parts.append(sums.astype(np.float32).reshape(-1))
    return np.concatenate(parts)


def encode(sketch: CountSketch, tables: Sequence[RowSparse]) -> Floats32:
    """Return the cells of one sketch of all tables, float32 of shape (rows, columns)."""
    cells = sketch.empty()
    for table, offset in _with_offsets(tables):
        values = table.values.reshape(len(table.rows), table.width)
        sketch.encode_rows(table.rows, values, offset=offset, out=cells)
    return cells


def decode(sketch: CountSketch, cells: Floats32, tables: Sequence[RowSparse], rows: Sequence[Ints]) -> list[RowSparse]:
    """Return the estimates of all elements of some rows of each table."""
    decoded = []
    for (table, offset), chosen in zip(_with_offsets(tables), rows, strict=True):
        values = sketch.decode_rows(cells, chosen, table.width, offset=offset)
        decoded.append(RowSparse(chosen, values.reshape(len(chosen), *table.shape[1:]), table.shape))
    return decoded


def _with_offsets(tables: Sequence[RowSparse]) -> Iterator[tuple[RowSparse, int]]:
    """Yield each table with the key of its first element: keys number the elements of all tables in order."""
    offset = 0
    for table in tables:
        yield table, offset
        offset += table.size
