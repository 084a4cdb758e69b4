"""Runs beyond what was recorded: scaled scripts are those of larger gradients, and half predicts the whole."""

import dataclasses
import json

import numpy as np
import pytest

import s2sim
from s2sim.arrays import BlockTable
from s2sim.errors import OptionError, S2SimError, TraceError
from s2sim.experiment.record import record
from s2sim.experiment.run_extrapolation import check_extrapolation
from s2sim.experiment.scaled_scripts import record_scaled, scale_recording, weighted_errors
from s2sim.experiment.scenario.reducers import ReducerSpec, resolve_run
from s2sim.experiment.spec import FOR_DENSE_LAYERS, FOR_TABLES, RunSpec
from s2sim.gradients.gradient import Gradient, RowSparse
from s2sim.gradients.models import load_model
from s2sim.gradients.scaling import Growth, double_rows, scale_to, scale_to_layers
from s2sim.gradients.synthetic import load_trace
from s2sim.reducers.measure import Error, Errors
from s2sim.reducers.process_group import make_instances, run_group
from s2sim.reducers.registry import make_reducer
from s2sim.reducers.script import Call, Post, Recording, Wait, Work

SMALL = "synthetic:density=0.05,overlap=0.5,rows=600,width=4,dense=400"
# Their sizes are whole functions of rows and elements; what is estimated from data has its own noise.
EXACT = ("dense", "fp16", "union", "union:bitmap=byte,layers=all", "topk:density=0.01")
MODEL = """
description = "one table and two dense layers"
kind = "user"
source = "this test"
layers = [
  { name = "table", shape = [2400, 12], sparse = true },
  { name = "weight", shape = [300, 2] },
  { name = "bias", shape = [500] },
]
[published]
parameters = 29900
within = 0.0
kind = "user"
source = "this test"
"""


def reducers(*texts):
    return [ReducerSpec(text, make_reducer(text)) for text in texts]


def gradients(ranks=6):
    trace = load_trace(SMALL, workers=ranks, seed=5)
    return [trace.gradient(0, rank) for rank in range(ranks)]


def repeated(layer, times):
    if not isinstance(layer, RowSparse):
        return np.repeat(layer, times, axis=0)
    rows = (layer.rows[:, None] * times + np.arange(times)).reshape(-1)
    return RowSparse(rows, layer.values.repeat(times, axis=0), (layer.shape[0] * times, *layer.shape[1:]))


def sizes(recording):
    work = [[dataclasses.astuple(step) for step in script if isinstance(step, Work)] for script in recording.scripts]
    return [call.elements for call in recording.calls], work


def numbers(steps):
    return np.array([step[1:] for step in steps])


@pytest.mark.parametrize("times", [3, 10])
@pytest.mark.parametrize("text", EXACT)
def test_scaled_scripts_are_those_of_as_many_times_the_rows(text, times):
    held = gradients()
    large = [Gradient(g.names, tuple(repeated(layer, times) for layer in g.layers)) for g in held]
    scaling = scale_to(large[0].size, held[0])
    found = record_scaled(reducers(text), held, scaling, seed=0)[0][0]
    _, direct = run_group(make_instances(ReducerSpec(text, make_reducer(text)).timed, len(large)), large, seed=0)
    for ours, theirs in zip(found.recording.calls, direct.calls, strict=True):
        # A bitmap ends on a whole byte, a list of indices on a whole element.
        assert ours.elements == pytest.approx(theirs.elements, abs=times)
        assert dataclasses.replace(ours, elements=()) == dataclasses.replace(theirs, elements=())
    for ours, theirs in zip(sizes(found.recording)[1], sizes(direct)[1], strict=True):
        assert [step[0] for step in ours] == [step[0] for step in theirs]
        assert numbers(ours) == pytest.approx(numbers(theirs), rel=1e-3, abs=20 * times)


@pytest.mark.parametrize("text", ["dense", "fp16", "union"])
def test_scripts_scaled_to_a_model_are_those_of_gradients_of_its_shape(text, tmp_path):
    path = tmp_path / "model.toml"
    path.write_text(MODEL)
    model, held = load_model(str(path)), gradients()
    scaling = scale_to_layers(model.name, model.layers, held[0], len(held))
    found = record_scaled(reducers(text), held, scaling, seed=0)[0][0]
    shapes = [layer.shape for layer in model.layers]
    large = []
    for gradient in held:
        table = repeated(gradient.layers[0], 4)
        table = RowSparse(table.rows, np.tile(table.values, (1, 3)), shapes[0])
        dense = (np.ones(shape, np.float32) for shape in shapes[1:])
        large.append(Gradient(tuple(layer.name for layer in model.layers), (table, *dense)))
    _, direct = run_group(make_instances(ReducerSpec(text, make_reducer(text)).timed, len(large)), large, seed=0)
    for ours, theirs in zip(found.recording.calls, direct.calls, strict=True):
        assert ours.elements == pytest.approx(theirs.elements, abs=8)
    for ours, theirs in zip(sizes(found.recording)[1], sizes(direct)[1], strict=True):
        assert numbers(ours) == pytest.approx(numbers(theirs), rel=1e-3, abs=60)


