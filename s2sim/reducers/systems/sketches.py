"""Count sketches of all elements: Sketched-SGD and FetchSGD find heavy hitters in them, CCSS reads what top-k left."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from s2sim.arrays import Floats32
from s2sim.codecs import floats, hashing, top_k
from s2sim.codecs.count_sketch import CountSketch, backend_for
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, as_row_sparse, stored
from s2sim.reducers import gpu_cost
from s2sim.reducers.rank import Program, Rank, Reduced, Waits
from s2sim.reducers.shared import gathered, pairs, selection, sketch_tables
from s2sim.reducers.systems.s2 import S2

_COLUMNS_PER_KEPT = 10  # 500,000 columns for k = 50,000: the settings of github.com/kiddyboots216/CommEfficient

_UNSKETCHED_AT_ONCE = 1 << 20


class HeavyHitters(selection.Selecting):
    """A reducer that finds the largest elements of a sum in its sketch."""

    __slots__ = ()
    intervals: ClassVar = {"rows": f"[1, {hashing.MAX_ROWS}]", "columns": f"[1, {(1 << 32) - 1}]"}
    rows: int  # Of the sketch, of which estimates are the median
    columns: int | None  # Of the sketch; ten for each element kept unless given

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
    rank.work(sketch_tables.insert_cost(values, sketch))
    return cells


def largest_estimates(sketch: CountSketch, cells: Floats32, n: int, k: int) -> pairs.Pairs:
    """Return the ``k`` of ``n`` elements whose estimates are largest; all if there are fewer."""
    estimates = np.empty(n, np.float32)
    for start in range(0, n, _UNSKETCHED_AT_ONCE):
        part = estimates[start : start + _UNSKETCHED_AT_ONCE]
        part[:] = sketch.decode_keys(cells, np.arange(start, start + len(part), dtype=np.uint32))
    found = top_k.select_top_k(estimates, min(k, n))
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
    density: float = 0.01
    rows: int = 5
    columns: int | None = None
    candidates: int = 4

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        k = top_k.elements_kept(gradient.size, self.density)
        sketch = self.sketch_for(gradient.size, k, rank.size, sketch_tables.seed_of(rank.seed, rank.step))
        cells = yield from rank.all_reduce(encode_gradient(rank, sketch, gradient), label="sketch")
        wanted = self.candidates * k
        for work in sketch_tables.unsketch_cost(gradient.size, wanted, sketch):
            rank.work(work)
        candidates = rank.replicated(lambda: largest_estimates(sketch, cells, gradient.size, wanted))

        rank.work(gpu_cost.copy_out_cost(len(candidates), scattered=True))
        values = floats.round_to_dtype(gathered.flat_vector(gradient)[candidates.indices], self.held)
        sums = yield from rank.all_reduce(values, label="values of candidates")
        rank.work(gpu_cost.select(len(candidates), k))
        rank.work(gpu_cost.add_pairs(gradient.nbytes, k))
        kept = rank.replicated(lambda: pairs.Pairs(candidates.indices, floats.widen(sums)).largest(k))
        mean = rank.replicated(lambda: pairs.pairs_to_mean(kept, rank.size, gradient))
        own = pairs.Pairs(candidates.indices, floats.widen(values))
        return Reduced(mean, sent=lambda: self.sent_alone(rank, gradient, pairs.intersect_pairs(own, kept)))


@dataclass(slots=True)
class FetchSGD(HeavyHitters):
    """A reduce of count sketches to rank 0, which adds them to its own and broadcasts the k largest of these.

    D. Rothchild et al., ICML 2020, algorithm 1, by the authors' code. Of the mean sketch S, S_u <- momentum S_u + S and
    S_e <- S_e + S_u (the learning rate is the optimiser's); the k largest estimates of S_e are the update Delta. The
    sketches are float32 of shape (rows, columns). What was not sent stays in S_e, so that it needs no error feedback
    around it, and hash functions stay the same in all steps. All ranks count Delta itself as sent.
    """

    intervals: ClassVar = {**HeavyHitters.intervals, "momentum": "[0, 1)"}
    density: float = 0.01
    rows: int = 5
    columns: int | None = None
    momentum: float = 0.0
    clear: Literal["subtract", "zero"] = "subtract"

    # The server's sketches of momentum and of error, on rank 0
    S_u: Floats32 | None = field(init=False, repr=False, compare=False, default=None)
    S_e: Floats32 | None = field(init=False, repr=False, compare=False, default=None)

    @property
    def momentum_within(self) -> float:
        return self.momentum

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        k = top_k.elements_kept(gradient.size, self.density)
        sketch = self.sketch_for(gradient.size, k, rank.size, sketch_tables.seed_of(rank.seed, 0))
        total = yield from rank.reduce(encode_gradient(rank, sketch, gradient), root=0, label="sketch")
        message = None
        if rank.index == 0:
            message = self._serve(rank, sketch, total / np.float32(rank.size), gradient.size, k)
        told = yield from rank.broadcast(message, root=0, label="update")
        rank.work(gpu_cost.add_pairs(gradient.nbytes, k))
        Delta = rank.replicated(lambda: pairs.pairs_to_gradient(pairs.read_padded_pairs(told), gradient))
        return Reduced.of_step(Delta)

    def _serve(self, rank: Rank, sketch: CountSketch, S: Floats32, n: int, k: int) -> pairs.PairsMessage:
        """Return Delta, and take it out of what stays."""
        S_u = S if self.S_u is None else np.float32(self.momentum) * self.S_u + S
        S_e = S_u if self.S_e is None else self.S_e + S_u
        rank.work(gpu_cost.add(2 * S.size))
        for work in sketch_tables.unsketch_cost(n, k, sketch):
            rank.work(work)
        Delta = largest_estimates(sketch, S_e, n, k)
        taken = sketch.encode_keys(Delta.indices.astype(np.uint32), Delta.values)
        if self.clear == "subtract":
            S_e = S_e - taken
        else:
            S_e, S_u = (np.where(taken == 0, kept, np.float32(0)) for kept in (S_e, S_u))
        rank.work(gpu_cost.add(S.size))
        self.S_u, self.S_e = S_u, S_e
        return Delta.message()


@dataclass(slots=True)
class CCSS(selection.Selecting):
    """The k largest elements of each rank in one count sketch, and a bitmap of all elements, both all-reduced.

    K. Ge et al., IEEE JSAC 2023. No text of it could be read, not even the abstract. That it sketches what is left of
    sparsified gradients is inferred from its title and from S2 Reducer by the same authors; top-k, sizes and error
    feedback are our choice.
    """

    density: float = 0.01
    rows: int = 3
    cells: float = 2.0

    inner: S2 = field(init=False, repr=False, compare=False)  # What sends the elements that are left

    def __post_init__(self) -> None:
        selection.Selecting.__post_init__(self)
        try:
            self.inner = S2(rows=self.rows, cells=self.cells)
        except OptionError as error:
            raise OptionError(f"ccss: {str(error).removeprefix('s2: ')}") from None

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        reduced = yield from self.inner.reduce(rank, self._sparsified(rank, gradient))
        mean = rank.replicated(lambda: _vector_to_gradient(reduced.mean.layers[0], gradient))
        return Reduced(mean, sent=lambda: _vector_to_gradient(reduced.sent().layers[0], gradient))

    def learn(self, rank: Rank, gradient: Gradient) -> Waits[None]:
        yield from self.inner.learn(rank, self._sparsified(rank, gradient))

    def _sparsified(self, rank: Rank, gradient: Gradient) -> Gradient:
        """Return the largest elements as a table whose rows are single elements."""
        self.inner.held = self.held
        own = selection.select_largest(rank, gradient, self.density)
        held = own.values != 0
        return Gradient(("largest elements",), (RowSparse(own.indices[held], own.values[held], (gradient.size,)),))

    def state(self) -> dict[str, Any]:
        return {"inner": self.inner.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.inner.restore(state.get("inner", {}))


def _vector_to_gradient(layer: Layer, like: Gradient) -> Gradient:
    table = layer if isinstance(layer, RowSparse) else as_row_sparse(layer)
    return pairs.pairs_to_gradient(pairs.Pairs(table.rows, table.values), like)
