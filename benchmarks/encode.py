"""Encode and decode time and memory of the count sketch, as multiples of one pass over the gradient.

The unit is the CPU time of ``np.count_nonzero(gradient.view(np.int32))`` in the same run: a vectorised read of the same
memory. Run with ``python benchmarks/encode.py``.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np

from s2sim.codecs.count_sketch import CountSketch
from s2sim.codecs.sketch_codec import columns_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

ELEMENTS = 10_000_000
CELLS_PER_NONZERO = 2.0
REPEATS = 5


def cpu_seconds(function: Callable[[], object]) -> float:
    """Return the median CPU time of this thread over `REPEATS` calls, after one to warm up."""
    function()
    times = []
    for _ in range(REPEATS):
        start = time.thread_time()
        function()
        times.append(time.thread_time() - start)
    return statistics.median(times)


def peak_bytes(function: Callable[[], Any]) -> int:
    """Return the most memory that was allocated at once during a call, its results included."""
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def sparse_gradient(density: float) -> NDArray[np.float32]:
    """Return Gaussian values at random positions, float32 of shape (ELEMENTS,)."""
    generator = np.random.default_rng(0)
    gradient = np.zeros(ELEMENTS, np.float32)
    positions = np.flatnonzero(generator.random(ELEMENTS, np.float32) < density)
    gradient[positions] = generator.standard_normal(len(positions), np.float32)
    return gradient


def measure(gradient: NDArray[np.float32], rows: int) -> str:
    """Return one line of the table."""
    sketch = CountSketch(rows, columns_for(CELLS_PER_NONZERO, int(np.count_nonzero(gradient)), rows))
    cells, bitmap = sketch.encode_dense(gradient)
    read = cpu_seconds(lambda: np.count_nonzero(gradient.view(np.int32)))
    encode = cpu_seconds(lambda: sketch.encode_dense(gradient))
    decode = cpu_seconds(lambda: sketch.decode_dense(cells, bitmap, len(gradient)))
    encode_extra = peak_bytes(lambda: sketch.encode_dense(gradient)) - cells.nbytes - bitmap.nbytes
    decode_extra = peak_bytes(lambda: sketch.decode_dense(cells, bitmap, len(gradient))) - gradient.nbytes
    return (
        f"{rows:4d} {read * 1e3:9.2f} {encode * 1e3:9.2f} ({encode / read:4.1f}) {decode * 1e3:9.2f} "
        f"({decode / read:4.1f})   {encode_extra / 1e6:5.2f} MB / {decode_extra / 1e6:5.2f} MB"
    )


def main() -> None:
    """Print one line for each density and number of rows."""
    print(f"n = {ELEMENTS:,}, {CELLS_PER_NONZERO:g} cells per non-zero, NumPy {np.__version__}")
    print("density rows   read ms  encode ms (x read)  decode ms (x read)  peak memory over results, encode / decode")
    for density in (0.01, 0.05):
        gradient = sparse_gradient(density)
        for rows in (1, 3):
            print(f"{density:7g} {measure(gradient, rows)}")


if __name__ == "__main__":
    main()
