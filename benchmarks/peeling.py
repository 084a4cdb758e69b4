"""Time, memory, success and accuracy of the exact sketch, whose cells are peeled.

Times are CPU time of one thread, a key; the unit in brackets is one vectorised read of the dense array that the keys
come from (``np.count_nonzero(array.view(np.int32))``) in the same run. "decode" is given the keys: it hashes, peels and
converts to float32. "find" is what finding the keys in the bitmap of that array takes on top. "extra MB" is the most
that decoding allocates at once beyond its output. Run with ``python benchmarks/peeling.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from measure import REPEATS, SMALL, cpu_seconds, peak_bytes

from s2sim.codecs.bitmap import pack_positions, unpack_positions
from s2sim.codecs.exact_sketch import CellType, ExactSketch
from s2sim.codecs.peeling import PeelTable, peel_order
from s2sim.codecs.quantize import exponents_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

DENSITY = 0.05

LEAST_KEYS = 300_000
"""Keys of one measurement: fewer are decoded several times in it."""


def spread_keys(count: int) -> NDArray[np.uint32]:
    """Return ``count`` keys at random distances, increasing, that fill `DENSITY` of their range."""
    gaps = np.random.default_rng(0).integers(1, round(2 / DENSITY), count)
    return np.cumsum(gaps).astype(np.uint32)


def speed(count: int, width: int, dtype: CellType) -> str:
    """Return one line of the table of times."""
    keys = spread_keys(count)
    values = np.random.default_rng(1).standard_normal((count, width), np.float32)
    dense = np.zeros(int(count * width / DENSITY), np.float32)
    read = cpu_seconds(lambda: np.count_nonzero(dense.view(np.int32)))
    sketch = ExactSketch.for_keys(count, width, dtype)
    exponents = exponents_for(sketch.maxima(keys, values), dtype) if sketch.groups else None
    cells = sketch.encode(keys, values, exponents)
    encode = repeated(lambda: sketch.encode(keys, values, exponents), count)
    decode = repeated(lambda: sketch.decode(cells, keys, exponents), count)
    elements = int(keys[-1]) + 1
    bitmap = pack_positions(keys.astype(np.int64), elements)
    find = repeated(lambda: unpack_positions(bitmap, elements).astype(np.uint32), count)
    decoded = sketch.decode(cells, keys, exponents)
    extra = peak_bytes(lambda: sketch.decode(cells, keys, exponents)) - decoded.values.nbytes
    return (
        f"{count:10,d} {width:5d} {dtype:8s}{encode / count * 1e9:8.1f} ({encode / read:6.1f})"
        f"{decode / count * 1e9:9.1f} ({decode / read:6.1f}){find / count * 1e9:9.1f}{decode * 1e3:10.2f}"
        f"{decoded.rounds:7d}{len(decoded.left):6d}{extra / 1e6:9.2f}"
    )


def repeated(function: Callable[[], object], count: int) -> float:
    """Return the CPU time of one call that handles ``count`` keys."""
    calls = -(-LEAST_KEYS // count)
    return cpu_seconds(lambda: [function() for _ in range(calls)]) / calls


def success(count: int, seeds: int) -> str:
    """Return one line of the table of successes."""
    keys = spread_keys(count)
    tables = [PeelTable.for_keys(count, seed=seed) for seed in range(seeds)]
    left = [
        sum(columns.shape[1] - len(peel_order(columns, table.block_cells).keys) for _, columns in table.by_block(keys))
        for table in tables
    ]
    cells = ExactSketch.for_keys(count).table.cells
    read = sum(number == 0 for number in left)
    return f"{count:10,d} {cells / count:10.3f} {seeds:6d}{read / seeds:10.2%}{max(left):10d}"


def error(ranks: int, overlap: float, tail: float | None, dtype: CellType) -> float:
    """Return the relative L2 error of a sum over ranks of 20,000 values each, Gaussian or of a power-law tail."""
    generator = np.random.default_rng(0)
    held, common = 20_000, int(20_000 * overlap)
    pool = generator.permutation(held * (ranks + 1)).astype(np.uint32)
    union = np.sort(np.concatenate([pool[:common], *(pool[held * r + common : held * (r + 1)] for r in range(ranks))]))
    places = np.empty(len(pool), np.int64)
    places[union] = np.arange(len(union))
    parts = []
    for rank in range(ranks):
        keys = np.concatenate([pool[:common], pool[held * rank + common : held * (rank + 1)]])
        signs = generator.choice([-1.0, 1.0], held)
        values = generator.standard_normal(held) if tail is None else (generator.pareto(tail, held) + 1) * signs
        parts.append((keys, values.astype(np.float32)[:, None]))
    sketch = ExactSketch.for_keys(len(union), 1, dtype)
    exponents = exponents_for(sum(sketch.maxima(*part) for part in parts), dtype) if sketch.groups else None
    cells, exact = np.zeros(sketch.shape, dtype), np.zeros((len(union), 1))
    for keys, values in parts:
        cells += sketch.encode(keys, values, exponents)
        exact[places[keys]] += values
    decoded = sketch.decode(cells, union, exponents)
    if len(decoded.left):
        raise RuntimeError(f"{len(decoded.left)} keys are left")
    return float(np.linalg.norm(decoded.values - exact) / np.linalg.norm(exact))


def main() -> None:
    """Print the tables of times, successes and errors."""
    print(f"keys at density {DENSITY:g}, NumPy {np.__version__}")
    print("      keys width cells    encode ns (read)  decode ns (read)  find ns decode ms rounds  left extra MB")
    for count, width, dtype in (
        (3_000, 1, "int32"),
        (3_000, 1, "int64"),
        (3_000, 1, "float32"),
        (10_000, 1, "int32"),
        (30_000, 1, "int32"),
        (100_000, 1, "int32"),
        (1_000_000, 1, "int32"),
        (1_000_000, 1, "int64"),
        (1_000_000, 1, "float32"),
        (10_000_000, 1, "int32"),
        (7_812, 64, "int32"),
        (78_125, 64, "int32"),
    ):
        if not (SMALL and count > 10_000):
            print(speed(count, width, dtype), flush=True)
    print("\n      keys cells/key  seeds   success  most left")
    for count, seeds in ((100, 1000), (1000, 1000), (3000, 1000), (10_000, 1000), (100_000, 200), (1_000_000, 20)):
        if not (SMALL and count > 1000):
            print(success(count, seeds * REPEATS // 5), flush=True)
    print("\nvalues       ranks overlap    int32    int64  float32   (relative L2 error of the sum)")
    for tail in (None, 1.5, 1.0):
        for ranks, overlap in ((1, 1.0), (8, 0.5), *(() if SMALL else ((64, 0.0), (64, 0.5), (64, 1.0)))):
            errors = "".join(f"{error(ranks, overlap, tail, dtype):9.1e}" for dtype in ("int32", "int64", "float32"))
            name = "Gaussian" if tail is None else f"power {tail:g}"
            print(f"{name:12s}{ranks:6d}{overlap:8g}{errors}", flush=True)


if __name__ == "__main__":
    main()
