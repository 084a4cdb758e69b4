"""CCSS: a dense gradient is sparsified, and what is left is sent as S2 sends embedding tables."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, as_row_sparse
from s2sim.options import option
from s2sim.reducers.rank import GradientDtype, Pending, Program, Rank, Reduced, Reducer, Traits
from s2sim.reducers.shared.pairs import Pairs, pairs_to_gradient
from s2sim.reducers.shared.selection import Selecting, select_largest
from s2sim.reducers.systems.s2 import S2


@dataclass(slots=True)
class CCSS(Selecting):
    """The k largest elements of each rank in one count sketch, and a bitmap of all elements, both all-reduced.

    K. Ge et al., IEEE JSAC 2023. No text of it could be read, not even the abstract. That it sketches what is left of
    sparsified gradients is inferred from its title and from S2 Reducer by the same authors; top-k, sizes and error
    feedback are our choice.
    """

    density: float = option(0.01, "Fraction of the elements, zeros included, that each rank sketches, in (0, 1].")
    rows: int = option(3, "Rows of the sketch, of which decoding takes the median.")
    cells: float = option(2.0, "Cells of the sketch, all rows together, per element of the union.")

    inner: S2 = field(init=False, repr=False, compare=False)  # What sends the elements that are left

    about = Traits(
        name="ccss",
        summary="a count sketch of each rank's largest elements and a bitmap of all, all-reduced together",
        source="Ge et al., Compressed Collective Sparse-Sketch for Distributed Data-Parallel Training, JSAC 2023",
        granularity="element, with a bit of a bitmap for each",
        carries=True,
        adds_up=False,
        feedback="needed",
        formula="2(P-1)/P (4 cells + n/8)",
        certainty="recalled",
    )

    def __post_init__(self) -> None:
        Selecting.__post_init__(self)
        try:
            self.inner = S2(rows=self.rows, cells=self.cells)
        except OptionError as error:
            raise OptionError(f"ccss: {str(error).removeprefix('s2: ')}") from None

    def reduce(self, rank: Rank, gradient: Gradient) -> Program:
        """Sparsify, sketch what is left, and put it back where it belongs."""
        reduced = yield from self.inner.reduce(rank, self._sparsified(rank, gradient))
        mean = rank.replicated(lambda: _vector_to_gradient(reduced.mean.layers[0], gradient))
        return Reduced(mean, sent=lambda: _vector_to_gradient(reduced.sent().layers[0], gradient))

    def learn(self, rank: Rank, gradient: Gradient) -> Generator[Pending, None, None]:
        """Merge the supports of what is left."""
        yield from self.inner.learn(rank, self._sparsified(rank, gradient))

    def _sparsified(self, rank: Rank, gradient: Gradient) -> Gradient:
        """Return the largest elements as a table whose rows are single elements."""
        own = select_largest(rank, gradient, self.density)
        held = own.values != 0
        table = RowSparse(own.indices[held], own.values[held], (gradient.size,))
        return Gradient(("largest elements",), (table,))

    def with_dtype(self, dtype: GradientDtype) -> CCSS:
        """Return a fresh instance for gradients of this type."""
        again = Reducer.with_dtype(self, dtype)
        again.inner.held = dtype
        return again

    def state(self) -> dict[str, Any]:
        """Return what the sketch carries."""
        return {"inner": self.inner.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what the sketch carried."""
        self.inner.restore(state.get("inner", {}))


def _vector_to_gradient(layer: Layer, like: Gradient) -> Gradient:
    """Return the gradient of the elements of a vector."""
    table = layer if isinstance(layer, RowSparse) else as_row_sparse(layer)
    return pairs_to_gradient(Pairs(table.rows, table.values), like)
