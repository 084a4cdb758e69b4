"""Reducers bucket by bucket."""

from dataclasses import replace

import numpy as np
import pytest

from s2sim.errors import S2SimError, S2SimWarning
from s2sim.experiment.buckets import record_buckets
from s2sim.experiment.record import record
from s2sim.experiment.scaled_scripts import record_scaled
from s2sim.experiment.scenario.reducers import ReducerSpec, asked_or_all
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.gradients.models import ModelLayer, load_model
from s2sim.gradients.scaling import scale_to_layers
from s2sim.reducers.registry import make_reducer, reducer_names
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import AwaitGradient, count_rounds, recording_bytes
from s2sim.simulation.bucketing.policy import Bucket

RANKS = 4
SHAPES = {"embed": (60, 8), "hidden": (24, 20), "bias": (24,), "head": (40, 24), "scale": (7,)}
SPARSE = {"embed"}
EXACT = ("dense", "union", "owner-reduce", "gather-rows", "s2-exact", "embrace", "union:prefetch=true")


def gradients(ranks=RANKS, shapes=SHAPES, sparse=SPARSE):
    found = []
    for rank in range(ranks):
        random = np.random.default_rng([7, rank])
        layers = []
        for name, shape in shapes.items():
            if name in sparse:
                rows = np.sort(random.choice(shape[0], shape[0] // 4, replace=False))
                layers.append(RowSparse(rows, random.standard_normal((len(rows), *shape[1:]), np.float32), shape))
            else:
                layers.append(random.standard_normal(shape, np.float32))
        found.append(Gradient(tuple(shapes), tuple(layers)))
    return found


def tensors(shapes=SHAPES, sparse=SPARSE):
    """Return the layers in the order of readiness."""
    return [ModelLayer(name, shape, name in sparse) for name, shape in reversed(shapes.items())]


def asked(*texts):
    return [ReducerSpec(text, make_reducer(text)) for text in texts]


def recordings(found):
    return tuple(each.recording for each in found.exchange)


def buckets_of(found):
    return tuple(each.bucket for each in found.exchange)


WHOLE = (Bucket(tuple(range(len(SHAPES)))),)
THREE = (Bucket((0, 1)), Bucket((2, 3)), Bucket((4,)))


def run(*texts, buckets=THREE, held=None, layers=None, **options):
    found, refused = record_buckets(asked(*texts), held or gradients(), layers or tensors(), buckets, seed=3, **options)
    assert not refused
    return found if len(texts) > 1 else found[0]


@pytest.mark.parametrize(
    "text", ["dense", "topk", "union", "s2-exact", "s2:rows=1,cells=4", "qsgd", "powersgd", "fp16"]
)
def test_one_bucket_of_everything_is_what_there_is_without_buckets(text):
    found = run(text, buckets=WHOLE)
    ((plain,), _) = record(asked(text), gradients(), seed=3)
    assert replace(found, exchange=()) == plain
    assert recordings(found) == (plain.recording,)
    assert buckets_of(found) == WHOLE


@pytest.mark.parametrize("text", EXACT)
def test_the_mean_of_exact_reducers_stays_exact(text):
    errors = run(text).errors
    assert errors.whole.relative_l2 <= 1e-6
    assert list(errors.layers) == list(SHAPES)


@pytest.mark.parametrize("text", ["dense", "union"])
def test_bytes_of_buckets_add_up_to_those_of_the_whole(text):
    found, whole = run(text), run(text, buckets=WHOLE)
    sent = sum(recording_bytes(recording)[0].sum() for recording in recordings(found))
    # A bitmap of 60 rows and chunks of four ranks: all of them are whole elements in both.
    assert sent == recording_bytes(whole.recording)[0].sum()
    assert recording_bytes(found.recording)[0].sum() == sent


def test_every_bucket_has_its_own_layers():
    found = run("dense")
    sizes = [7 + 40 * 24, 24 + 24 * 20, 60 * 8]
    assert [recording.calls[0].elements[0] for recording in recordings(found)] == sizes
    assert [call.elements[0] for call in found.recording.calls] == sizes


def test_errors_of_buckets_are_those_of_layers_that_ran_alone():
    found, whole = run("qsgd", "fp16"), gradients()
    exact = [np.mean([g.layers[index] for g in whole], axis=0, dtype=np.float64) for index in range(1, 5)]
    for item in found:
        errors = item.errors
        table = np.mean([g.layers[0].to_dense() for g in whole], axis=0, dtype=np.float64)
        norms = [np.sum(np.square(layer)) for layer in [table, *exact]]
        squares = [error.relative_l2**2 * norm for error, norm in zip(errors.layers.values(), norms, strict=True)]
        assert errors.whole.relative_l2 == pytest.approx(np.sqrt(sum(squares) / sum(norms)))
        assert errors.whole.relative_l2 > 0


@pytest.mark.parametrize(
    "text", ["topk:density=0.1", "gtopk", "ok-topk", "spardl", "sketched-sgd", "fetchsgd", "mem-sgd"]
)
def test_what_is_defined_over_the_whole_gradient_waits_for_it(text):
    found = run(text)
    assert buckets_of(found) == WHOLE
    assert len(recordings(found)) == 1
    ((plain,), _) = record(asked(text), gradients(), seed=3)
    assert replace(found, exchange=()) == plain


@pytest.mark.parametrize("text", ["topk:density=0.1,granularity=layer", "dgc-select", "powersgd", "qsgd", "sbc"])
def test_what_is_defined_by_layer_leaves_with_its_bucket(text):
    found = run(text)
    assert buckets_of(found) == THREE
    assert len(recordings(found)) == 3


def test_clipping_by_the_length_of_the_gradient_waits_for_it():
    assert buckets_of(run("dgc:clip=1")) == WHOLE
    assert buckets_of(run("dgc")) == THREE


def test_only_buckets_with_tables_begin_before_the_gradient_is_there():
    found = run("union:prefetch=true")
    ahead = [AwaitGradient() in recording.scripts[0] for recording in recordings(found)]
    assert ahead == [False, False, True]
    assert found.assumes == "rows are known before forward"
    assert count_rounds(found.recording).before_gradient == 1
    whole = found.recording
    script = whole.scripts[0]
    assert script.index(AwaitGradient()) == recordings(found)[2].scripts[0].index(AwaitGradient())
    assert whole.calls[script[1].call].label == "support, before backward has ended"


@pytest.mark.parametrize(
    "text", ["dense:h=4", "s2:warm=true,rows=1,cells=4", "s2-exact:warm=true", "topk:warmup=2,granularity=layer"]
)
def test_wrappers_work_in_buckets(text):
    found = run(text)
    assert len(recordings(found)) == 3
    assert {recording.steps for recording in recordings(found)} == {found.recording.steps}


def test_nodes_sum_first_in_every_bucket():
    reducer = make_reducer("union:hierarchical=true").placed([0, 0, 1, 1])
    found, _ = record_buckets([ReducerSpec("x", reducer)], gradients(), tensors(), THREE, seed=0)
    assert found[0].errors.whole.relative_l2 <= 1e-6
    assert len(recordings(found[0])[2].calls) > len(recordings(found[0])[0].calls)


def test_a_pattern_that_fits_nothing_in_one_bucket_is_no_mistake(recwarn):
    found = run("per-layer:embed=union,*=fp16")
    assert not [each for each in recwarn if issubclass(each.category, S2SimWarning)]
    assert found.errors.layers["embed"].relative_l2 <= 1e-6


def test_a_pattern_that_fits_nothing_at_all_is_told_once():
    with pytest.warns(S2SimWarning, match=r"no layer is left for the pattern table\*") as told:
        run("per-layer:table*=union,*=fp16")
    assert len(told) == 1


def test_that_nothing_is_row_sparse_is_told_where_it_is_so(recwarn):
    run("union")
    assert not recwarn.list
    with pytest.warns(S2SimWarning, match="no row-sparse layer") as told:
        run("union", held=gradients(sparse=()), layers=tensors(sparse=()))
    assert len(told) == 1


def test_an_optional_reducer_that_refuses_is_left_out():
    reducers = [ReducerSpec("spardl:teams=3", make_reducer("spardl:teams=3"), optional=True), *asked("dense")]
    found, refused = record_buckets(reducers, gradients(), tensors(), THREE, seed=0)
    assert [item.option_string for item in found] == ["dense"]
    assert "does not divide" in refused[0].why
    with pytest.raises(S2SimError, match="does not divide"):
        record_buckets(asked("spardl:teams=3"), gradients(), tensors(), THREE, seed=0)


@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
@pytest.mark.parametrize("scaled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_reducer_runs_in_buckets(scaled):
    reducers, _ = asked_or_all(["dense", "all"])
    layers = tensors({name: (4 * shape[0], *shape[1:]) for name, shape in SHAPES.items()}) if scaled else tensors()
    found, refused = record_buckets(reducers, gradients(), layers, THREE, seed=0)
    assert {item.option_string for item in found} >= set(reducer_names()) - {"per-layer", "coded", "pactrain"}
    assert [each.reducer for each in refused] == []
    for item in found:
        assert len(recordings(item)) == (1 if item.reducer.traits.scope == "gradient" else 3)
        assert len(buckets_of(item)) == len(recordings(item))
        assert item.recording.workers == RANKS


MODEL = """
description = "tables and dense layers, some of them alike"
kind = "user"
source = "this test"
layers = [
  { name = "table", shape = [2400, 12], sparse = true },
  { name = "weight{}", shape = [300, 40], count = 4 },
  { name = "bias{}", shape = [300], count = 4 },
]
[published]
parameters = 78000
within = 0.0
kind = "user"
source = "this test"
"""


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model.toml").write_text(MODEL)
    return load_model(str(tmp_path / "model.toml"))


def ready(model):
    """Return the layers of the model with each bias after its weight, the last first."""
    own = {layer.name: layer for layer in model.layers}
    pairs = [own[f"{name}{number}"] for number in range(3, -1, -1) for name in ("bias", "weight")]
    return [*pairs, own["table"]]


PAIRS = (*(Bucket((2 * number, 2 * number + 1)) for number in range(4)), Bucket((8,)))


@pytest.mark.parametrize("text", ["dense", "topk", "union", "s2-exact", "fp16"])
def test_one_bucket_of_a_model_is_what_there_is_without_buckets(text, model):
    held = gradients()
    found = run(text, buckets=(Bucket(tuple(range(9))),), held=held, layers=ready(model), model=model)
    ((plain,), *_) = record_scaled(asked(text), held, scale_to_layers(model.name, model.layers, held[0], RANKS), seed=3)
    assert replace(found, exchange=()) == plain


def test_buckets_that_are_alike_share_a_recording(model):
    for item in run("dense", "union", "qsgd", buckets=PAIRS, layers=ready(model), model=model):
        assert len({id(recording) for recording in recordings(item)}) == 2
        assert list(item.errors.layers) == [layer.name for layer in model.layers]


def test_layers_whose_names_matter_are_not_alike(model):
    found = run("per-layer:weight0=fp16,*=dense", buckets=PAIRS, layers=ready(model), model=model)
    assert len({id(recording) for recording in recordings(found)}) == 3
    assert recordings(found)[3].calls != recordings(found)[0].calls


@pytest.mark.parametrize("text", ["dense", "union", "fp16"])
def test_buckets_of_a_model_have_its_bytes(text, model):
    found = run(text, buckets=PAIRS, layers=ready(model), model=model)
    whole = run(text, buckets=(Bucket(tuple(range(9))),), layers=ready(model), model=model)
    sent = sum(recording_bytes(recording)[0].sum() for recording in recordings(found))
    assert sent == pytest.approx(recording_bytes(whole.recording)[0].sum(), rel=1e-3)
    assert found.errors.whole.relative_l2 == pytest.approx(whole.errors.whole.relative_l2, abs=1e-4)


@pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")
@pytest.mark.parametrize("text", [*reducer_names(), "s2:rows=1,cells=4,warm=true", "s2-exact:warm=true"])
def test_what_a_reducer_leaves_to_another_is_what_that_does(text):
    held = gradients(sparse=())
    reducer = make_reducer(text)
    other = reducer.fallback_for(held[0])
    assert reducer.fallback_for(gradients()[0]) is None
    if other is not None:
        assert run_reducer(reducer, held).recording == run_reducer(other, held).recording


def test_buckets_without_tables_are_those_of_dense(model):
    plain, *others = run(
        "dense", "union", "s2:warm=true,rows=1,cells=4", buckets=PAIRS, layers=ready(model), model=model
    )
    for item in others:
        assert recordings(item)[:4] == recordings(plain)[:4]
        assert recordings(item)[4] != recordings(plain)[4]
        assert item.reducer.traits.name in item.option_string
