"""Encode and decode time and memory of the count sketch, as multiples of one pass over the gradient.

The unit is the CPU time of ``np.count_nonzero(gradient.view(np.int32))`` in the same run: a vectorised read of the
same memory, on one core.
Where PyTorch is installed, the dense count sketch with tables of hashes, which the S2 authors' code comes from, is
timed on one thread beside it, up to 10 million elements: its tables take 36 bytes an element.

Run with ``python benchmarks/codec.py [ELEMENTS]``.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from measure import cpu_seconds, peak_bytes

from s2sim.codecs.bitmap import count_nonzero, pack_nonzero
from s2sim.codecs.count_sketch import Backend, CountSketch
from s2sim.codecs.sketch_codec import columns_for
from s2sim.codecs.windows import Windows, segment_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = 3
CELLS_PER_NONZERO = 2.0
DENSITIES = (0.01, 0.05, 0.2)
TORCH_ELEMENTS = 10_000_000


def sparse_gradient(elements: int, density: float) -> NDArray[np.float32]:
    """Return Gaussian values at random positions, float32 of shape (elements,)."""
    generator = np.random.default_rng(0)
    gradient = np.zeros(elements, np.float32)
    positions = np.flatnonzero(generator.random(elements, np.float32) < density)
    gradient[positions] = generator.standard_normal(len(positions), np.float32)
    return gradient


def measure(gradient: NDArray[np.float32], sketch: CountSketch) -> tuple[float, float, float]:
    """Return milliseconds of encode and decode into reused arrays, and of decode into a new one."""
    cells, bitmap = sketch.encode_dense(gradient)
    output = np.empty_like(gradient)

    def encode() -> None:
        cells.fill(0)
        sketch.encode_dense(gradient, out=cells, bitmap=bitmap)

    n = len(gradient)
    return (
        1e3 * cpu_seconds(encode),
        1e3 * cpu_seconds(lambda: sketch.decode_dense(cells, bitmap, n, out=output)),
        1e3 * cpu_seconds(lambda: sketch.decode_dense(cells, bitmap, n)),
    )


def extra_megabytes(gradient: NDArray[np.float32], sketch: CountSketch) -> tuple[float, float]:
    """Return the most memory beside their results that encode and decode took."""
    cells, bitmap = sketch.encode_dense(gradient)
    encode = peak_bytes(lambda: sketch.encode_dense(gradient)) - cells.nbytes - bitmap.nbytes
    decode = peak_bytes(lambda: sketch.decode_dense(cells, bitmap, len(gradient))) - gradient.nbytes
    return encode / 1e6, decode / 1e6


def torch_ms(gradient: NDArray[np.float32], columns: int) -> dict[str, float]:
    """Return milliseconds of the dense sketch with int64 and float32 tables of all elements' cells and signs."""
    import torch

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    vector = torch.from_numpy(gradient)
    cells = torch.randint(columns, (ROWS, len(vector)), generator=generator)
    signs = torch.randint(2, cells.shape, generator=generator).mul_(2).sub_(1).float()
    sketch = torch.zeros(ROWS, columns)

    def encode(method: str) -> None:
        sketch.zero_()
        for row in range(ROWS):
            getattr(sketch[row], method)(0, cells[row], signs[row] * vector)

    def encode_bincount() -> None:
        sketch.zero_()
        for row in range(ROWS):
            sketch[row] += torch.bincount(cells[row], weights=signs[row] * vector, minlength=columns)

    return {
        "scatter_add_": 1e3 * cpu_seconds(lambda: encode("scatter_add_")),
        "index_add_": 1e3 * cpu_seconds(lambda: encode("index_add_")),
        "bincount": 1e3 * cpu_seconds(encode_bincount),
        "decode": 1e3 * cpu_seconds(lambda: (torch.gather(sketch, 1, cells) * signs).median(dim=0)),
    }


def main() -> None:
    """Print one line for each density, layout and backend, and one for each density of PyTorch."""
    elements = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000
    backends: list[Backend] = ["numpy", "numba"] if importlib.util.find_spec("numba") else ["numpy"]
    has_torch = importlib.util.find_spec("torch") is not None and elements <= TORCH_ELEMENTS
    print(f"n = {elements:,}, {ROWS} rows, {CELLS_PER_NONZERO:g} cells per non-zero, NumPy {np.__version__}")
    for name in ("numba", "torch"):
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed and not measured")
    print("density backend windows  read ms  encode ms (x read)  decode ms (x read)  into new  extra MB, enc / dec")
    ours: dict[float, tuple[float, float]] = {}
    for density in DENSITIES:
        gradient = sparse_gradient(elements, density)
        columns = columns_for(CELLS_PER_NONZERO, count_nonzero(gradient), ROWS)
        windows = Windows.proportional(segment_counts(pack_nonzero(gradient)), columns)
        read = 1e3 * cpu_seconds(partial(np.count_nonzero, gradient.view(np.int32)))
        for backend in backends:
            for layout in (None, windows):
                sketch = CountSketch(ROWS, columns, windows=layout, backend=backend)
                encode, decode, decode_new = measure(gradient, sketch)
                extra = extra_megabytes(gradient, sketch)
                print(
                    f"{density:7g} {backend:7s} {len(layout.first_keys) if layout else 'none':>7} {read:8.2f} "
                    f"{encode:10.2f} ({encode / read:5.1f}) {decode:11.2f} ({decode / read:5.1f}) {decode_new:9.2f}"
                    f"   {extra[0]:8.2f} / {extra[1]:4.2f}"
                )
                if backend == "numpy" and layout:
                    ours[density] = encode, decode
    if has_torch:
        print("PyTorch on one thread, and how many times faster NumPy with windows is")
        for density, (encode, decode) in ours.items():
            gradient = sparse_gradient(elements, density)
            theirs = torch_ms(gradient, columns_for(CELLS_PER_NONZERO, count_nonzero(gradient), ROWS))
            print(
                f"{density:7g} "
                + ", ".join(
                    f"{name} {taken:.1f} ms ({taken / (decode if name == 'decode' else encode):.1f}x)"
                    for name, taken in theirs.items()
                )
            )


if __name__ == "__main__":
    main()
