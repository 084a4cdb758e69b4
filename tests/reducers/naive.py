"""What several oracles of reducers are made of."""

import numpy as np

from s2sim.gradients.gradient import to_dense


def top(vector, k):
    """Return the vector with only its k largest magnitudes, of equal ones the first."""
    order = sorted(range(len(vector)), key=lambda i: (-abs(float(vector[i])), i))[:k]
    kept = np.zeros_like(vector)
    kept[order] = vector[order]
    return kept


def flat(gradient):
    """Return all elements of a gradient, layer by layer."""
    return np.concatenate([to_dense(layer).reshape(-1) for layer in gradient.layers])
