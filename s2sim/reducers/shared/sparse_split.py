"""Which layers a sparse reducer compresses, and how it puts the gradient together again."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, sqrt
from typing import Literal, TypeAlias

import numpy as np

from s2sim.arrays import Ints
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.errors import S2SimWarning
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, as_row_sparse, average
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import GradientDtype, Pending, Rank
from s2sim.reducers.shared.row_sparse import check_rows

_GOLDEN = (sqrt(5) - 1) / 2


@dataclass(frozen=True)
class RowOwners:
    """The owners of a table's rows: row r stands at position r·m mod n, and rank i owns positions [i·n//P, (i+1)·n//P).

    With m the first number from n times the golden ratio on that has no factor in common with n, this is a permutation
    that spreads neighbours, and most rows at equal distances, evenly (Fibonacci hashing: Knuth, The Art of Computer
    Programming 3, section 6.4). Vocabularies are sorted by frequency: a rank that owned a stretch of rows would get
    most of them. An owner numbers its rows without gaps, so that a bitmap of them is as short as it can be.

    Attributes
    ----------
    rows : int
        Rows of the table, n.
    ranks : int
        Owners, P.
    """

    rows: int
    ranks: int

    def __post_init__(self) -> None:
        check_rows(self.rows)

    @cached_property
    def cuts(self) -> Ints:
        """Where the positions of each owner begin and end, int64 of shape (ranks + 1,)."""
        return np.arange(self.ranks + 1, dtype=np.int64) * self.rows // self.ranks

    @cached_property
    def multiplier(self) -> int:
        """The number that spreads the rows."""
        found = round(self._modulus * _GOLDEN)
        while gcd(found, self._modulus) > 1:
            found += 1
        return found

    @property
    def _modulus(self) -> int:
        return max(self.rows, 1)

    def split(self, table: RowSparse) -> list[RowSparse]:
        """Return the rows of ``table`` for each owner, numbered as it numbers its own."""
        position = table.rows * self.multiplier % self._modulus
        order = np.argsort(position)
        position, values = position[order], table.values[order]
        bounds = np.searchsorted(position, self.cuts)
        return [
            RowSparse(position[first:stop] - begin, values[first:stop], (int(end - begin), *table.shape[1:]))
            for first, stop, begin, end in zip(bounds, bounds[1:], self.cuts, self.cuts[1:], strict=False)
        ]

    def rows_in_order(self) -> Ints:
        """Return the rows of all owners as they number them, one owner after the other, int64 of shape (rows,)."""
        return np.arange(self.rows, dtype=np.int64) * pow(self.multiplier, -1, self._modulus) % self._modulus

    def place(self, part: RowSparse, owner: int) -> RowSparse:
        """Return one owner's part as a table of all rows, of which it has its own."""
        rows = self.rows_in_order()[part.rows + self.cuts[owner]]
        order = np.argsort(rows)
        return RowSparse(rows[order], part.values[order], (self.rows, *part.shape[1:]))

    def join(self, parts: Sequence[RowSparse]) -> RowSparse:
        """Return the table of which all owners hold parts, the inverse of `split`."""
        position = np.concatenate([part.rows + begin for part, begin in zip(parts, self.cuts, strict=False)])
        rows = position * pow(self.multiplier, -1, self._modulus) % self._modulus
        order = np.argsort(rows)
        values = np.concatenate([part.values for part in parts])
        return RowSparse(rows[order], values[order], (self.rows, *parts[0].shape[1:]))


Layers: TypeAlias = Literal["sparse", "all"]


@dataclass(frozen=True, slots=True, eq=False)
class SplitGradient:
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
    held: GradientDtype = "fp32"

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
        return rank.all_reduce(self.dense.map(lambda values: round_to_dtype(values, self.held)), label="dense layers")

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


def split_layers(rank: Rank, gradient: Gradient, layers: Layers, held: GradientDtype = "fp32") -> SplitGradient:
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
    return SplitGradient(gradient, compressed, tuple(tables), dense, held)
