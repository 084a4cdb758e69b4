"""Curves, targets, intervals, checkpoints and words of a training, whatever has trained."""

import errno
from dataclasses import replace
from math import sqrt
from types import SimpleNamespace

import numpy as np
import pytest

from s2sim.claims.training_outcomes import TrainingOutcome, judge_loss
from s2sim.errors import OptionError, S2SimError
from s2sim.topology.shape import HourlyCost
from s2sim.training.curve import (
    CurveHistory,
    Interval,
    StepTime,
    Target,
    find_crossing,
    plateau,
    ratio_interval,
    t_interval,
)
from s2sim.training.result import make_train_row, train_verdict_lines
from s2sim.training.run import checkpoint_path, load, save
from s2sim.training.spec import TrainSpec
from s2sim.units import format_seconds

SPEC = TrainSpec("fat-tree", model="cnn")


class Found:
    def __init__(self, loss, accuracy, items=None):
        self.loss, self.accuracy, self.items = loss, accuracy, items


def curve(losses, *, every=10, step_s=0.5, step_bytes=100, reducer="dense", seed=0, stopped=None):
    history = CurveHistory(stopped=stopped)
    for number, loss in enumerate(losses):
        for _ in range(every if number else 0):
            history.add_step(loss + 1, StepTime(step_s, step_bytes))
        history.add_evaluation(Found(loss, 1 / loss))
    return history.curve(reducer, seed)


def test_a_curve_counts_up():
    found = curve([8, 4, 2])
    assert found.iterations.tolist() == [0, 10, 20]
    assert found.time_s.tolist() == [0, 5, 10]
    assert found.sent_bytes.tolist() == [0, 1000, 2000]
    assert found.train_loss.tolist() == [5, 5, 3]


def test_a_target_is_reached_between_two_evaluations():
    found = curve([8, 4, 2])
    assert find_crossing(found, Target("loss", 5)) == pytest.approx((7.5, 3.75, 750))
    assert find_crossing(found, Target("loss", 4)) == pytest.approx((10, 5, 1000))
    assert find_crossing(found, Target("loss", 1)) is None
    assert find_crossing(found, Target("loss", 9)) == (0, 0, 0)
    assert find_crossing(found, Target("accuracy", 0.375)) == pytest.approx((15, 7.5, 1500))


@pytest.mark.parametrize(
    ("losses", "window", "step"),
    [
        ([8, 4, 2, 1], 10, None),
        ([8, 4, 3.97, 3.5], 10, 20),  # Less than a hundredth in one evaluation
        ([8, 4, 3.97, 3.5], 20, None),  # More in two
        ([8, 4, 5, 6, 3], 20, 30),  # A loss that rises improves nothing
        ([8, 8, 8], 30, None),  # Too short
    ],
)
def test_a_plateau_is_a_window_without_a_hundredth_of_improvement(losses, window, step):
    assert plateau(curve(losses), window) == step


def test_the_first_crossing_counts_though_the_curve_rises_again():
    assert find_crossing(curve([8, 4, 6, 2]), Target("loss", 4)).iterations == 10


def test_steps_of_other_lengths_count_by_their_own_times():
    history = CurveHistory()
    history.add_evaluation(Found(2.0, 0.1))
    for number in range(4):
        history.add_step(1.0, StepTime(float(number), number))
    history.add_evaluation(Found(1.0, 0.2))
    found = find_crossing(history.curve("dense", 0), Target("loss", 1.5))
    # Steps 0 and 1 take 0 s and 1 s.
    assert (found.iterations, found.time_s, found.sent_bytes) == (2, 1, 1)


def test_an_interval_is_students():
    # t of 2 degrees of freedom, 97.5 %: 4.302653 (any table).
    found = t_interval([1.0, 2.0, 3.0])
    assert found.high - found.mean == pytest.approx(4.302653 / sqrt(3), rel=1e-6)
    assert t_interval([4.0]) == Interval(4.0, None, None, 1)
    assert t_interval([]) is None


