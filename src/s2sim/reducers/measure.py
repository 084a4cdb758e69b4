"""How far a reduced gradient is from the exact mean."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from s2sim.gradients.gradient import Gradient, RowSparse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from s2sim.gradients.gradient import Layer
    from s2sim.reducers.rank import Reduced

# Elements compared at once: their float64 copies stay in a core's second-level cache.
_CHUNK_ELEMENTS = 1 << 15


class Error(NamedTuple):
    """Distance of an aggregate from the exact mean.

    Attributes
    ----------
    relative_l2 : float or None
        ||aggregate - mean|| / ||mean||; 0 where both are zero, None where only the mean is.
    cosine : float or None
        Cosine of the angle between them; None where either is zero.
    """

    relative_l2: float | None
    cosine: float | None


@dataclass(frozen=True, slots=True)
class Errors:
    """Distances of one rank's aggregate.

    Attributes
    ----------
    whole : Error
        Over all layers.
    compressed : Error
        Over the layers that do not travel as plain float32.
    layers : dict of str to Error
        Layer by layer.
    """

    whole: Error
    compressed: Error
    layers: dict[str, Error]


class _Products(NamedTuple):
    """Inner products of difference d, exact mean x and aggregate a."""

    dd: float
    xx: float
    aa: float
    ax: float


def mean_float64(gradients: Sequence[Gradient]) -> Gradient:
    """Return the mean over ranks, summed in float64; all layers are dense."""
    first = gradients[0]
    totals = [np.zeros(layer.shape, np.float64) for layer in first.layers]
    for gradient in gradients:
        for total, layer in zip(totals, gradient.layers, strict=True):
            if isinstance(layer, RowSparse):
                total[layer.rows] += layer.values
            else:
                np.add(total, layer, out=total)
    return Gradient(first.names, tuple(total / len(gradients) for total in totals))


def error_of(mean: Gradient, exact: Gradient, compressed: Iterable[int]) -> Errors:
    """Return how far ``mean`` is from ``exact`` (float64, dense), ``compressed`` naming layers by index."""
    products = [_products(layer, truth) for layer, truth in zip(mean.layers, exact.layers, strict=True)]
    return Errors(
        whole=_error(products),
        compressed=_error([products[index] for index in compressed]),
        layers={name: _error([product]) for name, product in zip(mean.names, products, strict=True)},
    )


def worst_error(results: Sequence[Reduced], exact: Gradient, compressed: Sequence[int]) -> Errors:
    """Return the errors of the rank whose whole aggregate is furthest off.

    A result that ranks share is measured once.
    """
    distinct = {id(result.mean): result.mean for result in results}
    errors = [error_of(mean, exact, compressed) for mean in distinct.values()]
    return max(errors, key=lambda item: inf if item.whole.relative_l2 is None else item.whole.relative_l2)


def _products(layer: Layer, exact: Layer) -> _Products:
    found = (layer.to_dense() if isinstance(layer, RowSparse) else layer).reshape(-1)
    truth = (exact.to_dense() if isinstance(exact, RowSparse) else exact).reshape(-1)
    total = np.zeros(4)
    for start in range(0, len(truth), _CHUNK_ELEMENTS):
        x: NDArray[Any] = truth[start : start + _CHUNK_ELEMENTS]
        a = found[start : start + _CHUNK_ELEMENTS].astype(np.float64)
        d = a - x
        total += d @ d, x @ x, a @ a, a @ x
    return _Products(*map(float, total))


def _error(parts: Sequence[_Products]) -> Error:
    dd, xx, aa, ax = (sum(values) for values in zip(*parts, strict=True)) if parts else (0.0, 0.0, 0.0, 0.0)
    relative = sqrt(dd / xx) if xx else (0.0 if dd == 0 else None)
    cosine = ax / sqrt(xx) / sqrt(aa) if xx and aa else None
    return Error(relative, None if cosine is None else max(-1.0, min(1.0, cosine)))
