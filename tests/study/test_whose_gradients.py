"""A run says whose gradients it is about, how large and how sparse: as simulated, not as recorded."""

import dataclasses

import numpy as np
import pytest

import s2sim
from s2sim.experiment.record import describe_gradients
from s2sim.experiment.scenario.reducers import resolve_run
from s2sim.experiment.spec import RunSpec
from s2sim.gradients.import_trace import import_trace
from s2sim.gradients.models import load_model


def whose(workers=4, **options):
    return describe_gradients(resolve_run(RunSpec("fat-tree", (workers,), ("dense",), **options)), workers)


def test_recorded_gradients_are_those_of_their_manifest():
    found = whose(trace="ncf")
    assert (found.trace, found.kind, found.recorded_ranks, found.drawn_ranks) == ("ncf", "recorded", 64, 0)
    assert (found.parameters, found.bytes) == (602_753, 4 * 602_753)
    assert not found.scaled
    statistics = s2sim.gradients.synthetic.load_trace("ncf", workers=1).manifest.statistics
    assert found.density == pytest.approx(statistics.whole.density)
    layers = statistics.layers
    rows = 1740 * layers["embed_user.weight"].density + 16900 * layers["embed_item.weight"].density
    assert found.row_density == pytest.approx(rows / (1740 + 16900))


def test_scaled_gradients_are_as_sparse_as_the_layers_of_the_model():
    found = whose(trace="lstm-lm", model="gnmt-8")
    sparse = sum(layer.size for layer in load_model("gnmt-8").layers if layer.sparse)
    assert found.density == pytest.approx(1 - (1 - found.row_density) * sparse / found.parameters)
    assert (found.to_model, found.parameters) == ("gnmt-8", load_model("gnmt-8").parameters)
    assert whose(trace="lstm-lm", model="resnet-50").row_density is None
    assert whose(trace="lstm-lm", model="resnet-50").density == pytest.approx(1)


def test_small_models_are_toys_where_they_stand_for_others(tmp_path, monkeypatch):
    np.save(tmp_path / "rank0.npy", np.ones((20, 2), np.float32))
    mine = str(import_trace([tmp_path / "rank0.npy"], tmp_path / "mine").directory)
    assert whose(trace="cnn").toy
    assert whose(trace="cnn", model="resnet-50").toy
    assert not whose(1, trace=mine).toy
    assert whose(1, trace=mine, scale_to="1M").toy
    assert not whose(trace="synthetic", scale_to="1G").toy
    monkeypatch.setattr("s2sim.experiment.record._SMALL_MODEL_PARAMETERS", 10_000)
    assert not whose(trace="cnn", model="resnet-50").toy


def test_drawn_ranks_are_told():
    assert whose(20, trace="cnn").drawn_ranks == 12
    assert "12 ranks more drawn by a law" in whose(20, trace="cnn").sentence()


@pytest.mark.slow
def test_the_result_says_so_on_screen_and_in_json():
    result = s2sim.run("fat-tree", workers=2, trace="cnn", reducers=["fp16"], model="resnet-50", break_even=False)
    assert result.gradients.sentence().startswith("Toy gradients: cnn (convolutional network on 8 x 8 digits")
    assert "scaled to 25.56 M parameters of resnet-50, 102.2 MB a rank" in result.gradients.sentence()
    assert result.to_json()["gradients"] == dataclasses.asdict(result.gradients)
    assert "Toy gradients" in result._repr_html_()


def test_synthetic_gradients_are_measured():
    found = whose(trace="synthetic:density=0.05,rows=600,width=4,dense=400")
    assert found.row_density == pytest.approx(0.05)
    assert found.density == pytest.approx((0.05 * 2400 + 400) / 2800)
    assert found.sentence().startswith("Gradients: synthetic:")
