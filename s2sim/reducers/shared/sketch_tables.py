"""A count sketch of each table of a gradient: its keys are the numbers of the table's elements."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from s2sim.arrays import Floats, Floats32, Ints
from s2sim.codecs.cardinality import HyperLogLog
from s2sim.codecs.compiled import backend_for
from s2sim.codecs.count_sketch import CountSketch
from s2sim.codecs.hashing import MAX_ROWS, as_keys
from s2sim.codecs.top_k import select_top_k
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, RowSparse, as_row_sparse, stored
from s2sim.reducers.rank import Pending, Rank
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.shared import sketch_cost as cost
from s2sim.reducers.shared.pairs import Pairs
from s2sim.reducers.shared.row_sparse import post_support, union_rows
from s2sim.reducers.shared.selection import Selecting
from s2sim.reducers.shared.sketch_settings import SketchSettings, shared_columns
from s2sim.seeds import named_generator


def seed_of(seed: int, step: int) -> int:
    """Return the seed of a step's hash functions, different in each step.

    Keys that collide in one step part in the next; otherwise error feedback would add up colliding values for ever.
    """
    return int(named_generator(seed, "count sketch", step).integers(2**63))


def count_values(rows: Iterable[float], tables: Sequence[RowSparse]) -> Floats:
    """Return the number of elements in that many ``rows`` of each table, float64 of shape (tables,)."""
    return np.array([count * table.width for count, table in zip(rows, tables, strict=True)], np.float64)


def union_sums(gradients: Sequence[Gradient], compressed: Sequence[int]) -> list[Floats32]:
    """Return the sums over ranks of all elements of the union's rows, float32 of shape (values,), of each table."""
    parts = []
    for index in compressed:
        layers = [gradient.layers[index] for gradient in gradients]
        tables = [layer if isinstance(layer, RowSparse) else as_row_sparse(layer.reshape(-1)) for layer in layers]
        rows, positions = np.unique(np.concatenate([table.rows for table in tables]), return_inverse=True)
        sums = np.zeros((len(rows), *tables[0].shape[1:]))
        np.add.at(sums, positions, np.concatenate([table.values for table in tables]))
        with refuse_overflow():
            parts.append(sums.astype(np.float32).reshape(-1))
    return parts


def encode_sketches(sketches: Sequence[CountSketch], tables: Sequence[RowSparse]) -> tuple[Floats32, ...]:
    """Return the cells of the sketch of each table, float32 of shape (rows, columns)."""
    return tuple(
        sketch.encode_rows(table.rows, table.values.reshape(len(table.rows), table.width))
        for sketch, table in zip(sketches, tables, strict=True)
    )


def decode_sketches(
    sketches: Sequence[CountSketch], cells: Sequence[Floats32], tables: Sequence[RowSparse], rows: Sequence[Ints]
) -> list[RowSparse]:
    """Return the estimates of all elements of some rows of each table."""
    decoded = []
    for sketch, total, table, chosen in zip(sketches, cells, tables, rows, strict=True):
        values = sketch.decode_rows(total, chosen, table.width)
        decoded.append(RowSparse(chosen, values.reshape(len(chosen), *table.shape[1:]), table.shape))
    return decoded


def post_union_size(rank: Rank, tables: Sequence[RowSparse]) -> Pending:
    """Post the estimate of the number of each table's rows in the union: HyperLogLog registers, merged by max."""
    counter = HyperLogLog(seed=rank.seed)
    rank.work(cost.estimate_cost(tables, counter))
    registers = tuple(counter.registers(as_keys(table.rows)) for table in tables)
    return rank.all_reduce(registers, "max", label="union estimate")


