"""Papers in the loop: a small training gives tables, charts and judgements."""

import importlib.util

import pytest

pytest.importorskip("torch")

from s2sim.claims.training_outcomes import TrainingComparison, accuracy_claim, loss_claim, run_training
from s2sim.experiment.progress import SILENT


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="needs the extra torch")
def test_a_training_is_judged_against_dense():
    reducers = {"halves": "fp16", "next to nothing": "random-block:density=0.0001,ef=false"}
    model = "cnn:images=16,channels=4,hidden=32,learning_rate=0.005"
    found = run_training(TrainingComparison(model, reducers, workers=2, steps=60, seeds=3), SILENT)
    same, nothing = (accuracy_claim(found, name, 1, "same accuracy", "here", "no loss") for name in reducers)
    assert (same.judgement, nothing.judgement) == ("reproduced", "not reproduced")
    assert loss_claim(found, "next to nothing", 0.01, "", "", "", "").judgement == "not reproduced"
    assert found.table().rows[1][4] == "2x"
    assert loss_claim(found, "halves", 0.01, "same loss", "here", "no loss", "halves").judgement == "reproduced"
    assert [line.name for line in found.chart().lines] == ["dense", *reducers]
    assert all(len(line.x) == len(line.y) == len(line.low) for line in found.chart().lines)
