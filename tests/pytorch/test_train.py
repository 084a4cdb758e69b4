"""``s2sim train``: real runs, interrupted and gone on with, and what it says."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from s2sim.cli.main import main
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.json_form import schema_of
from s2sim.pytorch.model_updates import Trainer
from s2sim.training.run import train
from s2sim.training.spec import TrainSpec

CNN = "cnn:channels=4,hidden=16,images=16,learning_rate=0.01"
SPEC = TrainSpec(
    "tcp-10g",
    model=CNN,
    workers=4,
    steps=6,
    seeds=2,
    evaluate_every=2,
    reducers=("dense", "topk:density=0.05", "powersgd"),
)


def arrays(result):
    names = ("iterations", "train_loss", "eval_loss", "accuracy", "sent_bytes", "time_s", "step_loss", "step_s")
    return {(each.reducer, each.seed): [getattr(each, name).tolist() for name in names] for each in result.curves}


@pytest.fixture(scope="module")
def whole():
    return train(SPEC)


def test_every_reducer_and_seed_has_a_curve(whole):
    assert len(whole.curves) == 6
    first = whole.curves[0]
    assert first.iterations.tolist() == [0, 2, 4, 6]
    # The same data and initial weights for all reducers of a seed, others for the next.
    start = {(each.reducer, each.seed): each.eval_loss[0] for each in whole.curves}
    assert start["dense", 0] == start["topk:density=0.05", 0] != start["dense", 1]
    assert whole.rows[0].reducer == "dense"
    assert whole.rows[0].time_ratio.mean == 1
    assert "error feedback" in whole.notes[0]


def test_the_clock_is_what_a_run_says_of_the_same_step(whole):
    dense = whole.curves[0]
    # 2(P-1)/P of all parameters, rounded to ring chunks.
    parameters = 4 * 9 + 4 + 8 * 4 * 9 + 8 + 16 * 8 * 16 + 16 + 16 * 10 + 10
    assert dense.step_bytes[0] == pytest.approx(2 * 3 / 4 * 4 * parameters, rel=0.01)
    for reducer in ("dense", "topk:density=0.05"):
        fast, slow = (
            train(replace(SPEC, steps=2, reducers=("dense", reducer)[reducer == "dense" :], seeds=1, compute=time))
            for time in ("1us", "20ms")
        )
        assert slow.curves[-1].step_s - fast.curves[-1].step_s == pytest.approx(0.02 - 1e-6, rel=1e-9)
    assert slow.curves[0].step_loss.tolist() == dense.step_loss.tolist()[:2]


@pytest.mark.slow
def test_a_training_that_was_interrupted_goes_on_to_the_same_bits(whole, tmp_path, monkeypatch):
    real, left = Trainer.step, [9]

    def step(self):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(self)

    monkeypatch.setattr(Trainer, "step", step)
    first = train(SPEC, out=tmp_path)
    assert not first.complete
    # Dense is done, of the second what was evaluated by then.
    assert [len(each.step_loss) for each in first.curves] == [6, 3]
    monkeypatch.setattr(Trainer, "step", real)
    again = train(SPEC, out=tmp_path, resume=True)
    assert again.complete
    assert arrays(again) == arrays(whole)
    assert again.rows == whole.rows
    # Nothing is left to train.
    monkeypatch.setattr(Trainer, "step", None)
    assert arrays(train(SPEC, out=tmp_path, resume=True)) == arrays(whole)


@pytest.mark.slow
def test_more_steps_and_reducers_go_on_from_what_is_there(whole, tmp_path):
    train(replace(SPEC, steps=4, reducers=("dense",)), out=tmp_path)
    found = arrays(train(SPEC, out=tmp_path, resume=True))
    assert found == arrays(whole)


def test_checkpoints_are_not_mixed(tmp_path):
    short = replace(SPEC, steps=2, seeds=1, reducers=("dense",))
    train(short, out=tmp_path)
    with pytest.raises(OptionError, match="go on with --resume"):
        train(short, out=tmp_path)
    with pytest.raises(S2SimError, match="with another workers"):
        train(replace(short, workers=3), out=tmp_path, resume=True)
    with pytest.raises(OptionError, match="add --out FOLDER"):
        train(short, resume=True)
    train(short, out=tmp_path / "more")
    with pytest.raises(OptionError, match="is of step 2: give as many or more"):
        train(replace(short, steps=1), out=tmp_path / "more", resume=True)
    file = next(tmp_path.glob("*.npz"))
    file.write_bytes(b"no checkpoint")
    with pytest.raises(S2SimError, match="cannot be read"):
        train(short, out=tmp_path, resume=True)


def test_what_diverges_is_told_and_the_others_go_on():
    spec = replace(
        SPEC,
        model="cnn:channels=2,hidden=8,images=8,optimizer=sgd,learning_rate=0.1",
        reducers=("dense", "s2:layers=all,columns=4"),
    )
    result = train(replace(spec, steps=20, seeds=1, target_loss=0.5, learning_rates=("s2:layers=all,columns=4=1e9",)))
    dense, broken = result.rows
    assert dense.seeds == 1
    assert broken.seeds == 0
    assert broken.stopped[0].startswith("seed 0: after ")
    assert "with no seed" in result.verdict[-1]


@pytest.mark.slow
def test_signs_take_steps_of_their_own_length():
    spec = replace(SPEC, reducers=("signsgd-vote",), learning_rates=("signsgd-vote=0.01",), seeds=1, steps=20)
    sign = train(spec).curves[1]
    assert sign.eval_loss[-1] < sign.eval_loss[0]


@pytest.mark.slow
def test_the_command_prints_a_table_and_writes_all_of_it(tmp_path, capsys):
    picture, answer = tmp_path / "it.png", tmp_path / "it.json"
    arguments = ["train", CNN, "--workers", "4", "--steps", "8", "--seeds", "2", "--evaluate-every", "2"]
    arguments += ["--reducer", "fp16", "--topology", "tcp-10g"]
    assert main([*arguments, "--png", str(picture), "--json", str(answer)]) == 0
    printed = capsys.readouterr()
    assert "fp16 reaches loss" in printed.out
    assert "the simulated time of dense" in printed.out
    assert printed.err == ""
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = json.loads(answer.read_text())
    pytest.importorskip("jsonschema").validate(found, schema_of("train"))
    assert found["rows"][1]["reducer"] == "fp16"
    assert len(found["curves"]) == 4
    assert found["spec"]["model"] == CNN
    assert np.isfinite(found["curves"][0]["eval_loss"]).all()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--target-loss", "-2"], "must be above 0"),
        (["--target-accuracy", "95"], "0.9 for 90 %"),
        (["--reducer", "nobody"], "unknown reducer"),
        (["--reducer", "union:warm=true"], "warm"),
        (["--text", "a.txt"], "reads no text"),
        (["--out", "/proc/nowhere"], "--out /proc/nowhere"),
        (["--png", "it.txt"], "must end in"),
        (["--learning-rate", "fp16=1"], "there is no --reducer fp16"),
        (["--workers", "999"], "use fewer workers"),
    ],
)
def test_a_mistake_is_one_line(more, why, capsys):
    assert main(["train", CNN, "--steps", "2", *more]) == 2
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_what_the_page_shows_in_python_runs(capsys):
    page = (Path(__file__).parents[2] / "docs" / "train.md").read_text("utf-8")
    exec(page.split("```python\n")[1].split("```")[0], {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["dense", "0"], ["fp16", "0"], ["dense", "1"], ["fp16", "1"]]
