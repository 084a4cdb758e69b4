"""A count sketch of each table of a gradient: its keys are the numbers of the table's elements."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor

import numpy as np

from s2sim.arrays import Floats, Floats32, Ints
from s2sim.codecs.count_sketch import CountSketch, backend_for
from s2sim.codecs.hashing import HyperLogLog, as_keys
from s2sim.gradients.gradient import Gradient, RowSparse, as_row_sparse
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.gpu_cost import GATHER_BYTES, ROW_ID_BYTES, SCATTER_BYTES, VALUE_BYTES
from s2sim.reducers.rank import Pending, Rank, Waits
from s2sim.reducers.reduction import refuse_overflow
from s2sim.reducers.script import Work
from s2sim.reducers.shared.row_sparse import _count_rows, mark_bitmap_cost, read_bitmaps_cost
from s2sim.reducers.shared.sketch_settings import PUBLISHED_SEED, SketchSettings, shared_columns
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
    # Row numbers are read; registers stay in shared memory until the end.
    moved = sum(len(table.rows) for table in tables) * ROW_ID_BYTES + len(tables) * counter.size
    rank.work(Work("encode", moved, launches=len(tables)))
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


def exchange_energies(
    rank: Rank, tables: Sequence[RowSparse], settings: SketchSettings, posted: Pending
) -> Waits[Floats | None]:
    """Wait for ``posted`` and for the sums over ranks of the squares of each table's values, if columns need them.

    If ranks hold the same rows, the squares of the sum are more, but by much the same factor in all tables.
    """
    if not settings.shares(len(tables)):
        yield posted
        return None
    rank.work(Work("encode", sum(table.values.nbytes for table in tables), launches=len(tables)))
    squares = np.array([np.square(table.values, dtype=np.float64).sum() for table in tables])
    total = rank.all_reduce(squares, label="energies of tables")
    yield posted & total
    energies: Floats = total.value
    return energies


def next_statistics(
    rank: Rank, tables: Sequence[RowSparse], settings: SketchSettings, union: Sequence[Ints], cells: Sequence[Floats32]
) -> UnionStatistics:
    """Return the union's statistics for the next step, with energies estimated from the summed cells.

    The estimate is the median over rows of the sums of squares (N. Alon, Y. Matias, M. Szegedy, "The space complexity
    of approximating the frequency moments", STOC 1996).
    """
    energies = None
    if settings.shares(len(tables)):
        rank.work(Work("decode", sum(rows.nbytes for rows in cells), launches=len(cells)))
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
    if settings.published is not None:
        sigma, rho = settings.published
        counts = [max(1, floor(table.size * sigma * rho)) for table in tables]
        return [CountSketch(settings.rows, count, PUBLISHED_SEED, settings.hash) for count in counts]

    def made() -> list[CountSketch]:
        if settings.cells is None or known is None:
            columns = shared_columns(settings.columns or 1, [table.size for table in tables])
        else:
            total = max(1, ceil(settings.cells * (sum(known.values.tolist()) * headroom) / settings.rows))
            least = settings.floor or 0.0
            columns = shared_columns(total, known.values, known.energies, rows=settings.rows, floor=least)
        # Compiled loops have to pay for their start.
        hashes = rank.size * settings.rows * sum(table.values.size for table in tables)
        backend = backend_for(hashes) if settings.hash == "mix" else "numpy"
        seed = seed_of(rank.seed, rank.step)
        return [CountSketch(settings.rows, count, seed, settings.hash, backend=backend) for count in columns]

    return rank.replicated(made)


def encode_cost(tables: Sequence[RowSparse], sketches: Sequence[CountSketch], settings: SketchSettings) -> Work:
    """Return the cost of the sketches and the bitmaps, before both are sent.

    The authors' code converts dense tables to coordinates first, in a measured time that includes all kernels.
    """
    marked = mark_bitmap_cost(tables, settings.bitmap)
    pairs = zip(tables, sketches, strict=True)
    inserted = sum(insert_cost(table.values.size, sketch).bytes_moved for table, sketch in pairs)
    inserted += _count_rows(tables) * ROW_ID_BYTES
    # In addition to the bitmaps' kernels, one clears all cells and one per table inserts its values.
    converted = sum(table.nbytes for table in tables) if settings.published is not None else 0
    launches = marked.launches + 1 + len(tables)
    return Work("encode", marked.bytes_moved + inserted, launches, dense_encode_bytes=converted)


def decode_cost(
    tables: Sequence[RowSparse], union: Sequence[Ints], sketches: Sequence[CountSketch], settings: SketchSettings
) -> Work:
    """Return the cost of finding the rows of the union and reading them from the summed sketches."""
    found = read_bitmaps_cost(tables, settings.bitmap, union, "decode")
    read = sum(
        _estimate_bytes(len(rows) * table.width, sketch)
        for rows, table, sketch in zip(union, tables, sketches, strict=True)
    )
    converted = sum(table.nbytes for table in tables) if settings.published is not None else 0
    return Work("decode", found.bytes_moved + read, found.launches + len(tables), dense_decode_bytes=converted)


def decode_own_cost(tables: Sequence[RowSparse], sketches: Sequence[CountSketch]) -> Work:
    """Return the cost of reading a rank's own rows from its own sketches, for error feedback."""
    read = sum(_estimate_bytes(table.values.size, sketch) for table, sketch in zip(tables, sketches, strict=True))
    return Work("encode", read, launches=len(tables))


def _estimate_bytes(keys: int, sketch: CountSketch) -> int:
    # One cell of each row of the sketch is read for each key, and the median is written.
    return keys * (sketch.rows * GATHER_BYTES + VALUE_BYTES)


def insert_cost(values: int, sketch: CountSketch) -> Work:
    """Return the cost of clearing a sketch, then adding each of ``values`` values to one cell of each of its rows."""
    cells = sketch.rows * sketch.columns
    return Work("encode", cells * VALUE_BYTES + values * (VALUE_BYTES + sketch.rows * SCATTER_BYTES), launches=2)


def unsketch_cost(n: int, k: int, sketch: CountSketch) -> tuple[Work, Work]:
    """Return the cost of estimating ``n`` elements, and of finding the ``k`` largest."""
    return Work("decode", _estimate_bytes(n, sketch)), cost.select(n, k)
