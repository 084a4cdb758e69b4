"""Feedback over twelve steps of real training: nothing gets lost, and what is held back stays bounded."""

from math import sqrt

import numpy as np
import pytest

from s2sim.gradients.gradient import stored, to_dense
from s2sim.gradients.synthetic import load_trace
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer

RANKS, STEPS = 2, 12


def norm(gradient):
    return sqrt(sum(float(np.square(stored(layer), dtype=np.float64).sum()) for layer in gradient.layers))


def dense(gradient):
    return np.concatenate([to_dense(layer).reshape(-1) for layer in gradient.layers]).astype(np.float64)


def steps_of(text):
    """Yield, step by step and rank by rank: the gradient, what was held back before and is after, what was sent."""
    trace = load_trace("lstm-lm-steps", workers=RANKS)
    instances = make_instances(make_reducer(text), RANKS)
    for step in range(STEPS):
        gradients = [trace.gradient(step, rank) for rank in range(RANKS)]
        before = [instance.held_back() for instance in instances]
        results, _ = run_group(instances, gradients, step=step)
        for instance, gradient, old, result in zip(instances, gradients, before, results, strict=True):
            yield instance, gradient, old, instance.held_back(), result.sent()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("mem-sgd", marks=pytest.mark.slow),
        pytest.param("random-k:ef=true", marks=pytest.mark.slow),
        pytest.param("sbc-1", marks=pytest.mark.slow),
        pytest.param("topk:ef=true,warmup=3,epoch=4", marks=pytest.mark.slow),
        pytest.param("ef-signsgd:ef=true", marks=pytest.mark.slow),
        pytest.param("topk:ef=true,h=5", marks=pytest.mark.slow),
        pytest.param("powersgd:rank=2,ef=true", marks=pytest.mark.slow),
    ],
)
def test_what_goes_in_is_sent_or_held_back(text):
    for _, gradient, old, new, sent in steps_of(text):
        given = dense(gradient) + (0 if old is None else dense(old))
        gap = np.abs(dense(sent) + (0 if new is None else dense(new)) - given).max()
        assert gap <= 1e-5 * np.abs(given).max()


@pytest.mark.slow
def test_residuals_of_a_contraction_stay_bounded():
    """||e'||² <= (1 - k/n) ||g + e||² in every step, so that ||e|| never exceeds q/(1-q) times the largest gradient.

    With q = sqrt(1 - k/n): Karimireddy et al., ICML 2019, lemma 3, without its factor of two.
    """
    share = sqrt(1 - 0.05)
    largest = 0.0
    for instance, gradient, old, new, _ in steps_of("mem-sgd:density=0.05"):
        assert instance.inner.contraction(gradient) == pytest.approx(0.05, rel=1e-5)
        largest = max(largest, norm(gradient))
        assert norm(new) <= share * (norm(gradient) + (0 if old is None else norm(old))) * (1 + 1e-6)
        assert norm(new) <= share / (1 - share) * largest


@pytest.mark.slow
def test_the_estimates_of_ef21_follow_the_gradient():
    """What is left is bounded by how far gradients move: ||e'|| <= q (||e|| + ||g' - g||)."""
    share, last, left = sqrt(1 - 0.05), {}, []
    for instance, gradient, old, new, sent in steps_of("ef21:density=0.05"):
        moved = dense(gradient) - last.get(id(instance), 0)
        before = 0 if old is None else norm(old)
        assert norm(new) <= share * (before + np.linalg.norm(moved)) * (1 + 1e-6)
        np.testing.assert_allclose(dense(sent) + dense(new), dense(gradient), atol=1e-6)
        last[id(instance)] = dense(gradient)
        left.append(norm(new) / norm(gradient))
    assert max(left[RANKS:]) < 0.5
