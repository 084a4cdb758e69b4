"""Papers in the loop: a small training gives tables, charts and judgements."""

import importlib.util

import pytest

pytest.importorskip("torch")

from s2sim.claims import training_outcomes
from s2sim.claims.paper import Claim, PaperEffort
from s2sim.claims.training_outcomes import TrainingComparison, accuracy_claim, loss_claim, run_training
from s2sim.experiment.progress import SILENT


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="needs the extra torch")
@pytest.mark.parametrize(("most", "window", "until"), [(80, 16, "has not improved"), (24, 16, "still improves")])
def test_a_full_training_ends_at_the_plateau_of_dense_or_says_that_there_is_none(monkeypatch, most, window, until):
    monkeypatch.setattr(training_outcomes, "_MOST_STEPS", most)
    monkeypatch.setattr(training_outcomes, "_WINDOW", window)
    # So fast that dense diverges from what it has learnt, or in a few steps not yet.
    model = f"cnn:images=16,channels=4,hidden=32,learning_rate={0.1 if most == 80 else 0.005}"
    loop = TrainingComparison(model, {"halves": "fp16"}, workers=2, steps=10, seeds=1).for_effort(
        PaperEffort(quick=False)
    )
    found = run_training(loop, SILENT)
    assert until in found.loop.line
    assert (found.loop.steps < most) == (most == 80)
    assert found.curves["halves"][0].iterations[-1] == found.loop.steps


UNTRAINED = Claim("same accuracy", "here", "no loss", "-", "not testable", "needs PyTorch", "")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="needs the extra torch")
def test_a_training_is_judged_against_dense():
    reducers = {"halves": "fp16", "next to nothing": "random-block:density=0.0001,ef=false"}
    model = "cnn:images=16,channels=4,hidden=32,learning_rate=0.005"
    found = run_training(TrainingComparison(model, reducers, workers=2, steps=60, seeds=3), SILENT)
    same, nothing = (accuracy_claim(found, name, UNTRAINED) for name in reducers)
    assert (same.judgement, nothing.judgement) == ("reproduced", "not reproduced")
    assert loss_claim(found, "next to nothing", UNTRAINED, 0.01).judgement == "not reproduced"
    assert found.table().rows[1][4] == "2x"
    assert loss_claim(found, "halves", UNTRAINED, 0.01).judgement == "reproduced"
    assert [line.name for line in found.chart().lines] == ["dense", *reducers]
    assert found.steps_table().columns == ("", "0 steps", "12 steps", "24 steps", "36 steps", "48 steps", "60 steps")
    assert found.loop.until == "--full trains until dense stops improving"
    assert all(len(line.x) == len(line.y) == len(line.low) for line in found.chart().lines)
