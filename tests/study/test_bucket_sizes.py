"""Scaled scripts of buckets against those of gradients that are as large, for every reducer there is."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from s2sim.errors import S2SimError
from s2sim.experiment.buckets import record_buckets
from s2sim.experiment.scenario.reducers import ReducerSpec
from s2sim.gradients import scaling
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.gradients.models import ModelLayer
from s2sim.reducers.registry import make_reducer, reducer_names
from s2sim.reducers.run import run_reducer
from s2sim.reducers.script import Work, payload_bytes
from s2sim.simulation.bucketing.policy import Bucket

pytestmark = pytest.mark.filterwarnings("ignore::s2sim.errors.S2SimWarning")

RANKS = 4
ELEMENTS = 8000
LAYERS = {"a": (512, 96), "bias": (768,), "b": (96, 512), "c": (256, 16, 3, 3), "d": (40, 30)}
SMALL = {"x": (300, 40), "y": (1000,)}
PARTS = (Bucket((0, 1, 2)), Bucket((3, 4)))
# A density keeps whole elements. What is coded by the data has its own noise, and what is drawn by chance more of it: a
# hundred elements of a copy, give or take ten, stand for all.
WITHIN, NOISE, CHANCE = 0.03, 0.08, 0.15
NOISY = {"deepreduce": NOISE, "sbc-1": NOISE, "ccss": NOISE, "stc": NOISE, "ok-topk": NOISE, "wangni": CHANCE}
MORE = (
    "topk:granularity=layer,density=0.01",
    "topk:granularity=layer,density=0.001,ef=true",
    "powersgd:rank=8,min_compression=2",
    "acp-sgd:rank=16,warm=true",
    "per-layer:a=powersgd,b=topk:granularity=layer,*=fp16",
    "s2:layers=all,rows=1,cells=1",
    "union:layers=all",
    "topka2a:density=0.02",
    "topk:granularity=layer,hierarchical=true,node=2",
    "dense:h=3",
    "wangni:density=0.05",
    "sparcml:density=0.1",
)


def values(seed, shape):
    return np.random.default_rng([5, *seed]).standard_t(3, shape).astype(np.float32)


@cache
def dense(*shapes):
    """Return the gradients of all ranks with layers of some names and shapes."""
    shapes = dict(shapes)
    return [
        Gradient(tuple(shapes), tuple(values((rank, place), shape) for place, shape in enumerate(shapes.values())))
        for rank in range(RANKS)
    ]


def of_bucket(bucket, names, gradients):
    kept = [names[place] for place in bucket.tensors]
    return [Gradient(tuple(kept), tuple(dict(gradient)[name] for name in kept)) for gradient in gradients]


def work(recording):
    """Return all ranks' work by phase and kind."""
    found = {}
    for step in (step for script in recording.scripts for step in script if isinstance(step, Work)):
        for kind, size in (*enumerate(step.sizes), ("launches", step.launches)):
            found[step.phase, kind] = found.get((step.phase, kind), 0) + size
    return found


def compare(text, layers, buckets, small, large, within):
    (found,), _ = record_buckets([ReducerSpec(text, make_reducer(text))], small, layers, buckets, seed=0)
    assert len(found.exchange) == len(buckets)
    names = [layer.name for layer in layers]
    for bucket, scaled in zip(buckets, (each.recording for each in found.exchange), strict=True):
        own = of_bucket(bucket, names, large)
        direct = run_reducer(ReducerSpec(text, make_reducer(text).fitted(own, 0)).timed, own).recording
        assert [call.label for call in scaled.calls] == [call.label for call in direct.calls]
        for ours, theirs in zip(scaled.calls, direct.calls, strict=True):
            assert sum(ours.elements) == pytest.approx(sum(theirs.elements), rel=within, abs=16), ours.label
        ours, theirs = work(scaled), work(direct)
        assert ours.keys() == theirs.keys()
        for what, size in theirs.items():
            assert ours[what] == pytest.approx(size, rel=within, abs=100), what


# Parameters by the values of the copies; and fragments in the order of the model's layers. Each has a test of its own.
CHOOSES = ("l-greco", "streaming-diloco")


def of_the_gradient(names):
    return [name for name in names if make_reducer(name).traits.scope == "gradient" and name not in CHOOSES]


def by_bucket(names):
    return [name for name in names if make_reducer(name).traits.scope == "bucket" and name != "per-layer"]


@pytest.mark.parametrize("text", [*of_the_gradient(reducer_names()), "powersgd", "acp-sgd:rank=16", "dgc", "topka2a"])
def test_one_bucket_of_everything_has_the_sizes_of_a_gradient_as_large(text, monkeypatch):
    monkeypatch.setattr(scaling, "DENSE_ELEMENTS", ELEMENTS * RANKS)
    layers = [ModelLayer(name, shape, sparse=False) for name, shape in LAYERS.items()]
    whole = (Bucket(tuple(range(len(LAYERS)))),)
    compare(text, layers, whole, dense(*SMALL.items()), dense(*LAYERS.items()), NOISY.get(text, WITHIN))