def test_an_estimate_of_the_union_stays_one_when_scaled():
    held = gradients()
    recording = record_scaled(reducers("s2"), held, scale_to(50 * held[0].size, held[0]), seed=0)[0][0].recording
    estimate, cells = recording.calls[0], recording.calls[1]
    _, small = run_group(make_instances(make_reducer("s2"), len(held)), held, seed=0)
    assert estimate.elements == small.calls[0].elements  # registers are as many at any size
    assert cells.elements[0] == pytest.approx(50 * small.calls[1].elements[0], rel=0.1)


@pytest.mark.filterwarnings("ignore:s2")
def test_a_sketch_sized_for_an_error_is_sized_once_and_then_grows():
    held = gradients()
    found = record_scaled(reducers("s2:error=0.2"), held, scale_to(20 * held[0].size, held[0]), seed=0)[0][0]
    small = record(reducers("s2:error=0.2"), held, seed=0)[0][0]
    assert found.reducer.options() == small.reducer.options()
    assert found.recording.calls[1].elements[0] == pytest.approx(20 * small.recording.calls[1].elements[0], rel=0.1)


def test_blocks_of_an_exchange_are_scaled_one_by_one():
    def recording(factor):
        blocks = BlockTable([[0, 3 * factor], [5 * factor, 7]])
        call = Call("all_to_all", "exchange", "float32", 4, tuple(map(sum, blocks)), False, "rows", blocks)
        work = Work("decode", 100 * factor + 1, factor, 0, 0, 7 * factor, 5 * factor, 3 * factor)
        return Recording((call,), ((Post(0), Wait((0,)), work),) * 2)

    found = scale_recording("x", recording(1), [(recording(2), 9.0)])
    assert found.calls[0].blocks == ((0, 30), (50, 7))
    assert found.calls[0].elements == (30, 57)
    assert found.scripts[0][2] == Work("decode", 1001, 2, 0, 0, 70, 50, 30)


def test_a_reducer_that_calls_otherwise_at_another_size_cannot_be_scaled():
    call = Call("all_reduce", "sum", "float32", 4, (5, 5), size_from_data=False, label="values")
    base = Recording((call,), ((Post(0), Wait((0,))),) * 2)
    other = Recording((call, call), ((Post(0), Post(1), Wait((0, 1))),) * 2)
    with pytest.raises(S2SimError, match="odd makes other calls at another size"):
        scale_recording("odd", base, [(other, 1.0)])


def test_nothing_shrinks_below_zero():
    call = Call("all_reduce", "sum", "float32", 4, (5, 5), size_from_data=False, label="values")
    base = Recording((call,), ((Post(0), Wait((0,))),) * 2)
    other = dataclasses.replace(base, calls=(dataclasses.replace(call, elements=(10, 10)),))
    assert scale_recording("x", base, [(other, -3.0)]).calls[0].elements == (0, 0)


def test_errors_are_weighted_by_the_size_that_layers_have_in_the_model():
    errors = Errors(
        Error(0.5, 1.0), Error(0.5, 1.0), {"a": Error(0.1, 0.9), "b": Error(0.4, 0.9), "c": Error(None, None)}
    )
    found = weighted_errors(errors, [3.0, 1.0, 0.0], [1])
    assert found.whole.relative_l2 == pytest.approx(np.sqrt((0.01 * 3 + 0.16) / 4))
    assert found.compressed.relative_l2 == pytest.approx(0.4)
    assert found.whole.cosine is None
    assert found.layers == errors.layers


def test_a_growth_doubles_only_its_part():
    growth = Growth("table", lambda gradient: double_rows(gradient, layers=(0,)), 1.0)
    held = gradients(1)[0]
    assert [layer.size for layer in growth.double(held).layers] == [2 * held.layers[0].size, held.layers[1].size]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm-lm-steps", "lstm-lm", "ncf", "cnn"])
@pytest.mark.filterwarnings("ignore:union|s2")
def test_the_held_back_half_of_every_shipped_trace_is_predicted_within_ten_per_cent(name):
    recorded = load_trace(name, workers=1).world_size
    scenario = resolve_run(RunSpec("fat-tree", (recorded + 1,), trace=name, scale_to="1G"))
    checks, _ = check_extrapolation(scenario, recorded)
    assert [check.reducer for check in checks] == list(FOR_DENSE_LAYERS if name == "cnn" else FOR_TABLES)
    for check in checks:
        assert check.what == f"{recorded // 2} of {recorded} ranks and half of the rows predict all"
        assert abs(check.error_bytes) < 0.1, check.reducer
        assert abs(check.error_time) < 0.1, check.reducer
    assert abs(checks[0].error_bytes) < 1e-4