def test_seeds_that_agree_to_an_item_do_not_show_that_nothing_is_lost():
    def lost(right, items):
        curves = {}
        for name, counts in (("dense", [177] * len(right)), ("sbc", right)):
            histories = [CurveHistory() for _ in counts]
            for history, count in zip(histories, counts, strict=True):
                history.add_evaluation(Found(1.0, count / items, items))
            curves[name] = [history.curve(name, seed) for seed, history in enumerate(histories)]
        rows = dict.fromkeys(curves, SimpleNamespace(stopped=()))
        return TrainingOutcome(None, "", rows, curves).points_lost("sbc")

    # An item of 180 is .6 points, and two seeds that agree may each be off by a rounding to it.
    assert judge_loss(lost([177, 177], 180), 1) == judge_loss(lost([176, 176], 180), 1) == "not testable"
    assert judge_loss(lost([177] * 5, 180), 1) == judge_loss(lost([177, 177], 1800), 1) == "reproduced"
    assert judge_loss(lost([150, 150], 180), 1) == "not reproduced"


def test_ratios_are_of_pairs():
    found = ratio_interval([1.0, 20.0], [2.0, 40.0])
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert ratio_interval([0.0], [1.0]) is None


def rows_of(own, other, target, price=None):
    both = {"dense": own, "union": other}
    reaches = {name: {c.seed: find_crossing(c, target) for c in of} for name, of in both.items()}
    return [
        make_train_row(name, "none", {c.seed: c for c in of}, reaches[name], reaches["dense"], 20, price)
        for name, of in both.items()
    ]


def test_a_row_compares_seed_by_seed():
    own = [curve([8, 4, 2], seed=0), curve([8, 6, 2], seed=1)]
    other = [replace(curve([8, 4, 2], step_s=0.25, step_bytes=50, seed=seed), reducer="union") for seed in (0, 1)]
    other[1] = replace(curve([8, 6, 2], step_s=0.25, step_bytes=50, seed=1), reducer="union")
    dense, union = rows_of(own, other, Target("loss", 5))
    assert dense.time_ratio.mean == 1
    assert union.time_ratio.mean == pytest.approx(0.5)
    assert union.bytes_ratio.low == pytest.approx(0.5)
    assert union.reached == 2
    lines = train_verdict_lines([dense, union], [*own, *other], Target("loss", 5.0), "dense")
    half = "0.5x [0.5, 0.5]"
    assert lines[0].startswith("union is first at loss 5: ")
    assert lines[0].endswith(f"; dense takes {format_seconds(dense.time_s.mean)}")
    close = [replace(each, step_s=each.step_s * 1.99) for each in other]
    dense_first = train_verdict_lines(
        rows_of(own, close, Target("loss", 5)), [*own, *close], Target("loss", 5.0), "dense"
    )
    assert dense_first[0].startswith("dense is first at loss 5: ")
    assert lines[1:] == (
        f"union reaches loss 5 in {half} the simulated time of dense and {half} its bytes, over 2 seeds",
    )


def test_with_a_price_time_to_the_target_is_money_too():
    price = HourlyCost(workers=8, nodes=2, per_hour=7200.0, currency="EUR")
    own, other = [curve([8, 4, 2])], [replace(curve([8, 4, 2], step_s=0.25), reducer="union")]
    rows = rows_of(own, other, Target("loss", 5), price)
    assert [row.cost.mean for row in rows] == [pytest.approx(2 * row.time_s.mean) for row in rows]
    first = train_verdict_lines(rows, [*own, *other], Target("loss", 5.0), "dense", "EUR")[0]
    dense, union = (f"{row.cost.mean:.2f} EUR" for row in rows)
    assert f" and {union} after " in first
    assert first.endswith(f" and {dense}")
    assert rows_of(own, other, Target("loss", 5))[0].cost is None
    assert rows_of(own, other, Target("loss", 1), price)[0].cost is None


def test_what_does_not_get_there_says_how_far_it_came():
    own = [curve([8, 4, 2])]
    other = [replace(curve([8, 7], stopped="after 10 steps: the sum overflows"), reducer="union")]
    rows = rows_of(own, other, Target("loss", 5))
    assert rows[1].loss is None
    assert rows[1].time_ratio is None
    first, line = train_verdict_lines(rows, [*own, *other], Target("loss", 5.0), "dense")
    assert first.startswith("dense is first at loss 5: ")
    assert "; dense" not in first
    assert line == "union reaches loss 5 with no seed (lowest loss 7; seed 0: after 10 steps: the sum overflows)"