def test_fragments_of_a_model_grow_each_by_itself(monkeypatch):
    monkeypatch.setattr(scaling, "DENSE_ELEMENTS", ELEMENTS * RANKS)
    layers = [ModelLayer(name, shape, sparse=False) for name, shape in LAYERS.items()]
    text = "streaming-diloco:h=8,fragments=3,delay=1,wire=fp32"
    whole = (Bucket(tuple(range(len(LAYERS)))),)
    reducer = make_reducer(text)
    (found,), _ = record_buckets([ReducerSpec(text, reducer)], dense(*SMALL.items()), layers, whole, seed=0)
    # Layers are in reverse, as they are ready.
    sizes = [sum(np.prod(LAYERS[name]) for name in fragment) for fragment in (("d", "bias"), ("c", "a"), ("b",))]
    own = [found.exchange[0].recording.calls[place].elements[0] for place in range(3)]
    # Copies have whole rows: few of a small layer.
    assert sorted(own) == pytest.approx(sorted(sizes), rel=CHANCE)


def test_parameters_of_a_model_are_chosen_once_and_at_its_size(monkeypatch):
    monkeypatch.setattr(scaling, "DENSE_ELEMENTS", ELEMENTS * RANKS)
    layers = [ModelLayer(name, shape, sparse=False) for name, shape in LAYERS.items()]
    whole = (Bucket(tuple(range(len(LAYERS)))),)
    reducers = [ReducerSpec(text, make_reducer(text)) for text in ("l-greco", "powersgd:rank=4")]
    (found, usual), _ = record_buckets(reducers, dense(*SMALL.items()), layers, whole, seed=0)
    own = dense(*reversed(LAYERS.items()))
    direct = run_reducer(replace(reducers[0], reducer=found.reducer).timed, own).recording
    assert [call.label for call in found.recording.calls] == [call.label for call in direct.calls]
    sent, same, most = (payload_bytes(each)[0] for each in (found.recording, direct, usual.recording))
    # Layers with unlike parameters grow together.
    assert sent == pytest.approx(same, rel=NOISE)
    assert sent <= most


@pytest.mark.parametrize("text", [*by_bucket(reducer_names()), *MORE])
def test_scaled_buckets_of_dense_layers_have_the_sizes_of_those_that_are_as_large(text, monkeypatch):
    monkeypatch.setattr(scaling, "DENSE_ELEMENTS", ELEMENTS * RANKS)
    layers = [ModelLayer(name, shape, sparse=False) for name, shape in LAYERS.items()]
    within = NOISY.get(text.partition(":")[0], WITHIN)
    compare(text, layers, PARTS, dense(*SMALL.items()), dense(*LAYERS.items()), within)


ROWS, WIDTH = 2000, 128


def table(rank):
    random = np.random.default_rng([6, rank])
    shares = 1 / np.arange(1, ROWS + 1)
    rows = np.sort(random.choice(ROWS, ROWS // 5, replace=False, p=shares / shares.sum()))
    return RowSparse(rows, values((rank, 9), (len(rows), WIDTH)), (ROWS, WIDTH))


ROWS_AS_BLOCKS = {"omnireduce": f"omnireduce:block={WIDTH}"}


def twice(layer):
    """Return a table with twice the rows and twice the width."""
    rows = (2 * layer.rows[:, None] + np.arange(2)).reshape(-1)
    held = np.tile(layer.values.repeat(2, axis=0), (1, 2))
    return RowSparse(rows, held, (2 * ROWS, 2 * WIDTH))


@pytest.fixture(scope="module")
def tables():
    """Return gradients with a table, and as large ones."""
    tables = [table(rank) for rank in range(RANKS)]
    small = [Gradient(("t", "x"), (own, values((rank,), (3000,)))) for rank, own in enumerate(tables)]
    return small, [
        Gradient(("table", "bias"), (twice(own), values((rank,), (3000,))[:1000])) for rank, own in enumerate(tables)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("text", by_bucket(reducer_names()))
def test_scaled_buckets_of_tables_have_the_sizes_of_those_that_are_as_large(text, tables):
    small, large = tables
    layers = [ModelLayer("table", (2 * ROWS, 2 * WIDTH), sparse=True), ModelLayer("bias", (1000,), sparse=False)]
    compare(ROWS_AS_BLOCKS.get(text, text), layers, (Bucket((0,)), Bucket((1,))), small, large, NOISE)


def test_shards_of_which_copies_hold_less_than_one_element_are_refused(monkeypatch):
    monkeypatch.setattr("s2sim.gradients.scaling.MAX_ELEMENTS", RANKS * 300)
    layers = [ModelLayer(name, shape, sparse=False) for name, shape in LAYERS.items()]
    small = dense(("x", (300, 40)))
    with pytest.raises(S2SimError, match="topka2a: on 4 ranks it keeps one element of 400"):
        record_buckets([ReducerSpec("topka2a", make_reducer("topka2a"))], small, layers, PARTS, seed=0)
    reducers = [ReducerSpec("topka2a", make_reducer("topka2a"), optional=True)]
    found, refused = record_buckets(reducers, small, layers, PARTS, seed=0)
    assert (found, refused[0].reducer) == ([], "topka2a")


@pytest.mark.parametrize("text", ["dense", "fp16", "topk:density=0.01", "union:layers=all", "qsgd"])
def test_layers_that_are_too_wide_for_a_row_of_each_run_as_vectors(text, monkeypatch):
    monkeypatch.setattr(scaling, "DENSE_ELEMENTS", ELEMENTS * RANKS)
    monkeypatch.setattr("s2sim.experiment.buckets._MOST_ROW_SCALED", 0)
    layers = [ModelLayer(name, shape, sparse=False) for name, shape in LAYERS.items()]
    compare(text, layers, (Bucket((0, 1, 2, 3, 4)),), dense(*SMALL.items()), dense(*LAYERS.items()), WITHIN)