def read_union_size(rank: Rank, registers: Pending, tables: Sequence[RowSparse]) -> list[float]:
    """Return the estimated number of each table's rows in the union, from the registers of `post_union_size`."""
    counter = HyperLogLog(seed=rank.seed)
    estimates = rank.replicated(lambda: [counter.estimate(merged) for merged in registers.value])
    return [min(estimate, table.shape[0]) for estimate, table in zip(estimates, tables, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class UnionStatistics:
    """Statistics of the union of each table, known to all ranks; float64 of shape (tables,)."""

    values: Floats  # Elements of its rows
    energies: Floats | None  # Estimated sums of their squares, up to a common factor; None if columns do not need them


def exchange_estimate(
    rank: Rank, tables: Sequence[RowSparse], settings: SketchSettings
) -> Generator[Pending, None, UnionStatistics]:
    """Exchange an estimate of the union and the energies, as a first step does."""
    registers = post_union_size(rank, tables)
    energies = yield from _exchange_energies(rank, tables, settings, registers)
    return UnionStatistics(count_values(read_union_size(rank, registers, tables), tables), energies)


def exchange_known(
    rank: Rank, tables: Sequence[RowSparse], settings: SketchSettings
) -> Generator[Pending, None, UnionStatistics]:
    """Exchange the union and the energies alone, from which a later step starts."""
    support = post_support(rank, tables, settings.bitmap)
    energies = yield from _exchange_energies(rank, tables, settings, support)
    union = rank.replicated(lambda: union_rows(support.value, tables, settings.bitmap))
    return UnionStatistics(count_values(map(len, union), tables), energies)


def _exchange_energies(
    rank: Rank, tables: Sequence[RowSparse], settings: SketchSettings, posted: Pending
) -> Generator[Pending, None, Floats | None]:
    """Wait for ``posted`` and for the sums over ranks of the squares of each table's values, if columns need them.

    If ranks hold the same rows, the squares of the sum are more, but by much the same factor in all tables.
    """
    if not settings.shares(len(tables)):
        yield posted
        return None
    rank.work(cost.energies_cost(tables))
    squares = np.array([np.square(table.values, dtype=np.float64).sum() for table in tables])
    total = rank.all_reduce(squares, label="energies of tables")
    yield posted & total
    energies: Floats = total.value
    return energies


def next_statistics(
    rank: Rank,
    tables: Sequence[RowSparse],
    settings: SketchSettings,
    union: Sequence[Ints],
    sketches: Sequence[CountSketch],
    cells: Sequence[Floats32],
) -> UnionStatistics:
    """Return the union's statistics for the next step, with energies estimated from the summed cells.

    The estimate is the median over rows of the sums of squares (N. Alon, Y. Matias, M. Szegedy, "The space complexity
    of approximating the frequency moments", STOC 1996).
    """
    energies = None
    if settings.shares(len(tables)):
        rank.work(cost.cell_energies_cost(sketches))
        energies = rank.replicated(
            lambda: np.array([np.median(np.square(rows, dtype=np.float64).sum(axis=1)) for rows in cells])
        )
    return UnionStatistics(count_values(map(len, union), tables), energies)


def choose_sketches(
    rank: Rank, tables: Sequence[RowSparse], settings: SketchSettings, known: UnionStatistics | None, headroom: float
) -> list[CountSketch]:
    """Return the sketch of each table; ``known`` may be None for fixed columns.

    ``headroom`` is the factor by which the union may have grown since.
    """
    published = settings.published
    if published is not None:
        return [
            CountSketch(settings.rows, columns, published.seed, settings.hash) for columns in published.columns(tables)
        ]

    def made() -> list[CountSketch]:
        if settings.columns is not None or known is None:
            columns = shared_columns(settings.columns or 1, [table.size for table in tables])
        else:
            total = settings.columns_for(sum(known.values.tolist()) * headroom)
            least = settings.floor or 0.0
            columns = shared_columns(total, known.values, known.energies, rows=settings.rows, floor=least)
        # Compiled loops have to pay for their start.
        hashes = rank.size * settings.rows * sum(table.values.size for table in tables)
        backend = backend_for(hashes) if settings.hash == "mix" else "numpy"
        seed = seed_of(rank.seed, rank.step)
        return [CountSketch(settings.rows, count, seed, settings.hash, backend=backend) for count in columns]

    return rank.replicated(made)


_COLUMNS_PER_KEPT = 10
"""500,000 columns for k = 50,000: the settings of github.com/kiddyboots216/CommEfficient."""

_UNSKETCHED_AT_ONCE = 1 << 20


class HeavyHitters(Selecting):
    """A reducer that finds the largest elements of a sum in its sketch.

    Attributes
    ----------
    rows : int
        Rows of the sketch, of which estimates are the median.
    columns : int, optional
        Columns of the sketch; ten for each element kept unless given.
    """

    __slots__ = ()
    rows: int
    columns: int | None

    def __post_init__(self) -> None:
        Selecting.__post_init__(self)
        name = self.about.name
        if not 1 <= self.rows <= MAX_ROWS:
            raise OptionError(f"{name}: rows={self.rows} is not between 1 and {MAX_ROWS}")
        if self.columns is not None and not 1 <= self.columns < 1 << 32:
            raise OptionError(f"{name}: columns={self.columns} is not between 1 and 2^32 - 1")

    def sketch_for(self, n: int, k: int, ranks: int, seed: int) -> CountSketch:
        """Return the sketch of ``n`` elements of which ``k`` are kept."""
        columns = self.columns or max(1, _COLUMNS_PER_KEPT * k)
        return CountSketch(self.rows, columns, seed, backend=backend_for((ranks + 1) * n * self.rows))


def encode_gradient(rank: Rank, sketch: CountSketch, gradient: Gradient) -> Floats32:
    """Return the cells of all elements, whose keys number them through all layers; charge the GPU for it."""
    cells, offset, values = sketch.empty(), 0, 0
    for layer in gradient.layers:
        rows = layer.rows if isinstance(layer, RowSparse) else np.arange(layer.size)
        kept = stored(layer)
        if kept.size:
            sketch.encode_rows(rows, kept.reshape(len(rows), -1), offset=offset, out=cells)
        offset, values = offset + layer.size, values + kept.size
    rank.work(cost.insert_cost(values, sketch))
    return cells


def largest_estimates(sketch: CountSketch, cells: Floats32, n: int, k: int) -> Pairs:
    """Return the ``k`` of ``n`` elements whose estimates are largest; all if there are fewer."""
    estimates = np.empty(n, np.float32)
    for start in range(0, n, _UNSKETCHED_AT_ONCE):
        part = estimates[start : start + _UNSKETCHED_AT_ONCE]
        part[:] = sketch.decode_keys(cells, np.arange(start, start + len(part), dtype=np.uint32))
    found = select_top_k(estimates, min(k, n))
    return Pairs(found, estimates[found])
