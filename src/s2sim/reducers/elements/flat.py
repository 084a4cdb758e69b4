"""All elements of a gradient as one vector, or one a layer, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from s2sim.gradients.gradient import Gradient, to_dense

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s2sim.arrays import Floats32


def layer_vectors(gradient: Gradient) -> list[Floats32]:
    """Return the elements of each layer, zeros included, float32 of shape (size of the layer,)."""
    return [to_dense(layer).reshape(-1) for layer in gradient.layers]


def flat_vector(gradient: Gradient) -> Floats32:
    """Return the elements of all layers, zeros included, one layer after the other, float32 of shape (n,)."""
    return np.concatenate([np.empty(0, np.float32), *layer_vectors(gradient)])


def from_layer_vectors(vectors: Sequence[Floats32], like: Gradient) -> Gradient:
    """Return the gradient whose layers have these elements, all dense; the inverse of `layer_vectors`."""
    return Gradient(
        like.names, tuple(vector.reshape(layer.shape) for vector, layer in zip(vectors, like.layers, strict=True))
    )


def from_flat_vector(vector: Floats32, like: Gradient) -> Gradient:
    """Return the gradient with these elements, all layers dense; the inverse of `flat_vector`."""
    ends = np.cumsum([layer.size for layer in like.layers], dtype=np.int64)
    return from_layer_vectors(np.split(vector, ends[:-1]) if len(ends) else [], like)
