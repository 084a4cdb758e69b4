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

# Elements compared at once: their float64 copies stay in a core's second-level cache, and their inner products are too
# short for a BLAS to wake its threads, which would spin for longer than they compute.
_CHUNK_ELEMENTS = 1 << 13


class Error(NamedTuple):
    """Distance of an aggregate from the exact mean.

    Attributes
    ----------
    relative_l2 : float or None
        ||aggregate - mean|| / ||mean||; 0 where both are zero, None where only the mean is.
    cosine : float or None
        Cosine of the angle between them; None where either is zero.
    largest : float or None
        Largest difference of one element, as a share of ||mean||; None where the mean is zero and it is not.
    """

    relative_l2: float | None
    cosine: float | None
    largest: float | None = None


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
    """Inner products of difference d, exact mean x and aggregate a, and the largest magnitude in d."""

    dd: float
    xx: float
    aa: float
    ax: float
    largest: float


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


def share_within(mean: Gradient, exact: Gradient, compressed: Iterable[int], limit: float) -> float:
    """Return which share of the compressed layers' elements in ``mean`` is within ``limit`` of ``exact``.

    Elements that ``mean`` does not hold, in rows that no rank has sent, do not count, nor do zeros that are zero.
    """
    held = within = 0
    for index in compressed:
        layer, truth = mean.layers[index], exact.layers[index]
        found, wanted = (
            (layer.values, np.asarray(truth)[layer.rows]) if isinstance(layer, RowSparse) else (layer, truth)
        )
        found, wanted = np.asarray(found).reshape(-1), np.asarray(wanted).reshape(-1)
        for start in range(0, len(found), _CHUNK_ELEMENTS):
            a, x = found[start : start + _CHUNK_ELEMENTS], wanted[start : start + _CHUNK_ELEMENTS]
            counted = (a != 0) | (x != 0)
            held += int(np.count_nonzero(counted))
            within += int(np.count_nonzero(counted & (np.abs(a - x) <= limit)))
    return within / held if held else 1.0


def norm(gradient: Gradient, layers: Iterable[int]) -> float:
    """Return the L2 norm of some layers, dense float64, together."""
    return sqrt(sum(float(np.square(np.asarray(gradient.layers[index])).sum()) for index in layers))


def _products(layer: Layer, exact: Layer) -> _Products:
    found = (layer.to_dense() if isinstance(layer, RowSparse) else layer).reshape(-1)
    truth = (exact.to_dense() if isinstance(exact, RowSparse) else exact).reshape(-1)
    total, largest = np.zeros(4), 0.0
    for start in range(0, len(truth), _CHUNK_ELEMENTS):
        x: NDArray[Any] = truth[start : start + _CHUNK_ELEMENTS]
        a = found[start : start + _CHUNK_ELEMENTS].astype(np.float64)
        d = a - x
        total += d @ d, x @ x, a @ a, a @ x
        largest = max(largest, float(np.abs(d).max()))
    dd, xx, aa, ax = total.tolist()
    return _Products(dd, xx, aa, ax, largest)


def _error(parts: Sequence[_Products]) -> Error:
    dd, xx, aa, ax = (sum(getattr(part, name) for part in parts) for name in ("dd", "xx", "aa", "ax"))
    largest = max((part.largest for part in parts), default=0.0)
    relative = sqrt(dd / xx) if xx else (0.0 if dd == 0 else None)
    cosine = ax / sqrt(xx) / sqrt(aa) if xx and aa else None
    return Error(
        relative,
        None if cosine is None else max(-1.0, min(1.0, cosine)),
        largest / sqrt(xx) if xx else (0.0 if largest == 0 else None),
    )
