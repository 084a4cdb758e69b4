"""What ends with no mean is not recommended, however fast and near."""

from dataclasses import replace

import pytest

from s2sim.experiment.choice import rejected
from s2sim.experiment.run import run
from s2sim.report.answer import short_rejection


@pytest.mark.parametrize(("estimates", "word"), [("sign", "only signs"), ("weights", "own models")])
def test_signs_and_models_are_for_training_to_judge(estimates, word):
    row = run(topology="ring", workers=2, reducers=("dense",), trace="cnn", break_even=False).rows[0]
    assert rejected(row, None) is None
    why = rejected(replace(row, estimates=estimates), None)
    assert "only training can tell" in why
    assert short_rejection(why) == word
