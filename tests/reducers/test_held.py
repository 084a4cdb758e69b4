"""Gradients that training holds in bf16: what travels, and what is lost."""

import numpy as np
import pytest

from s2sim.codecs.floats import round_to_dtype, widen
from s2sim.reducers.measure import mean_float64
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.run import run_reducer
from s2sim.testing.reducer_properties import example_gradients

RANKS = 4
# By label: what carries values as training has them. All else keeps its type.
CARRIED = {
    "dense": {"gradient"},
    "union": {"values", "dense layers"},
    "union:prefetch=true": {"values", "dense layers"},
    "owner-reduce": {"dense layers"},
    "gather-rows": {"dense layers"},
    "ag-sparse": {"values", "dense layers"},
    "parallax": {"dense layers"},
    "topka2a:density=0.2": {"values to their owners", "dense sums"},
    "random-k:density=0.2": {"values of the same elements"},
    "random-block:density=0.2": {"values of the same elements"},
    "s2:rows=3,cells=2": {"dense layers"},
    "s2-exact": {"dense layers"},
    "s2-exact:warm=true": {"dense layers"},
}
PACKED = {
    "owner-reduce": ("rows to their owners", "sums"),
    "gather-rows": ("rows",),
    "topk": ("largest elements",),
    "random-k:seed=own": ("drawn elements",),
    "sparcml:density=0.2,algorithm=split": ("pairs to their owners", "sums"),
    "omnireduce": ("blocks to aggregators", "sums of blocks"),
}


def ran(text, held, gradients):
    return run_reducer(make_reducer(text).with_dtype(held), gradients)


def calls(text, held, gradients):
    return {call.label: call for call in ran(text, held, gradients).recording.calls}


def values(gradient):
    return np.concatenate(
        [np.asarray(layer.to_dense() if hasattr(layer, "rows") else layer).ravel() for layer in gradient.layers]
    )


@pytest.mark.parametrize("text", CARRIED)
def test_values_travel_in_two_bytes_and_nothing_else_does(text):
    gradients = example_gradients(RANKS)
    whole, half = calls(text, "fp32", gradients), calls(text, "bf16", gradients)
    for label, call in half.items():
        carried = label.partition(",")[0] in CARRIED[text]
        assert (call.dtype == "bfloat16") == carried, label
        if carried:
            assert (call.itemsize, whole[label].dtype) == (2, "float32")
            assert call.elements == whole[label].elements


@pytest.mark.parametrize("text", PACKED)
def test_messages_of_rows_and_pairs_shrink_by_half_of_their_values(text):
    gradients = example_gradients(RANKS)
    whole, half = calls(text, "fp32", gradients), calls(text, "bf16", gradients)
    for label in PACKED[text]:
        for less, more in zip(half[label].bytes_by_rank, whole[label].bytes_by_rank, strict=True):
            assert more / 2 <= less < more


@pytest.mark.parametrize("text", [*CARRIED, "gather-rows:layers=all"])
def test_what_is_lost_is_the_rounding(text):
    gradients = example_gradients(RANKS)
    rounded = [gradient.map(lambda array: widen(round_to_dtype(array, "bf16"))) for gradient in gradients]
    exact = values(mean_float64(gradients))
    error = np.linalg.norm(values(ran(text, "bf16", gradients).results[0].mean) - exact) / np.linalg.norm(exact)
    plain = np.linalg.norm(values(ran(text, "fp32", gradients).results[0].mean) - exact) / np.linalg.norm(exact)
    assert error <= plain + 2.0**-8
    if make_reducer(text).traits.lossless:
        # What each rank holds is rounded, and the sum once more at most.
        near = values(mean_float64(rounded))
        assert np.abs(values(ran(text, "bf16", gradients).results[0].mean) - near).max() <= 2.0**-7 * np.abs(near).max()


def test_gathered_rows_lose_nothing_that_training_has():
    gradients = [
        gradient.map(lambda array: widen(round_to_dtype(array, "bf16"))) for gradient in example_gradients(RANKS)
    ]
    own, exact = ran("gather-rows:layers=all", "bf16", gradients), ran("gather-rows:layers=all", "fp32", gradients)
    assert np.array_equal(values(own.results[0].mean), values(exact.results[0].mean))


def test_a_type_that_is_asked_for_wins_and_only_fewer_bytes_count_as_loss():
    dense = make_reducer("dense").with_dtype("bf16")
    assert (dense.traits.lossless, dense.options()["dtype"]) == (True, "bf16")
    assert not make_reducer("dense:dtype=bf16").traits.lossless
    assert make_reducer("dense:dtype=bf16").with_dtype("bf16").traits.lossless
    full = make_reducer("dense:dtype=fp32").with_dtype("bf16")
    assert (full.traits.lossless, full.options()["dtype"]) == (True, "fp32")


@pytest.mark.parametrize("text", ["s2", "s2:error=0.1", "s2-exact:warm=true", "topk:ef=true", "union"])
def test_instances_and_wrapped_ones_know_the_type(text):
    reducer = make_reducer(text).with_dtype("bf16")
    for again in (reducer, reducer.fresh(), reducer.fitted(example_gradients(RANKS), 0), reducer.fresh().fresh()):
        inner = getattr(again, "inner", again)
        assert inner.held == "bf16"
    assert make_reducer(text).held == "fp32"
