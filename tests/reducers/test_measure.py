"""Errors against the textbook formulas, and where they are undefined."""

from types import SimpleNamespace

import numpy as np
import pytest

from s2sim.gradients.gradient import Gradient, to_dense
from s2sim.reducers import measure
from s2sim.reducers.measure import Error, consensus_distance, error_of, mean_float64, worst_error
from s2sim.reducers.rank import Reduced
from s2sim.testing.reducer_properties import example_gradients


def flat(gradient, indices=None):
    indices = range(len(gradient.layers)) if indices is None else indices
    return np.concatenate([to_dense(gradient.layers[i]).reshape(-1).astype(np.float64) for i in indices])


def test_the_mean_is_that_of_numpy_in_float64():
    gradients = example_gradients(7)
    mean = mean_float64(gradients)
    assert mean.layers[0].dtype == np.float64
    np.testing.assert_allclose(flat(mean), np.mean([flat(g) for g in gradients], axis=0), rtol=1e-15, atol=1e-18)


def test_errors_follow_their_definitions(monkeypatch):
    monkeypatch.setattr(measure, "_CHUNK_ELEMENTS", 64)
    found, exact = example_gradients(1)[0], mean_float64(example_gradients(2, seed=4))
    errors = error_of(found, exact, (0, 2))
    for error, indices in [(errors.whole, None), (errors.compressed, (0, 2)), (errors.layers["weight"], (1,))]:
        a, x = flat(found, indices), flat(exact, indices)
        assert error.relative_l2 == pytest.approx(np.linalg.norm(a - x) / np.linalg.norm(x), rel=1e-12)
        assert error.cosine == pytest.approx(a @ x / np.linalg.norm(a) / np.linalg.norm(x), rel=1e-12)
    assert list(errors.layers) == list(found.names)


def one(*values):
    return Gradient(("g",), (np.array(values, np.float32),))


def test_zeros():
    zero, some = one(0, 0), one(3, 4)
    exact = one(0, 0).map(np.float64), one(3, 4).map(np.float64)
    assert error_of(zero, exact[0], ()).whole == Error(0.0, None, 0.0)
    assert error_of(some, exact[0], ()).whole == Error(None, None)
    assert error_of(zero, exact[1], ()).whole == Error(1.0, None, 0.8)
    assert error_of(some, exact[1], (0,)).compressed == Error(0.0, 1.0, 0.0)
    # Nothing is compressed, nothing is lost.
    assert error_of(some, exact[1], ()).compressed == Error(0.0, None, 0.0)


def test_the_worst_rank_counts_and_shared_results_are_measured_once(monkeypatch):
    exact = one(1, 0).map(np.float64)
    shared, worse, undefined = one(1, 0.5), one(1, 2), one(0, 0)
    measured = []
    original = measure.error_of
    monkeypatch.setattr(measure, "error_of", lambda mean, *rest: measured.append(mean) or original(mean, *rest))
    results = [SimpleNamespace(mean=mean) for mean in (shared, shared, worse, shared)]
    assert worst_error(results, exact, ()).whole.relative_l2 == 2
    assert len(measured) == 2
    nothing = undefined.map(np.float64)
    assert worst_error([SimpleNamespace(mean=undefined), SimpleNamespace(mean=shared)], nothing, ()).whole == Error(
        None, None
    )


def test_the_consensus_distance_is_that_of_its_definition():
    means = [np.array([1.0, 0.0], np.float32), np.array([3.0, 0.0], np.float32), np.array([2.0, 3.0], np.float32)]
    results = [Reduced(Gradient(("w",), (mean,)), sent=list) for mean in means]
    average = np.mean(means, axis=0)
    expected = np.sqrt(np.mean([np.sum((mean - average) ** 2) for mean in means])) / np.linalg.norm(average)
    assert consensus_distance(results) == pytest.approx(expected)
    assert consensus_distance(results[:1] * 3) == 0
    opposite = [results[0], Reduced(Gradient(("w",), (-means[0],)), sent=list)]
    assert consensus_distance(opposite) is None
