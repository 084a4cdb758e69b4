"""Layers that a sparse reducer compresses, separated from the dense ones; owners of a table's rows."""

import warnings
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from math import gcd, sqrt
from typing import Literal, TypeAlias

import numpy as np

from s2sim.arrays import Array, Ints
from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.errors import S2SimWarning
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, as_row_sparse, average, to_dense
from s2sim.reducers import gpu_cost as cost
from s2sim.reducers.rank import GradientDtype, Pending, Rank
from s2sim.reducers.script import chunk_bounds
from s2sim.reducers.shared.row_sparse import check_rows, split_table

_GOLDEN = (sqrt(5) - 1) / 2


@dataclass(frozen=True)
class RowOwners:
    """Owners of a table's rows: row r has position r·m mod n, and rank i owns positions [i·n//P, (i+1)·n//P).

    m is the first number from n times the golden ratio on that is coprime to n: a permutation that spreads neighbours,
    and most rows at equal distances, evenly (Fibonacci hashing: Knuth, The Art of Computer Programming 3, section 6.4).
    Vocabularies are sorted by frequency: the owner of a contiguous range of rows would get most of them. An owner
    numbers its rows without gaps, which keeps a bitmap of them short.
    """

    rows: int  # n
    ranks: int  # P

    def __post_init__(self) -> None:
        check_rows(self.rows)

    @cached_property
    def cuts(self) -> Ints:
        """Bounds of the positions of each owner, int64 of shape (ranks + 1,)."""
        return chunk_bounds(self.rows, self.ranks)

    @cached_property
    def multiplier(self) -> int:
        """The number m that spreads the rows."""
        return next(m for m in count(round(self._modulus * _GOLDEN)) if gcd(m, self._modulus) == 1)

    @cached_property
    def _modulus(self) -> int:
        return max(self.rows, 1)

    def _rows_at(self, positions: Ints) -> Ints:
        return positions * pow(self.multiplier, -1, self._modulus) % self._modulus

    def in_order(self, table: RowSparse) -> RowSparse:
        """Return ``table`` with its rows at their positions."""
        positions = table.rows * self.multiplier % self._modulus
        order = np.argsort(positions)
        return RowSparse(positions[order], table.values[order], table.shape)

    def split(self, table: RowSparse) -> list[RowSparse]:
        """Return the rows of ``table`` for each owner, numbered by the owner."""
        return split_table(self.in_order(table), self.cuts)

    def rows_in_order(self) -> Ints:
        """Return the row at each position, int64 of shape (rows,)."""
        return self._rows_at(np.arange(self.rows, dtype=np.int64))

    def place(self, part: RowSparse, owner: int) -> RowSparse:
        """Return one owner's part as a table of all rows."""
        return self._table(part.rows + self.cuts[owner], part.values)

    def join(self, parts: Sequence[RowSparse]) -> RowSparse:
        """Return the table of all owners' parts, the inverse of `split`."""
        positions = np.concatenate([part.rows + begin for part, begin in zip(parts, self.cuts, strict=False)])
        return self._table(positions, np.concatenate([part.values for part in parts]))

    def _table(self, positions: Ints, values: Array) -> RowSparse:
        rows = self._rows_at(positions)
        order = np.argsort(rows)
        return RowSparse(rows[order], values[order], (self.rows, *values.shape[1:]))


Layers: TypeAlias = Literal["sparse", "all"]


@dataclass(frozen=True, slots=True, eq=False)
class SplitGradient:
    """A gradient, separated into layers to compress and others."""

    gradient: Gradient
    compressed: tuple[int, ...]  # Indices of the layers to compress
    tables: tuple[RowSparse, ...]  # These layers; a dense one as a table whose rows have one element
    dense: Gradient  # All other layers
    held: GradientDtype = "fp32"  # Dtype of values that are sent uncompressed

    @property
    def filled(self) -> list[RowSparse]:
        """The tables that have elements; others need no message."""
        return [table for table in self.tables if table.size]

    def with_empty(self, filled: Sequence[RowSparse]) -> list[RowSparse]:
        """Return all tables, with `filled` replaced."""
        new = iter(filled)
        return [next(new) if table.size else table for table in self.tables]

    def post_dense(self, rank: Rank) -> Pending | None:
        """Post the all-reduce of the dense layers; None if there are none."""
        return post_uncompressed(rank, self.dense, self.held, "dense layers")

    def mean(self, tables: Sequence[RowSparse], dense: Pending | None, ranks: int) -> Gradient:
        """Return the mean of all layers from the sums of the tables and the finished all-reduce of the others."""
        return average(self.join(tables, self.dense if dense is None else dense.value.map(widen)), ranks)

    def join(self, tables: Sequence[RowSparse], dense: Gradient) -> Gradient:
        """Return the gradient of these tables and dense layers, each layer in its original shape."""
        return join_layers(self.gradient, dict(zip(self.compressed, tables, strict=True)), dense)


def join_layers(like: Gradient, layers: Mapping[int, Layer], others: Gradient) -> Gradient:
    """Return a gradient of ``layers``, by index and in the shapes of ``like``, and the unchanged ``others`` in order.

    A row-sparse layer becomes dense unless it is row-sparse in ``like``.
    """
    rest, joined = iter(others.layers), []
    for index, template in enumerate(like.layers):
        layer = layers[index] if index in layers else next(rest)
        keep = index not in layers or (isinstance(layer, RowSparse) and isinstance(template, RowSparse))
        joined.append(layer if keep else to_dense(layer).reshape(template.shape))
    return Gradient(like.names, tuple(joined))


def post_uncompressed(rank: Rank, layers: Gradient, held: GradientDtype, label: str) -> Pending | None:
    """Post the all-reduce of ``layers``, of the gradient dtype; None if there are none."""
    if not layers.layers:
        return None
    return rank.all_reduce(layers.map(lambda values: round_to_dtype(values, held)), label=label)


def compressed_layers(gradient: Gradient, layers: Layers) -> tuple[int, ...]:
    """Return the indices of the layers to compress: the row-sparse ones, or all."""
    return tuple(i for i, layer in enumerate(gradient.layers) if layers == "all" or isinstance(layer, RowSparse))


def split_layers(rank: Rank, gradient: Gradient, layers: Layers, held: GradientDtype = "fp32") -> SplitGradient:
    """Split a gradient, charge the GPU for finding the non-zeros of dense layers, warn if nothing is compressed."""
    compressed = compressed_layers(gradient, layers)
    if gradient.layers and not compressed and rank.index == 0 and rank.step == 0:
        warnings.warn(
            # The same text for all reducers that compress rows, so that the warning is shown once.
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
    return SplitGradient(gradient, compressed, tuple(tables), without_layers(gradient, compressed), held)


def without_layers(gradient: Gradient, indices: Container[int]) -> Gradient:
    """Return a gradient without some layers."""
    others = [index for index in range(len(gradient.layers)) if index not in indices]
    return Gradient(tuple(gradient.names[index] for index in others), tuple(gradient.layers[index] for index in others))
