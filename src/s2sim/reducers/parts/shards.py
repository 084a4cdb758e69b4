"""A gradient cut into shards, which hold some rows of every layer, and put together again."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.reducers.row_sparse.owners import Owners
from s2sim.reducers.scripts.traffic import chunk_bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from s2sim.gradients.gradient import Layer


def cut(gradient: Gradient, shards: int) -> list[Gradient]:
    """Return the shards of a gradient: of a row-sparse layer the rows of each owner, of a dense one a stretch of rows.

    Which row-sparse rows belong to which shard says `s2sim.reducers.row_sparse.owners`.
    """
    layers = [_cut(layer, shards) for layer in gradient.layers]
    return [Gradient(gradient.names, tuple(parts[shard] for parts in layers)) for shard in range(shards)]


def join(parts: Sequence[Gradient], like: Gradient) -> Gradient:
    """Return the gradient whose shards these are; ``like`` is what was cut, though other types may have come of it."""
    columns = zip(*(part.layers for part in parts), strict=True)
    return Gradient(like.names, tuple(_join(layers, whole) for layers, whole in zip(columns, like.layers, strict=True)))


def only(shards: Mapping[int, Gradient], like: Gradient, count: int) -> Gradient:
    """Return a gradient such as ``like``, which is cut into ``count`` shards, that is zero but for some of them."""
    zeros = [Gradient(like.names, tuple(map(_zeros_like, part.layers))) for part in cut(like, count)]
    return join([shards.get(shard, empty) for shard, empty in enumerate(zeros)], like)


def pick(gradient: Gradient, indices: Iterable[int]) -> Gradient:
    """Return some layers of a gradient."""
    chosen = list(indices)
    return Gradient(tuple(gradient.names[index] for index in chosen), tuple(gradient.layers[index] for index in chosen))


def merge(parts: Iterable[tuple[Sequence[int], Gradient]], like: Gradient) -> Gradient:
    """Return the gradient of whose layers each part has some, by their indices; all together have every one."""
    layers: dict[int, Layer] = {}
    for indices, part in parts:
        layers |= dict(zip(indices, part.layers, strict=True))
    return Gradient(like.names, tuple(layers[index] for index in range(len(like.layers))))


def _cut(layer: Layer, shards: int) -> Sequence[Layer]:
    if isinstance(layer, RowSparse):
        return Owners(layer.shape[0], shards).split(layer)
    rows = np.atleast_1d(layer)
    bounds = chunk_bounds(len(rows), shards).tolist()
    return [rows[start:stop] for start, stop in pairwise(bounds)]


def _join(parts: Sequence[Layer], whole: Layer) -> Layer:
    tables = [part for part in parts if isinstance(part, RowSparse)]
    if not isinstance(whole, RowSparse):
        dense = [part.to_dense() if isinstance(part, RowSparse) else part for part in parts]
        return np.concatenate(dense).reshape(whole.shape)
    owners = Owners(whole.shape[0], len(parts))
    if len(tables) == len(parts):
        return owners.join(tables)
    joined = np.empty(whole.shape, np.float32)
    joined[owners.rows_in_order()] = np.concatenate(
        [part.to_dense() if isinstance(part, RowSparse) else part for part in parts]
    )
    return joined


def _zeros_like(layer: Layer) -> Layer:
    if isinstance(layer, RowSparse):
        return RowSparse(layer.rows[:0], layer.values[:0], layer.shape)
    return np.zeros_like(layer)
