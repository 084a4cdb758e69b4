"""Encode and decode time and memory of the count sketch, as multiples of one pass over the gradient.

The unit is the CPU time of ``np.count_nonzero(gradient.view(np.int32))`` just before: a vectorised read of the same
memory, on one core. All ratios are medians of such pairs.
Where PyTorch is installed, the dense count sketch with tables of hashes, which the S2 authors' code comes from, is
timed on one thread beside it, up to 10 million elements: its tables take 36 bytes an element. Its rows are summed by
the operation that the published code has, ``bincount``, and by two others.

Run with ``python benchmarks/codec.py [ELEMENTS]``; 1e8 elements take 2 GB and a minute.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from measure import SMALL, cpu_seconds_and_ratio, peak_bytes

from s2sim.codecs.bitmap import count_nonzero
from s2sim.codecs.count_sketch import CountSketch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from s2sim.codecs.count_sketch import Backend

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


@dataclass(frozen=True, slots=True)
class Calls:
    """Encode and decode of one gradient, and one read of it."""

    gradient: NDArray[np.float32]
    sketch: CountSketch
    cells: NDArray[np.float32]
    bitmap: NDArray[np.uint8]

    @classmethod
    def of(cls, gradient: NDArray[np.float32], sketch: CountSketch) -> Calls:
        """Return the calls for ``gradient``."""
        return cls(gradient, sketch, *sketch.encode_dense(gradient))

    def encode(self) -> None:
        """Encode into cells and a bitmap."""
        self.sketch.encode_dense(self.gradient)

    def decode(self) -> None:
        """Decode into a new array."""
        self.sketch.decode_dense(self.cells, self.bitmap, len(self.gradient))

    def read(self) -> None:
        """Read the gradient once."""
        np.count_nonzero(self.gradient.view(np.int32))


def sketch_for(gradient: NDArray[np.float32], backend: Backend) -> CountSketch:
    """Return a sketch with `CELLS_PER_NONZERO` cells for each non-zero element."""
    columns = ceil(CELLS_PER_NONZERO * count_nonzero(gradient) / ROWS)
    return CountSketch(ROWS, columns, backend=backend)


def extra_megabytes(gradient: NDArray[np.float32], sketch: CountSketch) -> tuple[float, float]:
    """Return the most memory beside their results that encode and decode took."""
    cells, bitmap = sketch.encode_dense(gradient)
    encode = peak_bytes(lambda: sketch.encode_dense(gradient)) - cells.nbytes - bitmap.nbytes
    decode = peak_bytes(lambda: sketch.decode_dense(cells, bitmap, len(gradient))) - gradient.nbytes
    return encode / 1e6, decode / 1e6


def print_torch(density: float, ours: Calls) -> None:
    """Print milliseconds of the dense sketch with int64 and float32 tables of all elements' cells and signs."""
    import torch

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    vector = torch.from_numpy(ours.gradient)
    columns = ours.sketch.columns
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

    def encode_as_csvec() -> None:
        """As `accumulateVec` of github.com/nikitaivkin/csh, which copies both tables first."""
        sketch.zero_()
        own_cells, own_signs = cells.clone(), signs.clone()
        for row in range(ROWS):
            sketch[row] += torch.bincount(own_cells[row], weights=own_signs[row] * vector, minlength=columns)

    def decode() -> None:
        (torch.gather(sketch, 1, cells) * signs).median(dim=0)

    results = []
    for name, theirs, call in (
        ("scatter_add_", lambda: encode("scatter_add_"), ours.encode),
        ("index_add_", lambda: encode("index_add_"), ours.encode),
        ("bincount", encode_bincount, ours.encode),
        ("as CSVec", encode_as_csvec, ours.encode),
        ("decode", decode, ours.decode),
    ):
        seconds, ratio = cpu_seconds_and_ratio(theirs, call)
        results.append(f"{name} {1e3 * seconds:.1f} ms ({ratio:.1f}x)")
    print(f"{density:7g} " + ", ".join(results))


def main() -> None:
    """Print one line for each density and backend, and one for each density of PyTorch."""
    elements = int(float(sys.argv[1])) if len(sys.argv) > 1 else 100_000 if SMALL else 10_000_000
    backends: list[Backend] = ["numpy", "numba"] if importlib.util.find_spec("numba") else ["numpy"]
    has_torch = importlib.util.find_spec("torch") is not None and elements <= TORCH_ELEMENTS
    print(f"n = {elements:,}, {ROWS} rows, {CELLS_PER_NONZERO:g} cells per non-zero, NumPy {np.__version__}")
    for name in ("numba", "torch"):
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed and not measured")
    print("density backend  read ms  encode ms (x read)  decode ms (x read)  extra MB, enc / dec")
    for density in DENSITIES:
        gradient = sparse_gradient(elements, density)
        for backend in backends:
            calls = Calls.of(gradient, sketch_for(gradient, backend))
            encode, encode_reads = cpu_seconds_and_ratio(calls.encode, calls.read)
            decode, decode_reads = cpu_seconds_and_ratio(calls.decode, calls.read)
            extra = extra_megabytes(gradient, calls.sketch)
            print(
                f"{density:7g} {backend:7s} "
                f"{1e3 * encode / encode_reads:8.2f} {1e3 * encode:10.2f} ({encode_reads:5.1f}) "
                f"{1e3 * decode:11.2f} ({decode_reads:5.1f})"
                f"   {extra[0]:8.2f} / {extra[1]:4.2f}"
            )
    if has_torch:
        print("PyTorch on one thread, and how many times faster NumPy here is")
        for density in DENSITIES:
            gradient = sparse_gradient(elements, density)
            print_torch(density, Calls.of(gradient, sketch_for(gradient, "numpy")))


if __name__ == "__main__":
    main()
