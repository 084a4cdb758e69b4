"""What several tests of reducers are made of."""

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


def labels(recording):
    return [call.label for call in recording.calls]


def relative_error(found, arrays):
    """Return the relative L2 error of a mean."""
    exact = np.mean([array.astype(np.float64) for array in arrays], axis=0)
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def drawn_arrays(ranks, overlap, *, width=1, rows=6_000, held=600, tail="gauss", seed=0):
    """Return arrays that share a fraction of a fixed union of rows with all ranks and split the rest of it."""
    rng = np.random.default_rng(seed)
    union = rng.choice(rows, held, replace=False)
    shared, own = np.split(union, [round(overlap * held)])
    arrays = []
    for part in np.array_split(own, ranks):
        array = np.zeros((rows, width), np.float32)
        chosen = np.concatenate([shared, part])
        values = rng.standard_normal((len(chosen), width))
        if tail == "heavy":
            values = np.sign(values) * (1 - rng.random(values.shape)) ** (-1 / 1.5)
        array[chosen] = values
        arrays.append(array if width > 1 else array[:, 0])
    return arrays