def test_what_gets_there_and_diverges_then_is_not_first():
    own = [curve([8, 6, 4])]
    other = [replace(curve([8, 4, 9], stopped="after 13 steps: the loss is not finite"), reducer="union")]
    first, line = train_verdict_lines(
        rows_of(own, other, Target("loss", 5)), [*own, *other], Target("loss", 5.0), "dense"
    )
    assert first.startswith("dense is first at loss 5: ")
    assert line == (
        "union reaches loss 5 on its way, and does not stay: seed 0: after 13 steps: the loss is not finite"
    )


CONTENT = {
    "history": {"loss": [0.1, float("nan")], "stopped": None},
    "reducers": [{"residual": {"a": np.arange(3, dtype=np.float32)}, "scale": np.float32(0.3), "steps": 4}],
    "optimizer": {0: {"step": np.array(3.0)}},
}


def test_a_checkpoint_comes_back_with_its_types(tmp_path):
    path = checkpoint_path(tmp_path, "topk:density=0.01", 3)
    save(path, CONTENT, {"model": "cnn"})
    found = load(path, {"model": "cnn"})
    assert found["history"]["loss"][0] == 0.1
    assert np.isnan(found["history"]["loss"][1])
    assert found["reducers"][0]["residual"]["a"].tolist() == [0, 1, 2]
    assert isinstance(found["reducers"][0]["scale"], np.float32)
    assert found["optimizer"][0]["step"] == 3
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert load(tmp_path / "none.npz", {}) is None


def test_reducers_with_like_names_have_files_of_their_own(tmp_path):
    names = {checkpoint_path(tmp_path, text, 0).name for text in ("a:b=1", "a,b=1", "a:b=1" + "x" * 80, "a" * 300)}
    assert len(names) == 4
    assert max(map(len, names)) < 100


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    path = tmp_path / "one.npz"
    save(path, CONTENT, {"model": "cnn", "workers": 4})
    with pytest.raises(S2SimError, match="of a training with another workers: resume with the options"):
        load(path, {"model": "cnn", "workers": 8})


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda _: b"nothing", lambda _: b""])
def test_a_damaged_checkpoint_is_refused_in_a_line(tmp_path, damage):
    path = tmp_path / "one.npz"
    save(path, CONTENT, {})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(S2SimError, match=r"cannot be read \(\w+\): delete it"):
        load(path, {})


def test_a_full_disk_is_a_line_and_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "one.npz"
    save(path, CONTENT, {"kept": 1})

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(S2SimError, match="No space left on device; free space"):
        save(path, CONTENT, {})
    assert load(path, {"kept": 1}) is not None
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"steps": 0}, "--steps 0 must lie"),
        ({"seeds": 0}, "--seeds 0 must lie"),
        ({"evaluate_every": 0}, "--evaluate-every 0 must lie"),
        ({"target_loss": -1.0}, "--target-loss -1 must be above 0"),
        ({"target_loss": float("nan")}, "--target-loss nan"),
        ({"target_accuracy": 90.0}, "as a share: 0.9 for 90 %"),
        ({"target_loss": 1.0, "target_accuracy": 0.5}, "give one target"),
        ({"compute": "1ms", "profile": "resnet-50"}, "give one"),
    ],
)
def test_what_cannot_be_is_refused(options, why):
    with pytest.raises(OptionError, match=why):
        replace(SPEC, **options)


def test_learning_rates_belong_to_reducers():
    spec = replace(SPEC, learning_rates=("s2:rows=3=0.5",))
    assert spec.learning_rate("s2:rows=3") == 0.5
    assert spec.learning_rate("dense") is None
    with pytest.raises(OptionError, match="there is no --reducer s2:rows=3"):
        spec.check_learning_rates(("dense",))
    with pytest.raises(OptionError, match="write REDUCER=RATE"):
        replace(SPEC, learning_rates=("union",)).learning_rate("union")


def test_the_spec_comes_back_from_json():
    spec = replace(SPEC, reducers=("dense", "s2"), text=("a.txt",))
    assert TrainSpec.from_json(spec.to_json(), "it") == spec
