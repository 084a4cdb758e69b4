"""Scaling: doubled parts are there twice, kept rows are the same rows, and a model takes statistics from the trace."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s2sim.errors import OptionError, TraceError
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.gradients.models import load_model
from s2sim.gradients.scaling import (
    double_rows,
    double_width,
    keep_rows,
    match_tables,
    parse_parameters,
    scale_to,
    scale_to_layers,
)
from s2sim.gradients.synthetic import load_trace


def dense_of(layer):
    return layer.to_dense() if isinstance(layer, RowSparse) else layer


@pytest.fixture
def gradient(source):
    return source.gradient(0, 0)


@pytest.mark.parametrize(
    ("text", "parameters"),
    [("350M", 350_000_000), ("1.5B", 1_500_000_000), ("2G", 2_000_000_000), ("7k", 7000), ("12345", 12345)],
)
def test_numbers_of_parameters(text, parameters):
    assert parse_parameters(text) == parameters


@pytest.mark.parametrize("text", ["", "0", "-3M", "350 MB", "1e6", "many", "0.1", "nan", "9" * 400, "99999999999999G"])
def test_what_is_no_number_of_parameters_is_refused(text):
    with pytest.raises(OptionError, match="350M"):
        parse_parameters(text)


@pytest.mark.parametrize("batch", [16, 1024, 1 << 20])
def test_a_table_holds_no_more_rows_than_a_mini_batch_looks_up(batch):
    """A sample of DLRM looks up one row of each table."""
    held = load_trace("lstm-lm", workers=8).gradient(0, 0)
    layers = replace(load_model("dlrm"), batch=batch).layers
    assert {layer.most_rows for layer in layers if layer.sparse} == {batch}
    runs, tables = scale_to_layers("dlrm", layers, held, 8).run(held), match_tables("dlrm", layers, held)
    for layer, ran in zip(layers, runs.layers, strict=True):
        if layer.sparse:
            table = held.layers[tables[layer.name]]
            most = min(len(table.rows), batch * table.shape[0] / layer.shape[0])
            # A hash chooses them: within four deviations, and one at least.
            assert 1 <= len(ran.rows) <= most + 4 * most**0.5 + 1
            assert len(ran.rows) >= most - 4 * most**0.5 - 1
            assert set(ran.rows.tolist()) <= set(table.rows.tolist())


def test_doubled_rows_are_there_twice(gradient):
    doubled = double_rows(gradient, layers=(0, 2))
    for index, (old, new) in enumerate(zip(gradient.layers, doubled.layers, strict=True)):
        expected = np.repeat(dense_of(old), 2, axis=0) if index in (0, 2) else dense_of(old)
        np.testing.assert_array_equal(dense_of(new), expected)
    assert (np.diff(doubled.layers[0].rows) > 0).all()


def test_doubled_width_repeats_a_row(gradient):
    doubled = double_width(gradient, layers=(0, 1))
    np.testing.assert_array_equal(dense_of(doubled.layers[0]), np.tile(dense_of(gradient.layers[0]), (1, 2)))
    assert doubled.layers[1].shape == (1000, 2)
    assert doubled.layers[2] is gradient.layers[2]


@given(st.sets(st.integers(0, 49), min_size=1), st.integers(0, 2**32))
def test_kept_rows_are_those_of_the_whole(kept, seed):
    generator = np.random.default_rng(seed)
    rows = np.sort(generator.choice(50, 10, replace=False))
    table = RowSparse(rows, generator.standard_normal((10, 2)), (50, 2))
    dense = generator.standard_normal((50, 3))
    chosen = np.array(sorted(kept))
    found = keep_rows(Gradient(("a", "b"), (table, dense)), (chosen, chosen))
    for old, new in zip((table, dense), found.layers, strict=True):
        np.testing.assert_array_equal(dense_of(new), dense_of(old)[chosen])


def test_scaling_to_what_there_is_is_refused(gradient):
    assert [growth.times for growth in scale_to(3 * gradient.size, gradient).growths] == [pytest.approx(2)]
    with pytest.raises(OptionError, match="changes nothing"):
        scale_to(gradient.size, gradient)
    with pytest.raises(OptionError, match="sizes only scale up: ask for more, or take a smaller trace"):
        scale_to(5, gradient)


@pytest.mark.parametrize("name", ["gnmt-8", "lstm", "resnet-50", "bert-base", "ncf", "deeplight", "vgg-19"])
def test_a_model_runs_small_and_grows_to_its_own_size(name):
    model, like = load_model(name), load_trace("lstm-lm", workers=1).gradient(0, 0)
    scaling = scale_to_layers(model.name, model.layers, like, 64)
    ran = scaling.run(like)
    assert ran.names == tuple(layer.name for layer in model.layers)
    assert [isinstance(layer, RowSparse) for layer in ran.layers] == [layer.sparse for layer in model.layers]
    assert sum(layer.size for layer in ran.layers if not isinstance(layer, RowSparse)) < 1 << 19
    for layer, small in zip(model.layers, ran.layers, strict=True):
        assert small.shape[1:] == layer.shape[1:] or layer.sparse
    # What every size is linear in must come out at the model's own: elements, and rows of the tables.
    elements = ran.size + sum(growth.times * (growth.double(ran).size - ran.size) for growth in scaling.growths)
    assert elements == pytest.approx(model.parameters, rel=1e-9)

    def rows(gradient):
        return sum(layer.shape[0] for layer in gradient.layers if isinstance(layer, RowSparse))

    grown = rows(ran) + sum(growth.times * (rows(growth.double(ran)) - rows(ran)) for growth in scaling.growths)
    assert grown == pytest.approx(sum(layer.shape[0] for layer in model.layers if layer.sparse))
    assert scaling.weights == tuple(
        layer.size / small.size for layer, small in zip(model.layers, ran.layers, strict=True)
    )


def test_tables_take_the_traces_tables_in_turn():
    like = load_trace("ncf", workers=1).gradient(0, 0)
    scaling = scale_to_layers("ncf", load_model("ncf").layers, like, 4)
    ran = scaling.run(like)
    for index, source in enumerate((0, 1, 0, 1)):
        np.testing.assert_array_equal(ran.layers[index].rows, like.layers[source].rows)
    assert "mf_item_embed.weight after embed_item.weight" in scaling.notes[1]


def test_a_trace_without_tables_or_dense_layers_cannot_stand_for_a_model_with_them():
    dense, sparse = (load_trace(name, workers=1).gradient(0, 0) for name in ("cnn", "synthetic"))
    with pytest.raises(TraceError, match="gnmt-8 has row-sparse layers"):
        scale_to_layers("gnmt-8", load_model("gnmt-8").layers, dense, 4)
    with pytest.raises(TraceError, match="vgg-19 has dense layers"):
        scale_to_layers("vgg-19", load_model("vgg-19").layers, sparse, 4)


def test_ranks_that_look_up_fewer_rows_share_fewer():
    trace = load_trace("lstm-lm", workers=8)
    layers = replace(load_model("deeplight"), batch=2048).layers
    scaling = scale_to_layers("deeplight", layers, trace.gradient(0, 0), 8)

    def union(gradients):
        tables = [next(layer for layer in each.layers if isinstance(layer, RowSparse)) for each in gradients]
        return len(np.unique(np.concatenate([table.rows for table in tables]))) / np.mean([len(t.rows) for t in tables])

    held = [trace.gradient(0, rank) for rank in range(8)]
    assert union([scaling.run(each) for each in held]) > 1.3 * union(held)
