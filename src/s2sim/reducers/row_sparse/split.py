"""Which layers a sparse reducer compresses, and how it puts the gradient together again."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from s2sim.codecs.bfloat16 import as_held, widen
from s2sim.errors import S2SimWarning
from s2sim.gradients.gradient import Gradient, RowSparse, as_row_sparse, average
from s2sim.reducers import gpu_cost as cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.gradients.gradient import Layer
    from s2sim.reducers.rank import Held, Pending, Rank

Layers: TypeAlias = Literal["sparse", "all"]


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A gradient in two parts.

    Attributes
    ----------
    gradient : Gradient
        The whole.
    compressed : tuple of int
        Indices of the layers to compress.
    tables : tuple of RowSparse
        These layers; a dense one is taken by element, as a table whose rows have one element.
    dense : Gradient
        All other layers.
    held : {"fp32", "bf16"}
        Type in which values travel that are sent as they are.
    """

    gradient: Gradient
    compressed: tuple[int, ...]
    tables: tuple[RowSparse, ...]
    dense: Gradient
    held: Held = "fp32"

    @property
    def filled(self) -> list[RowSparse]:
        """The tables that have elements, which alone are worth a message."""
        return [table for table in self.tables if table.size]

    def with_empty(self, filled: Sequence[RowSparse]) -> list[RowSparse]:
        """Return all tables, with others in the place of `filled`."""
        others = iter(filled)
        return [next(others) if table.size else table for table in self.tables]

    def post_dense(self, rank: Rank) -> Pending | None:
        """Post the all-reduce of the dense layers; None if there are none."""
        if not self.dense.layers:
            return None
        return rank.all_reduce(self.dense.map(lambda values: as_held(values, self.held)), label="dense layers")

    def mean(self, tables: Sequence[RowSparse], dense: Pending | None, ranks: int) -> Gradient:
        """Return the mean of all layers from the sums of the tables and the finished all-reduce of the others."""
        sums = self.dense if dense is None else dense.value.map(widen)
        return average(self.join(tables, sums), ranks)

    def join(self, tables: Sequence[RowSparse], dense: Gradient) -> Gradient:
        """Return the whole gradient with other values, each layer in its own shape."""
        next_table, next_dense = iter(tables), iter(dense.layers)
        return Gradient(
            self.gradient.names,
            tuple(
                _as_layer(next(next_table), like) if index in self.compressed else next(next_dense)
                for index, like in enumerate(self.gradient.layers)
            ),
        )


def _as_layer(table: RowSparse, like: Layer) -> Layer:
    return table if isinstance(like, RowSparse) else table.to_dense().reshape(like.shape)


def compressed_layers(gradient: Gradient, layers: Layers) -> tuple[int, ...]:
    """Return the indices of the layers to compress: the row-sparse ones, or all."""
    return tuple(i for i, layer in enumerate(gradient.layers) if layers == "all" or isinstance(layer, RowSparse))


def split_layers(rank: Rank, gradient: Gradient, layers: Layers, held: Held = "fp32") -> Split:
    """Split a gradient, charge the GPU for finding the non-zeros of dense layers, warn if nothing is compressed."""
    compressed = compressed_layers(gradient, layers)
    if gradient.layers and not compressed and rank.index == 0 and rank.step == 0:
        warnings.warn(
            # The same for all that compress rows, so that it is told once.
            "the gradient has no row-sparse layer: what compresses rows sends all of it as dense does; layers=all "
            "compresses dense layers too",
            S2SimWarning,
            stacklevel=2,
        )
    tables = []
    for index in compressed:
        layer = gradient.layers[index]
        if not isinstance(layer, RowSparse):
            layer, size_bytes = as_row_sparse(layer.reshape(-1)), layer.nbytes
            rank.work(cost.compact(size_bytes, len(layer.rows)))
        tables.append(layer)
    others = [(name, layer) for index, (name, layer) in enumerate(gradient) if index not in compressed]
    dense = Gradient(tuple(name for name, _ in others), tuple(layer for _, layer in others))
    return Split(gradient, compressed, tuple(tables), dense, held)
