"""Reducers for patterns of layer names: who gets which layer, what goes together, and what is passed through."""

import numpy as np
import pytest

from s2sim.errors import OptionError, S2SimWarning, UnknownNameError
from s2sim.gradients.gradient import to_dense
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer, option_string
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import AwaitGradient, Post, Wait
from s2sim.reducers.shared.layers import select_layers
from s2sim.testing.reducer_properties import example_gradients


@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
def test_every_layer_is_what_its_own_reducer_makes_of_it():
    gradients = example_gradients(3)
    text = "per-layer:embed*=s2:rows=3;cells=2,[fb]*=topk:density=0.3,weight=fp16"
    ran = run_reducer(make_reducer(text), gradients)
    alone = {"embedding": "s2:rows=3,cells=2", "weight": "fp16", "no rows": "dense", "no elements": "dense"}
    names = gradients[0].names
    parts = [([names.index(name)], reducer) for name, reducer in alone.items()]
    parts.append(([names.index("frequencies"), names.index("bias")], "topk:density=0.3"))
    for indices, reducer in parts:
        expected = run_reducer(make_reducer(reducer), [select_layers(gradient, indices) for gradient in gradients])
        for rank, result in enumerate(ran.results):
            for found, wanted in (
                (result.mean, expected.results[rank].mean),
                (result.sent(), expected.results[rank].sent()),
            ):
                for index, layer in zip(indices, wanted.layers, strict=True):
                    np.testing.assert_array_equal(to_dense(found.layers[index]), to_dense(layer))


def test_the_first_pattern_that_fits_has_a_layer():
    reducer = make_reducer("per-layer:embedding=fp16,*e*=union,*=dense")
    gradient = example_gradients(1)[0]
    # fp16 takes the embedding, union of what has an e in its name besides that the frequencies, which are row-sparse.
    assert reducer.compresses(gradient) == (0, 2)


def test_what_is_posted_before_a_wait_goes_together():
    gradients = example_gradients(3)
    recording = run_reducer(make_reducer("per-layer:[ef]*=union,no*=union,*=fp16"), gradients).recording
    script = recording.scripts[0]
    first = script.index(next(step for step in script if isinstance(step, Wait)))
    posted = [recording.calls[step.call].label for step in script[:first] if isinstance(step, Post)]
    assert posted == ["support", "gradient", "gradient"]


def test_what_a_part_prefetches_goes_alone_before_the_gradient():
    gradients = example_gradients(3)
    recording = run_reducer(make_reducer("per-layer:b*=fp16,[ef]*=union:prefetch=true,*=dense"), gradients).recording
    script = recording.scripts[0]
    there = script.index(AwaitGradient())
    labels = [recording.calls[step.call].label for step in script if isinstance(step, Post)]
    before = [recording.calls[step.call].label for step in script[:there] if isinstance(step, Post)]
    assert before == ["support, before backward has ended"]
    assert labels[1:] == ["values", "gradient", "gradient"]


def test_layers_of_no_pattern_and_patterns_of_no_layer_are_told():
    gradients = example_gradients(2)
    with pytest.warns(S2SimWarning) as caught:
        run_reducer(make_reducer("per-layer:embed*=fp16,embedding=topk,nothing*=union"), gradients)
    texts = [str(each.message) for each in caught]
    assert any("no layer is left for the pattern embedding" in text for text in texts)
    assert any("no layer is left for the pattern nothing*: there are embedding, weight" in text for text in texts)
    assert any(
        "no pattern fits weight, frequencies, bias, no rows, no elements: sent densely" in text for text in texts
    )


def test_without_patterns_all_is_dense():
    gradients = example_gradients(2)
    plain, none = (run_reducer(make_reducer(text), gradients).recording for text in ("dense", "per-layer"))
    assert none == plain
    assert "no pattern" in make_reducer("per-layer").notes()[0]


def test_promises_are_those_of_all_parts():
    exact = make_reducer("per-layer:a=union,*=owner-reduce").traits
    assert exact.lossless
    assert exact.feedback == "no"
    lossy = make_reducer("per-layer:a=union,*=topk").traits
    assert not lossy.lossless
    assert not lossy.rounds_only
    assert lossy.feedback == "needed"
    assert make_reducer("per-layer:a=s2-exact,*=fp16").traits.carries
    assert make_reducer("per-layer:a=s2-exact,*=fp16,warm=true").traits.warm
    assert make_reducer("per-layer:a=s2-exact:warm=true,*=fp16").traits.warm
    assert not make_reducer("per-layer:a=union,*=choco").traits.agrees
    assert make_reducer("per-layer:*=topk").with_dtype("bf16").parts[0].reducer.held == "bf16"


@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
def test_a_part_may_be_a_later_step():
    gradients = example_gradients(2)
    cold, warm = (
        run_reducer(make_reducer(f"per-layer:embed*=s2-exact{text},*=topk:ef=true"), gradients)
        for text in ("", ":warm=true")
    )
    assert len(warm.recording.calls) < len(cold.recording.calls)
    # The step before was the exact sketch's alone: nobody has a residual of it.
    for one, other in zip(cold.results[0].mean.layers[1:], warm.results[0].mean.layers[1:], strict=True):
        np.testing.assert_array_equal(to_dense(one), to_dense(other))


@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
def test_states_of_parts_are_saved_and_restored():
    text, steps = "per-layer:embed*=s2-exact,*=topk:ef=true", [example_gradients(2, seed=step) for step in range(2)]
    going, again = (make_instances(make_reducer(text), 2) for _ in range(2))
    run_group(going, steps[0])
    for instance, old in zip(again, going, strict=True):
        instance.restore(old.state())
    ended = [run_group(each, steps[1], step=1)[0][0].mean for each in (going, again)]
    for one, other in zip(*(mean.layers for mean in ended), strict=True):
        np.testing.assert_array_equal(to_dense(one), to_dense(other))


@pytest.mark.parametrize(
    "text",
    [
        "per-layer:embed*=s2-exact,*=topk:density=0.05;ef=true",
        "per-layer:*.weight=s2:rows=3;cells=2,ef=true",
        "per-layer:a?=union,[bc]*=fp16,hierarchical=true,node=4",
    ],
)
def test_option_strings_come_back(text):
    assert option_string(make_reducer(text)) == text
    assert option_string(make_reducer(text).fresh()) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("per-layer:a=union:prefetch=true,b=node-union:prefetch=true", "both begin before"),
        ("per-layer:a=per-layer", "patterns of its own"),
        ("per-layer:*=topk:h=2", "exchanges once in 2 steps"),
        ("per-layer:*", "not key=value"),
        ("per-layer:*=topk:densty=1", "did you mean 'density'"),
    ],
)
def test_refuses(text, reason):
    with pytest.raises(OptionError, match=reason):
        make_reducer(text)
    with pytest.raises(UnknownNameError, match="did you mean 'union'"):
        make_reducer("per-layer:*=unoin")
