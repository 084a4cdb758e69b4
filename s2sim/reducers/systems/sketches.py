"""Heavy hitters of count sketches: Sketched-SGD and FetchSGD."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from s2sim.arrays import Floats32
from s2sim.codecs.compiled import backend_for
from s2sim.codecs.count_sketch import CountSketch
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.codecs.hashing import MAX_ROWS
from s2sim.codecs.top_k import elements_kept, select_top_k
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, RowSparse, stored
from s2sim.options import option
from s2sim.reducers import gpu_cost
from s2sim.reducers.rank import Program, Rank, Reduced, Traits
from s2sim.reducers.shared import pairs
from s2sim.reducers.shared.gathered import flat_vector
from s2sim.reducers.shared.selection import Selecting
from s2sim.reducers.shared.sketch_tables import insert_cost, seed_of, unsketch_cost

_COLUMNS_PER_KEPT = 10  # 500,000 columns for k = 50,000: the settings of github.com/kiddyboots216/CommEfficient

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
    rank.work(insert_cost(values, sketch))
    return cells


def largest_estimates(sketch: CountSketch, cells: Floats32, n: int, k: int) -> pairs.Pairs:
    """Return the ``k`` of ``n`` elements whose estimates are largest; all if there are fewer."""
    estimates = np.empty(n, np.float32)
    for start in range(0, n, _UNSKETCHED_AT_ONCE):
        part = estimates[start : start + _UNSKETCHED_AT_ONCE]
        part[:] = sketch.decode_keys(cells, np.arange(start, start + len(part), dtype=np.uint32))
    found = select_top_k(estimates, min(k, n))
    return pairs.Pairs(found, estimates[found])


@dataclass(slots=True)
class SketchedSGD(HeavyHitters):
    """An all-reduce of count sketches of everything, then one of the exact values of C k candidates, of which k stay.

    N. Ivkin et al., NeurIPS 2019, by its abstract and the authors' code, which has a server in the place of the
    all-reduces. A rank counts as sent its own values of the k elements that stay: the rest is for error feedback, as in
    the paper. Its momentum, masked at these elements, is no part of it. Hash functions are others in every step, as in
    ``s2``; in the code they stay. That four times as many candidates travel as stay is recalled, and so is therefore
    what it sends; with ``candidates=1`` everything is the code's.
    """

    minimums: ClassVar = {"candidates": 1}
    density: float = option(0.01, "Fraction of the elements, zeros included, that is kept, in (0, 1].")
    rows: int = option(5, "Of the sketch: 5, and ten columns for each element kept, as in the code, unless given.")
    columns: int | None = option(
        None, "Of the sketch: 5, and ten columns for each element kept, as in the code, unless given."
    )
    candidates: int = option(
        4, "C: how many times as many elements as are kept travel in the second round. 4 is recalled; the code's is 1."
    )

    about = Traits(
        name="sketched-sgd",
        summary="an all-reduce of count sketches, then one of the exact values of the largest estimates",
        source="Ivkin et al., Communication-efficient Distributed SGD with Sketching, NeurIPS 2019; "
        "github.com/kiddyboots216/CommEfficient",
        feedback="needed",
        formula="8rc(P-1)/P + 8Ck(P-1)/P for r x c cells",
        certainty="recalled",
        scope="gradient",
    )

    @property
    def traits(self) -> Traits:
        """As many candidates as the code has make it that of the code."""
        return replace(self.about, certainty="code read") if self.candidates == 1 else self.about

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Sum sketches, look for candidates, sum their values, keep the largest."""
        k = elements_kept(gradient.size, self.density)
        sketch = self.sketch_for(gradient.size, k, rank.size, seed_of(rank.seed, rank.step))
        cells = rank.all_reduce(encode_gradient(rank, sketch, gradient), label="sketch")
        yield cells
        wanted = self.candidates * k
        for work in unsketch_cost(gradient.size, wanted, sketch):
            rank.work(work)
        candidates = rank.replicated(lambda: largest_estimates(sketch, cells.value, gradient.size, wanted))

        rank.work(gpu_cost.copy_out_cost(len(candidates), scattered=True))
        values = round_to_dtype(flat_vector(gradient)[candidates.indices], self.held)
        sums = rank.all_reduce(values, label="values of candidates")
        yield sums
        rank.work(gpu_cost.select(len(candidates), k))
        rank.work(gpu_cost.add_pairs(gradient.nbytes, k))
        kept = rank.replicated(lambda: pairs.Pairs(candidates.indices, widen(sums.value)).largest(k))
        mean = rank.replicated(lambda: pairs.pairs_to_mean(kept, rank.size, gradient))
        own = pairs.Pairs(candidates.indices, widen(values))
        return Reduced(mean, sent=lambda: self.sent_alone(rank, gradient, pairs.intersect_pairs(own, kept)))


