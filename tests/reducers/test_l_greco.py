"""L-GreCo: its dynamic programme against all choices, and what it does with what it chooses."""

from itertools import product

import numpy as np
import pytest

from s2sim.errors import OptionError
from s2sim.gradients.gradient import Gradient
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import Work, payload_bytes
from s2sim.reducers.systems.per_layer import fewest_bytes
from s2sim.testing.reducer_properties import check_restore

from .naive import flat


@pytest.mark.parametrize("seed", range(20))
def test_no_choice_within_the_budget_has_fewer_bytes(seed):
    generator = np.random.default_rng(seed)
    layers, parameters = generator.integers(1, 5), generator.integers(1, 5)
    # Whole thousandths of the budget, so that rounding up is exact.
    errors = generator.integers(0, 700, (layers, parameters)).astype(float)
    sizes = generator.integers(1, 50, (layers, parameters)).astype(float)
    fits = [
        sizes[range(layers), choice].sum()
        for choice in product(range(parameters), repeat=int(layers))
        if errors[range(layers), choice].sum() <= 1000
    ]
    found = fewest_bytes(errors, sizes, 1000.0)
    if not fits:
        assert found == []
    else:
        assert errors[range(layers), found].sum() <= 1000
        assert sizes[range(layers), found].sum() == min(fits)


def test_nothing_to_lose_takes_the_fewest_bytes():
    assert fewest_bytes(np.zeros((2, 3)), np.array([[3.0, 1.0, 2.0]] * 2), 0.0) == [1, 1]
    assert fewest_bytes(np.array([[1.0, 2.0]]), np.array([[1.0, 1.0]]), 0.0) == []


def unlike_layers(rank):
    """Return a layer of rank 2, one of noise, and a vector."""
    generator = np.random.default_rng([7, rank])
    low = generator.standard_normal((60, 2)) @ generator.standard_normal((2, 40))
    layers = (low, generator.standard_normal((30, 30)), generator.standard_normal(9))
    return Gradient(("low*[rank]", "noise", "bias"), tuple(layer.astype(np.float32) for layer in layers))


def lost(text, gradients, steps=2):
    instances = make_instances(make_reducer(text), len(gradients))
    for step in range(steps):
        results, recording = run_group(instances, gradients, step=step)
    off = [
        np.linalg.norm((layer - sent).astype(np.float64))
        for layer, sent in zip(gradients[0].layers, results[0].sent().layers, strict=True)
    ]
    return instances, results, sum(off), int(payload_bytes(recording)[0])


def test_the_rank_goes_where_it_is_of_use():
    gradients = [unlike_layers(0)]
    instances, _, own_error, own_bytes = lost("l-greco", gradients)
    _, _, error, size = lost("powersgd:rank=4", gradients)
    low, noise, _ = instances[0].chosen
    # What is lost is nothing of the first layer from rank 2 on, and the second takes what that saves.
    assert low == 2
    assert noise >= 4
    assert own_bytes < size
    assert own_error <= 1.05 * error


@pytest.mark.parametrize(("of", "usual"), [("powersgd", "powersgd:rank=4"), ("qsgd", "qsgd:bits=4")])
def test_it_sends_no_more_than_the_choice_that_sets_its_budget(of, usual):
    generator = np.random.default_rng(0)
    layers = [generator.standard_normal((64, 64 - 16 * number)).astype(np.float32) for number in range(2)]
    gradients = [Gradient(("a", "b"), tuple(layers))]
    assert lost(f"l-greco:of={of}", gradients)[3] <= lost(usual, gradients)[3]


@pytest.mark.parametrize("of", ["powersgd", "topk", "qsgd"])
def test_it_is_per_layer_with_what_it_chose(of):
    key = {"powersgd": "rank", "topk": "granularity=layer;density", "qsgd": "bits"}[of]
    gradients = [Gradient(("a", "b"), unlike_layers(rank).layers[:2]) for rank in range(3)]
    instances, _, _, _ = lost(f"l-greco:of={of}", gradients, steps=1)
    parts = ",".join(f"{name}={of}:{key}={value:g}" for name, value in zip("ab", instances[0].chosen, strict=True))
    expected, recording = run_group(make_instances(make_reducer(f"per-layer:{parts}"), 3), gradients)
    results, own = run_group(make_instances(make_reducer(f"l-greco:of={of}"), 3), gradients)
    assert np.array_equal(flat(results[0].mean), flat(expected[0].mean))
    assert [call.label for call in own.calls] == ["parameters", *(call.label for call in recording.calls)]
    assert own.calls[0].bytes_by_rank[0] == 16


def test_it_chooses_again_and_keeps_the_rest():
    instances = make_instances(make_reducer("l-greco:every=2"), 2)
    calls = [
        run_group(instances, [unlike_layers(rank) for rank in range(2)], step=step)[1].calls[0].label
        for step in range(5)
    ]
    assert [label == "parameters" for label in calls] == [True, False, True, False, True]
    check_restore(make_reducer("l-greco:every=3,ef=true"), 2)


def test_a_recorded_step_has_its_share_of_the_work_of_choosing():
    gradients = [unlike_layers(rank) for rank in range(2)]

    def first_step(every):
        reducer = make_reducer(f"l-greco:every={every}").fitted(gradients, 0)
        (rank_0, rank_1) = (recording := run_reducer(reducer, gradients).recording).scripts
        assert "parameters" not in [call.label for call in recording.calls]
        (chosen,) = (step for step in rank_0 if isinstance(step, Work) and step not in rank_1)
        return chosen.sizes

    assert [sizes[0] for sizes in (first_step(1), first_step(100))] == [7 * 8 * 3309, 8 * -(-7 * 3309 // 100)]


def test_a_later_step_has_no_choice():
    made = make_reducer("l-greco:warm=true")
    assert made.traits.warm
    with pytest.raises(OptionError, match="alpha"):
        make_reducer("l-greco:alpha=0")