@pytest.mark.slow
def test_the_check_sees_a_law_that_is_wrong(monkeypatch):
    """With rows drawn as if all ranks held the same, the union of 64 ranks would be far too small."""
    scenario = resolve_run(RunSpec("fat-tree", (65,), ("dense", "union"), "lstm-lm"))
    monkeypatch.setattr(
        "s2sim.gradients.law.LayerLaw.draw", lambda _, counts, ranks, __: (counts == ranks) + 1e-6 * (counts > 0)
    )
    (_, check), _ = check_extrapolation(scenario, 64)
    assert check.error_bytes < -0.15
    assert check.error_time < -0.1


def test_more_workers_than_recorded_are_marked():
    result = s2sim.run("fat-tree", workers=(8, 32), trace="cnn", reducers=["fp16"], break_even=False)
    few, many = ([row for row in result.rows if row.workers == count] for count in (8, 32))
    assert all(row.extrapolated is None for row in few)
    for row in many:
        mark = row.extrapolated
        assert (mark.from_workers, mark.to_workers) == (8, 32)
        assert mark.from_parameters == mark.to_parameters
        assert mark.model is None
        assert mark.hold_out == "4 of 8 ranks predict all"
        assert abs(mark.hold_out_error_bytes) < 0.1
    assert result.notes[0].startswith("extrapolated: 32 workers from 8 recorded ranks")
    assert any("4 times as many" in note for note in result.notes)
    assert "32 workers, nccl on a100, extrapolated from toy gradients" in result.verdict.text
    assert "extrapolated" not in result.verdicts[0].text
    assert result.caveats[0] == result.notes[0]
    value = json.loads(json.dumps(result.to_json()))
    assert [row["extrapolated"] is None for row in value["results"]] == [True, True, False, False]
    assert {"law", "hold_out_error_bytes", "hold_out_error_time", "from_workers", "to_workers"} <= set(
        value["results"][-1]["extrapolated"]
    )
    assert "extrapolated" in value["provenance"]["assumed"][-1]


def test_more_parameters_scale_bytes_and_keep_ratio_and_error():
    small = s2sim.run("fat-tree", workers=4, trace=SMALL, reducers=["union"], break_even=False)
    large = s2sim.run("fat-tree", workers=4, trace=SMALL, reducers=["union"], break_even=False, scale_to="28M")
    assert large.spec.scale_to == "28M"
    for before, after in zip(small.rows, large.rows, strict=True):
        assert after.bytes_sent_per_rank == pytest.approx(10_000 * before.bytes_sent_per_rank, rel=1e-3)
        assert after.ratio == pytest.approx(before.ratio, rel=1e-3)
        assert (after.error, after.error_largest) == (before.error, None)
        assert after.error_bound is None
        assert after.extrapolated.to_parameters == 28_000_000
        assert after.extrapolated.from_parameters == 2800
        assert after.time_s.communication >= after.lower_bound_s


def test_a_models_dense_all_reduce_has_its_parameters():
    result = s2sim.run("fat-tree", workers=4, trace="ncf", reducers=["union"], model="ncf")
    dense, union = result.rows
    assert dense.bytes_sent_per_rank == pytest.approx(4 * 178_064_769 * 2 * 3 / 4, rel=1e-6)
    assert union.extrapolated.model == "ncf"
    assert union.error_compressed.relative_l2 < 1e-6
    assert result.provenance["inputs"]["model"]["source"]
    assert any("mf_user_embed.weight after embed_user.weight" in note for note in result.notes)


@pytest.mark.slow
def test_the_same_spec_gives_the_same_answer():
    spec = RunSpec("fat-tree", (6,), ("union", "s2"), "lstm-lm-steps", seed=2, model="lstm")
    first, second = (s2sim.run(spec=spec).to_json() for _ in range(2))
    assert first == second
    assert RunSpec.from_json(json.loads(json.dumps(spec.to_json())), "x") == spec


def test_specs_of_older_versions_load():
    value = RunSpec("fat-tree", (8,)).to_json()
    del value["scale_to"], value["model"]
    assert RunSpec.from_json(value, "x") == RunSpec("fat-tree", (8,))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"scale_to": "350M", "model": "gnmt-8"}, OptionError, "both set the size"),
        ({"scale_to": "big"}, OptionError, "350M"),
        ({"scale_to": "2800"}, OptionError, "changes nothing"),
        ({"model": "gnmt"}, S2SimError, "did you mean 'gnmt-"),
        ({"model": "gnmt-8", "trace": "cnn"}, TraceError, "row-sparse"),
    ],
)
def test_mistakes_are_told_in_one_line(options, error, message):
    with pytest.raises(error, match=message) as caught:
        s2sim.run("fat-tree", workers=4, **({"trace": SMALL} | options))
    assert "\n" not in str(caught.value)


def test_one_worker_sends_nothing_at_any_size():
    result = s2sim.run("fat-tree", workers=1, trace=SMALL, reducers=["union"], scale_to="1M")
    assert [row.bytes_sent_per_rank for row in result.rows] == [0, 0]
    assert result.to_json()["results"][0]["extrapolated"]["hold_out_error_bytes"] == 0
