"""Error feedback: the residual's identity, convergence of the running sum, and what it refuses."""

import numpy as np
import pytest

from s2sim.codecs.top_k import elements_kept
from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient, as_row_sparse
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.systems.topk import TopK
from s2sim.reducers.wrappers.error_feedback import ErrorFeedback
from s2sim.testing.reducer_properties import example_gradients

from .naive import flat, top


def test_top_k_with_feedback_equals_memory_sgd_written_out():
    ranks, density = 3, 0.1
    instances = make_instances(make_reducer(f"topk:density={density},ef=true"), ranks)
    memory = [np.zeros(example_gradients(1)[0].size, np.float32) for _ in range(ranks)]
    k = elements_kept(len(memory[0]), density)
    for step in range(5):
        gradients = example_gradients(ranks, seed=step)
        results, _ = run_group(instances, gradients, step=step)
        expected = np.zeros_like(memory[0])
        for rank, gradient in enumerate(gradients):
            memory[rank] += flat(gradient)
            sent = top(memory[rank], k)
            expected += sent
            memory[rank] -= sent
            np.testing.assert_allclose(flat(instances[rank].residual), memory[rank], atol=1e-6)
        np.testing.assert_allclose(flat(results[0].mean), expected / ranks, atol=1e-6)


@pytest.mark.parametrize("text", ["fp16:ef=true", "s2:rows=3,cells=4,ef=true", "s2:columns=300,layers=all,ef=true"])
def test_what_goes_in_is_sent_or_left(text):
    ranks = 3
    instances = make_instances(make_reducer(text), ranks)
    went_in, went_out = (np.zeros((ranks, example_gradients(1)[0].size)) for _ in range(2))
    for step in range(4):
        gradients = example_gradients(ranks, seed=step)
        results, _ = run_group(instances, gradients, step=step)
        went_in += [flat(gradient) for gradient in gradients]
        went_out += [flat(result.sent()) for result in results]
    left = np.array([flat(instance.residual) for instance in instances])
    np.testing.assert_allclose(went_out + left, went_in, atol=1e-4)
    assert left.any()


def running_mean_errors(text, steps, ranks=4):
    """Return ||running mean of results - mean|| / ||mean|| after each step of a constant gradient."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(400).astype(np.float32) for _ in range(ranks)]
    exact = np.mean(arrays, axis=0, dtype=np.float64)
    instances = make_instances(make_reducer(text), ranks)
    total = np.zeros(400)
    errors = []
    for step in range(steps):
        gradients = [Gradient(("g",), (as_row_sparse(array),)) for array in arrays]
        results, _ = run_group(instances, gradients, step=step)
        total += flat(results[0].mean)
        errors.append(np.linalg.norm(total / (step + 1) - exact) / np.linalg.norm(exact))
    return errors


@pytest.mark.slow
def test_feedback_delivers_what_top_k_alone_never_does():
    alone, fed = (running_mean_errors(f"topk:density=0.1{ef}", 60)[-1] for ef in ("", ",ef=true"))
    # Alone, the same tenth is sent in every step; with feedback the running mean's error falls as 1/steps.
    assert alone > 0.5
    assert fed < 0.25
    errors = running_mean_errors("topk:density=0.1,ef=true", 120)
    assert errors[-1] == pytest.approx(errors[59] / 2, rel=0.25)


def test_a_sketch_below_error_one_converges_under_feedback():
    """Hash functions change from step to step: with fixed ones, three keys in one cell would blow the residual up."""
    errors = running_mean_errors("s2:rows=1,columns=1200,ef=true", 80)
    assert errors[-1] < 0.05
    assert errors[-1] < errors[19] / 2


def test_every_rank_has_its_own_inner_reducer_and_residual():
    made = make_reducer("s2:ef=true")
    first, second = make_instances(made, 2)
    assert first.inner is not second.inner
    run_group([first, second], example_gradients(2))
    assert made.residual is None
    assert made.inner.known is None
    assert first.residual is not second.residual


def test_it_passes_for_its_inner_reducer():
    made = make_reducer("topk:density=0.5,ef=true")
    gradient = example_gradients(1)[0]
    assert made.traits.name == "topk"
    assert made.traits.source == TopK.about.source
    assert "error feedback" in made.traits.summary
    assert made.compresses(gradient) == TopK().compresses(gradient)
    assert made.options() == {"density": 0.5, "granularity": "global", "ef": True}
    assert not made.traits.lossless


@pytest.mark.parametrize("text", ["dense:ef=true", "union:ef=true", "union:bitmap=byte,ef=true"])
def test_a_lossless_reducer_needs_none(text):
    with pytest.raises(OptionError, match="would change nothing"):
        make_reducer(text)


def test_feedback_cannot_be_fed_back_twice_by_text():
    with pytest.raises(OptionError, match="twice"):
        make_reducer("topk:ef=true,ef=true")
    assert isinstance(make_reducer("topk:ef=true"), ErrorFeedback)
    assert make_reducer("topk:ef=false") == TopK()
    with pytest.raises(OptionError, match="not one of false, true"):
        make_reducer("topk:ef=yes")
