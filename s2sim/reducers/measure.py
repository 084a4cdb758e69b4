"""How far a reduced gradient is from the exact mean."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from statistics import fmean
from typing import NamedTuple

import numpy as np

from s2sim.arrays import Array, Floats, Ints
from s2sim.codecs.bitmap import count_nonzero
from s2sim.gradients.gradient import Gradient, Layer, RowSparse, add_into, stored, to_dense, union_of
from s2sim.reducers.rank import Reduced, Traits

# Elements compared at once: their float64 copies stay in a core's second-level cache, and their inner products are too
# short for a BLAS to wake its threads, which would spin for longer than they compute.
_CHUNK_ELEMENTS = 1 << 13


class Error(NamedTuple):
    """Distance of an aggregate from the exact mean."""

    relative_l2: float | None  # ||aggregate - mean|| / ||mean||; 0 where both are zero, None where only the mean is
    cosine: float | None  # Cosine of the angle between them; None where either is zero
    # Largest difference of one element, as a share of ||mean||; None where the mean is zero and it is not
    largest: float | None = None


@dataclass(frozen=True, slots=True)
class Errors:
    """Distances of one rank's aggregate: over all layers, over those that do not travel as plain float32, by layer."""

    whole: Error
    compressed: Error
    layers: dict[str, Error]


def mean_float64(gradients: Sequence[Gradient]) -> Gradient:
    """Return the mean over ranks, summed in float64; a layer is row-sparse where all ranks' are."""
    columns = zip(*(gradient.layers for gradient in gradients), strict=True)
    return Gradient(gradients[0].names, tuple(_mean_layer(layers) for layers in columns))


def _mean_layer(layers: Sequence[Layer]) -> Layer:
    tables = [layer for layer in layers if isinstance(layer, RowSparse)]
    if len(tables) == len(layers):
        rows = union_of(tables)
        like = tables[0]
        total = np.zeros((len(rows), *like.shape[1:]), np.float64)
        for table in tables:
            total[np.searchsorted(rows, table.rows)] += table.values
        return RowSparse(rows, total / len(layers), like.shape)
    total = np.zeros(layers[0].shape, np.float64)
    for layer in layers:
        add_into(total, layer)
    return total / len(layers)


def error_of(mean: Gradient, exact: Gradient, compressed: Iterable[int]) -> Errors:
    """Return how far ``mean`` is from ``exact`` (float64), ``compressed`` naming layers by index."""
    products = [_products(layer, truth) for layer, truth in zip(mean.layers, exact.layers, strict=True)]
    return Errors(
        whole=_error_from_products(products),
        compressed=_error_from_products([products[index] for index in compressed]),
        layers={name: _error_from_products([product]) for name, product in zip(mean.names, products, strict=True)},
    )


def worst_error(results: Sequence[Reduced], exact: Gradient, compressed: Sequence[int]) -> Errors:
    """Return the errors of the rank whose whole aggregate is furthest off.

    A result that ranks share is measured once.
    """
    distinct = {id(result.mean): result.mean for result in results}
    return worst_of(error_of(mean, exact, compressed) for mean in distinct.values())


def final_results(results: Sequence[Reduced], traits: Traits) -> Sequence[Reduced]:
    """Return what ranks end with; where each owns a part of the mean, one result, which is all parts together."""
    if traits.estimates != "shards":
        return results
    own = [result.mean for result in results]
    parts = mean_float64(own).map(lambda values: values * len(own))
    columns = zip(parts.layers, *(mean.layers for mean in own), strict=True)
    # What all have is one object.
    whole = tuple(all_of[1] if len(set(map(id, all_of[1:]))) == 1 else all_of[0] for all_of in columns)
    return [replace(results[0], mean=Gradient(own[0].names, whole))]


def worst_of(errors: Iterable[Errors]) -> Errors:
    """Return those of the aggregate which is furthest off as a whole."""
    return max(errors, key=lambda item: inf if item.whole.relative_l2 is None else item.whole.relative_l2)