@dataclass(slots=True)
class FetchSGD(HeavyHitters):
    """A reduce of count sketches to rank 0, which adds them to its own and broadcasts the k largest of these.

    D. Rothchild et al., ICML 2020, by the authors' code. Of the mean sketch S, U <- momentum U + S and E <- E + U (the
    learning rate is the optimiser's); the k largest estimates of E are the update. What was not sent stays in E, so
    that it needs no error feedback around it, and hash functions stay the same in all steps. All ranks count the update
    itself as sent.
    """

    density: float = option(0.01, "Fraction of the elements, zeros included, that the update keeps, in (0, 1].")
    rows: int = option(5, "Of the sketch: 5, and ten columns for each element kept unless given.")
    columns: int | None = option(None, "Of the sketch: 5, and ten columns for each element kept unless given.")
    momentum: float = option(0.0, "0 leaves it to the optimiser; 0.9 is usual in the published runs.")
    clear: Literal["subtract", "zero"] = option(
        "subtract",
        "Take the update's sketch out of E, as the paper says (recalled), or set the cells that it touches to zero, "
        "in U too, as the code does: a comment there says that models diverged otherwise. It forgets what collides "
        "with the update.",
    )

    velocity: Floats32 | None = field(init=False, repr=False, compare=False, default=None)  # The sketch U, on rank 0
    error: Floats32 | None = field(init=False, repr=False, compare=False, default=None)  # The sketch E, on rank 0

    about = Traits(
        name="fetchsgd",
        summary="count sketches to a server, which holds momentum and error as sketches and sends the largest out",
        source="Rothchild et al., FetchSGD: Communication-Efficient Federated Learning with Sketching, ICML 2020; "
        "github.com/kiddyboots216/CommEfficient",
        feedback="own",
        formula="4rc to the server for r x c cells, 8k from it",
        certainty="code read",
        scope="gradient",
    )

    def __post_init__(self) -> None:
        HeavyHitters.__post_init__(self)
        if not 0 <= self.momentum < 1:
            raise OptionError(f"fetchsgd: momentum={self.momentum} is not from 0 to below 1")

    @property
    def momentum_within(self) -> float:
        """``momentum``."""
        return self.momentum

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Sum sketches at the server, take the largest out of its error, send them to all."""
        k = elements_kept(gradient.size, self.density)
        sketch = self.sketch_for(gradient.size, k, rank.size, seed_of(rank.seed, 0))
        total = rank.reduce(encode_gradient(rank, sketch, gradient), root=0, label="sketch")
        yield total
        update = None
        if rank.index == 0:
            update = self._serve(rank, sketch, total.value / np.float32(rank.size), gradient.size, k)
        told = rank.broadcast(update, root=0, label="update")
        yield told
        rank.work(gpu_cost.add_pairs(gradient.nbytes, k))
        mean = rank.replicated(lambda: pairs.pairs_to_gradient(pairs.read_padded_pairs(told.value), gradient))
        return Reduced(mean, sent=lambda: mean)

    def _serve(self, rank: Rank, sketch: CountSketch, mean: Floats32, n: int, k: int) -> pairs.PairsMessage:
        """Return the update, and take it out of what stays."""
        velocity = mean if self.velocity is None else np.float32(self.momentum) * self.velocity + mean
        error = velocity if self.error is None else self.error + velocity
        rank.work(gpu_cost.add(2 * mean.size))
        for work in unsketch_cost(n, k, sketch):
            rank.work(work)
        update = largest_estimates(sketch, error, n, k)
        taken = sketch.encode_keys(update.indices.astype(np.uint32), update.values)
        if self.clear == "subtract":
            error = error - taken
        else:
            error, velocity = (np.where(taken == 0, kept, np.float32(0)) for kept in (error, velocity))
        rank.work(gpu_cost.add(mean.size))
        self.velocity, self.error = velocity, error
        return update.message()
