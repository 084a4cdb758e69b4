"""A count sketch of all elements of a gradient, and the largest of what it estimates: its heavy hitters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.codecs.compiled import backend_for
from s2sim.codecs.count_sketch import CountSketch
from s2sim.codecs.hashing import MAX_ROWS
from s2sim.codecs.top_k import select_top_k
from s2sim.errors import OptionError
from s2sim.gradients.gradient import RowSparse, stored
from s2sim.reducers.elements.pairs import Pairs
from s2sim.reducers.elements.selection import Selecting
from s2sim.reducers.sketching import cost

if TYPE_CHECKING:
    from s2sim.arrays import Floats32
    from s2sim.gradients.gradient import Gradient
    from s2sim.reducers.rank import Rank

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
    rank.work(cost.insert(values, sketch))
    return cells


def largest_estimates(sketch: CountSketch, cells: Floats32, n: int, k: int) -> Pairs:
    """Return the ``k`` of ``n`` elements whose estimates are largest; all if there are fewer."""
    estimates = np.empty(n, np.float32)
    for start in range(0, n, _UNSKETCHED_AT_ONCE):
        part = estimates[start : start + _UNSKETCHED_AT_ONCE]
        part[:] = sketch.decode_keys(cells, np.arange(start, start + len(part), dtype=np.uint32))
    found = select_top_k(estimates, min(k, n))
    return Pairs(found, estimates[found])