def consensus_distance(results: Sequence[Reduced]) -> float | None:
    """Return how far apart ranks end: the RMS over them of the distance to their average, over its L2 norm.

    0 where all end with the same, None where the average is zero and they do not (as in A. Koloskova et al., ICML 2021,
    "Consensus control for decentralized deep learning", there not over a norm).
    """
    distinct = {id(result.mean): result.mean for result in results}
    if len(distinct) == 1:
        return 0.0
    average = mean_float64([result.mean for result in results])
    apart = {key: error_of(mean, average, ()).whole.relative_l2 for key, mean in distinct.items()}
    distances = [apart[id(result.mean)] for result in results]
    return None if None in distances else sqrt(fmean(each**2 for each in distances if each is not None))


def share_within(mean: Gradient, exact: Gradient, limits: Mapping[int, float]) -> float:
    """Return which share of some layers' elements in ``mean`` is within their limits of ``exact``.

    ``limits`` has that of each layer by its index. Elements that ``mean`` does not hold, in rows that no rank has sent,
    do not count, nor do zeros that are zero.
    """
    held = within = 0
    for index, limit in limits.items():
        layer, truth = mean.layers[index], exact.layers[index]
        wanted = _rows_at(truth, layer.rows) if isinstance(layer, RowSparse) else to_dense(truth)
        found, wanted = stored(layer).reshape(-1), wanted.reshape(-1)
        for start in range(0, len(found), _CHUNK_ELEMENTS):
            a, x = found[start : start + _CHUNK_ELEMENTS], wanted[start : start + _CHUNK_ELEMENTS]
            counted = (a != 0) | (x != 0)
            held += int(np.count_nonzero(counted))
            within += int(np.count_nonzero(counted & (np.abs(a - x) <= limit)))
    return within / held if held else 1.0


def norm(gradient: Gradient, layers: Iterable[int]) -> float:
    """Return the L2 norm of some layers, float64, together."""
    return sqrt(sum(float(np.square(stored(gradient.layers[index])).sum()) for index in layers))


def _rows_at(layer: Layer, rows: Ints) -> Array:
    if not isinstance(layer, RowSparse):
        return layer[rows]
    return layer.values if np.array_equal(layer.rows, rows) else layer.to_dense()[rows]


def _aligned_values(found: Layer, exact: Layer) -> tuple[Array, Array]:
    """Return the values of both, flat: in the rows that ``exact`` holds if all others are zero, else all."""
    if isinstance(exact, RowSparse):
        held = _rows_at(found, exact.rows)
        if count_nonzero(held.reshape(-1)) == count_nonzero(stored(found).reshape(-1)):
            return held.reshape(-1), exact.values.reshape(-1)
    return to_dense(found).reshape(-1), to_dense(exact).reshape(-1)


def _products(layer: Layer, exact: Layer) -> tuple[Floats, float]:
    """Return inner products d·d, x·x, a·a, a·x of difference d, exact mean x and aggregate a, and the largest in d."""
    found, truth = _aligned_values(layer, exact)
    total, largest = np.zeros(4), 0.0
    for start in range(0, len(truth), _CHUNK_ELEMENTS):
        x: Array = truth[start : start + _CHUNK_ELEMENTS]
        a = found[start : start + _CHUNK_ELEMENTS].astype(np.float64)
        d = a - x
        total += d @ d, x @ x, a @ a, a @ x
        largest = max(largest, float(np.abs(d).max()))
    return total, largest


def _error_from_products(parts: Sequence[tuple[Floats, float]]) -> Error:
    dd, xx, aa, ax = sum((products for products, _ in parts), np.zeros(4)).tolist()
    largest = max((found for _, found in parts), default=0.0)
    relative = sqrt(dd / xx) if xx else (0.0 if dd == 0 else None)
    cosine = ax / sqrt(xx) / sqrt(aa) if xx and aa else None
    return Error(
        relative,
        None if cosine is None else max(-1.0, min(1.0, cosine)),
        largest / sqrt(xx) if xx else (0.0 if largest == 0 else None),
    )
