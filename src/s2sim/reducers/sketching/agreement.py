"""What sketches all ranks take in a step, which they agree on before they encode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2sim.codecs.count_sketch import CountSketch
from s2sim.reducers.row_sparse.support import post_support, union_rows
from s2sim.reducers.sketching import cost
from s2sim.reducers.sketching import sketch_tables as sketched
from s2sim.reducers.sketching.shares import shared_columns
from s2sim.reducers.sketching.union_size import post_estimate, read_estimate

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from s2sim.arrays import Floats, Floats32, Ints
    from s2sim.gradients.gradient import RowSparse
    from s2sim.reducers.rank import Pending, Rank
    from s2sim.reducers.sketching.settings import Settings


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What all ranks know alike of the union of each table.

    ``values`` counts those of its rows, float64 of shape (tables,), and ``energies``, likewise, is about the sum of
    their squares, times a factor that is the same for all tables; None if columns are not shared by it.
    """

    values: Floats
    energies: Floats | None


def estimate(rank: Rank, tables: Sequence[RowSparse], settings: Settings) -> Generator[Pending, None, Known]:
    """Exchange, in a first step, an estimate of the union and the energies."""
    registers = post_estimate(rank, tables)
    own = _post_energies(rank, tables, settings)
    yield registers if own is None else registers & own
    rows = read_estimate(rank, registers, tables)
    return Known(sketched.values_in(rows, tables), None if own is None else own.value)


def learn(rank: Rank, tables: Sequence[RowSparse], settings: Settings) -> Generator[Pending, None, Known]:
    """Exchange what a later step starts from, and nothing else: the union, and the energies."""
    support = post_support(rank, tables, settings.bitmap)
    own = _post_energies(rank, tables, settings)
    yield support if own is None else support & own
    union = rank.replicated(lambda: union_rows(support.value, tables, settings.bitmap))
    return Known(sketched.values_in(map(len, union), tables), None if own is None else own.value)


def _post_energies(rank: Rank, tables: Sequence[RowSparse], settings: Settings) -> Pending | None:
    """Post the squares of a rank's own values, where tables share columns by them.

    Where ranks hold the same rows those of the sum are more, but by much the same factor in all tables.
    """
    if not settings.shares(len(tables)):
        return None
    rank.work(cost.energies(tables))
    return rank.all_reduce(sketched.energies(tables), label="energies of tables")


def known_from(
    rank: Rank,
    tables: Sequence[RowSparse],
    settings: Settings,
    union: Sequence[Ints],
    sketches: Sequence[CountSketch],
    cells: Sequence[Floats32],
) -> Known:
    """Return what a step leaves to the next: its union, and the energies that its summed cells tell."""
    energies = None
    if settings.shares(len(tables)):
        rank.work(cost.energies_in(sketches))
        energies = rank.replicated(lambda: sketched.energies_in(cells))
    return Known(sketched.values_in(map(len, union), tables), energies)


def sketches_for(
    rank: Rank, tables: Sequence[RowSparse], settings: Settings, known: Known | None, headroom: float
) -> list[CountSketch]:
    """Return the sketch of each table; nothing need be known where columns are fixed.

    ``headroom`` is by how much the union may have grown since.
    """
    published = settings.published
    if published is not None:
        return [
            CountSketch(settings.rows, columns, published.seed, settings.hash) for columns in published.columns(tables)
        ]
    hashes = rank.size * settings.rows * sum(table.values.size for table in tables)

    def made() -> list[CountSketch]:
        columns = _columns(tables, settings, known, headroom)
        return sketched.make_sketches(settings, columns, sketched.seed_of(rank.seed, rank.step), hashes)

    return rank.replicated(made)


def _columns(tables: Sequence[RowSparse], settings: Settings, known: Known | None, headroom: float) -> list[int]:
    if settings.columns is not None or known is None:
        return shared_columns(settings.columns or 1, [table.size for table in tables])
    total = settings.columns_for(sum(known.values.tolist()) * headroom)
    return shared_columns(total, known.values, known.energies, rows=settings.rows, floor=settings.floor or 0.0)
