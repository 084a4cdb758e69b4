"""Statistics of one recorded model predict the recorded gradients of others as badly as they do."""

import json
from math import prod

import pytest

import s2sim
from s2sim.errors import CodecError
from s2sim.experiment import run_extrapolation as transfer
from s2sim.experiment import scaled_scripts
from s2sim.experiment.run_extrapolation import measure_transfers
from s2sim.experiment.scenario.reducers import resolve_run
from s2sim.experiment.spec import RunSpec
from s2sim.gradients.synthetic import load_trace

RANKS = 8


def measured(*reducers, workers=64, **options):
    found = measure_transfers(resolve_run(RunSpec("fat-tree", (workers,), reducers, **options)), workers)
    return {reducer: tuple(transfer for transfer, _ in items) for reducer, items in found.items()}


def union_bytes(shapes, densities, dense):
    """Return the bytes of an exact union, all-reduced by ring: a bit a row and the values of the union's rows."""
    rows = sum(rows / 8 + density * 4 * rows * width for (rows, width), density in zip(shapes, densities, strict=True))
    return 2 * (RANKS - 1) / RANKS * (rows + 4 * dense)


def tables(name):
    """Return shapes, and share of the rows that the first eight ranks hold, of a trace's tables; and its dense size."""
    trace = load_trace(name, workers=1)
    statistics = trace.manifest.statistics
    sparse = [layer for layer in trace.manifest.layers if layer.sparse]
    held = [statistics.layers[layer.name].union_density[statistics.union_ranks.index(RANKS)] for layer in sparse]
    dense = sum(layer.size for layer in trace.manifest.layers if not layer.sparse)
    return [layer.shape for layer in sparse], held, dense


@pytest.mark.parametrize(("source", "to"), [("lstm-lm", "ncf"), ("ncf", "lstm-lm")])
def test_bytes_of_the_union_are_off_by_as_much_as_the_densities_of_its_rows(source, to):
    shapes, own, _ = tables(to)
    others_shapes, others, others_dense = tables(source)
    # Of tables and dense layers there is as much as in what is asked for.
    dense = others_dense * sum(map(prod, shapes)) / sum(map(prod, others_shapes))
    (found,) = measured("dense", "union", trace=source, scale_to="10M", library="ideal")["union"]
    assert (found.to, found.workers) == (to, RANKS)
    expected = union_bytes(shapes, others, dense) / union_bytes(shapes, own, dense) - 1
    assert found.error_bytes == pytest.approx(expected, abs=0.02)
    assert abs(expected) > 0.5
    assert found.error_time * expected > 0
    assert found.error_l2 is None


def test_what_is_dense_is_in_no_doubt():
    """A model that is mostly dense is off by the share of its tables in what is sent, not by that of a table alone."""
    table, mixed = (measured("union", trace="ncf", workers=8, model=model)["union"][0] for model in ("ncf", "gnmt-8"))
    assert abs(mixed.error_bytes) < 0.2 < abs(table.error_bytes)


def test_what_depends_on_shapes_alone_is_predicted():
    dense, fp16 = measured("dense", "fp16", trace="cnn", model="resnet-50").values()
    for item in (*dense, *fp16):
        assert item.error_bytes == pytest.approx(0, abs=1e-4)
        assert item.error_time == pytest.approx(0, abs=1e-4)


@pytest.mark.slow
def test_errors_are_those_of_the_values_that_were_recorded():
    """The one per cent of largest elements that is kept has another share of the norm in another model."""
    found = measured("topk:density=0.01", trace="cnn", model="resnet-50")["topk:density=0.01"]
    assert [item.to for item in found] == ["lstm-lm", "ncf"]
    predicted = s2sim.run(
        "fat-tree", workers=RANKS, trace="cnn", reducers=["topk:density=0.01"], model="resnet-50", break_even=False
    )
    error = predicted.rows[1].error.relative_l2
    for item in found:
        truth = error / (1 + item.error_l2)
        assert 0.05 < truth < 0.99
    assert max(abs(item.error_l2) for item in found) > 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"trace": "lstm-lm-steps", "scale_to": "1G"}, ["ncf"]),
        ({"trace": "ncf", "model": "gnmt-8"}, ["lstm-lm"]),
        ({"trace": "ncf", "model": "vgg-19"}, ["cnn", "lstm-lm"]),
        ({"trace": "synthetic:rows=100,width=2", "scale_to": "1M"}, ["lstm-lm", "ncf"]),
    ],
)
def test_others_are_one_trace_a_model_with_the_layers_that_are_needed(options, expected):
    assert [item.to for item in measured("dense", workers=2, **options)["dense"]] == expected


def test_a_model_predicts_itself(monkeypatch):
    monkeypatch.setattr(transfer, "_other_traces", lambda trace, _: [trace])
    for items in measured("dense", "union", "topk:density=0.01", trace="ncf", scale_to="50M").values():
        assert [(item.error_bytes, item.error_time, item.error_l2 or 0) for item in items] == [(0, 0, 0)]


def test_a_reducer_that_cannot_take_other_gradients_is_left_out_alone(monkeypatch):
    run = scaled_scripts.run_reducer

    def fails(reducer, *rest, **options):
        if reducer.traits.name == "fp16":
            raise CodecError("too large")
        return run(reducer, *rest, **options)

    monkeypatch.setattr(scaled_scripts, "run_reducer", fails)
    found = measured("dense", "fp16", "union", workers=4, trace="ncf", scale_to="1M")
    assert {reducer: len(items) for reducer, items in found.items()} == {"dense": 1, "fp16": 0, "union": 1}


@pytest.mark.slow
def test_a_scaled_run_tells_its_transfer_first_and_the_hold_out_in_a_note():
    result = s2sim.run(
        "fat-tree", workers=4, trace="ncf", reducers=["union", "topk:density=0.01"], scale_to="1G", break_even=False
    )
    reach = "extrapolated: 1 G parameters from 602.8 k recorded ones, which are toy gradients; where the recorded"
    assert result.notes[0].startswith(f"{reach} gradients of lstm-lm are predicted like this, bytes are off by up to ")
    assert "4 workers, nccl on a100, extrapolated from toy gradients" in result.verdict.text
    assert result.caveats[0] == result.notes[0]
    assert "half of the rows predict all" in result.notes[1]
    for row in json.loads(json.dumps(result.to_json()))["results"]:
        (item,) = row["extrapolated"]["transfer"]
        assert set(item) == {"to", "workers", "error_bytes", "error_time", "error_l2"}
        assert (item["to"], item["workers"]) == ("lstm-lm", 4)
    factor = 1 + result.rows[1].extrapolated.transfer[0].error_bytes
    assert f"bytes are off by up to {factor:.2g}x (union)" in result.notes[0]


def test_more_ranks_alone_transfer_nothing():
    result = s2sim.run("fat-tree", workers=16, trace="cnn", reducers=["fp16"], break_even=False)
    assert [row.extrapolated.transfer for row in result.rows] == [(), ()]
    assert "4 of 8 ranks predict all" in result.notes[0]


def test_a_reducer_that_is_spelt_otherwise_is_known_from_the_store(monkeypatch, tmp_path):
    monkeypatch.setenv("S2SIM_CACHE", str(tmp_path))
    first, again = (
        measured(f"topk:density={share}", workers=2, trace="ncf", scale_to="50M") for share in ("0.010", "0.01")
    )
    assert again["topk:density=0.01"] == first["topk:density=0.010"] != ()
