import dataclasses

import numpy as np
import pytest

import s2sim
from s2sim.errors import OptionError
from s2sim.experiment import steps as follow_rows
from s2sim.experiment.choice import judged_time_s
from s2sim.experiment.progress import INTERRUPTED_NOTE, ProgressWatcher
from s2sim.experiment.steps import residual_trend
from s2sim.gradients.gradient import RowSparse
from s2sim.gradients.synthetic import load_trace
from s2sim.reducers.registry import make_reducer

TRACE = "synthetic:density=0.05,overlap=0.5,rows=400,width=8,dense=300,steps=7"
REDUCERS = ("dense", "union", "fp16", "topk:density=0.02", "s2:rows=3,cells=6", "s2-exact", "s2-exact:warm=true")
ASKED = {"workers": 3, "trace": TRACE, "reducers": REDUCERS, "break_even": False}


@pytest.fixture(scope="module")
def rows():
    result = s2sim.run("fat-tree", **ASKED, steps=7)
    return {row.option_string: row for row in result.rows}


def flat(gradient):
    return np.concatenate(
        [np.ravel(layer.to_dense() if isinstance(layer, RowSparse) else layer) for layer in gradient.layers]
    ).astype(np.float64)


def test_every_step_is_there_and_the_first_is_that_of_a_run(rows):
    alone = {row.option_string: row for row in s2sim.run("fat-tree", **ASKED).rows}
    for text, row in rows.items():
        assert dataclasses.replace(row, steps=(), residual_trend=None, judgement=None) == dataclasses.replace(
            alone[text], judgement=None
        )
        if text == "s2-exact:warm=true":
            assert row.steps == ()
            continue
        assert [step.step for step in row.steps] == list(range(7))
        assert row.steps[0].error == pytest.approx(row.error.relative_l2, rel=1e-12)
        assert row.steps[0].error_so_far == pytest.approx(row.error.relative_l2, rel=1e-12)
        assert row.steps[0].bytes_sent_per_rank == row.bytes_sent_per_rank
        # Keeping a residual takes time, which a run counts too.
        assert row.steps[0].total_s == row.time_s.total


def test_only_what_loses_more_than_rounding_has_residuals(rows):
    assert {text for text, row in rows.items() if row.residual_trend} == {"topk:density=0.02", "s2:rows=3,cells=6"}
    for text in ("dense", "union", "fp16", "s2-exact"):
        assert all(step.residual is None for step in rows[text].steps)
        assert rows[text].steps[-1].error_so_far < 1e-3


def test_exact_sketches_are_cold_once(rows):
    first, *later = rows["s2-exact"].steps
    assert max(step.total_s for step in later) < first.total_s
    assert first.total_s == rows["s2-exact"].time_s.total
    # Nothing but the estimate and the magnitudes is missing from the second on, which has a margin on the last union.
    assert later[0].bytes_sent_per_rank == pytest.approx(rows["s2-exact:warm=true"].bytes_sent_per_rank, rel=0.1)


def test_residuals_equal_a_naive_oracle(rows):
    """Top-k of every rank's gradient and residual, by sorting; what is not among them stays."""
    trace = load_trace(TRACE, workers=3)
    residuals = [0.0] * 3
    delivered = wanted = 0.0
    squares, norms, so_far = [], [], []
    for step in range(7):
        gradients = [flat(trace.gradient(step, rank)) for rank in range(3)]
        squares.append(sum(float(each @ each) for each in gradients))
        corrected = [each + residual for each, residual in zip(gradients, residuals, strict=True)]
        sent = []
        for each in corrected:
            kept = np.zeros_like(each)
            largest = np.argsort(-np.abs(each), kind="stable")[: int(np.ceil(0.02 * len(each)))]
            kept[largest] = each[largest]
            sent.append(kept)
        residuals = [each - own for each, own in zip(corrected, sent, strict=True)]
        norms.append(np.sqrt(sum(float(each @ each) for each in residuals)))
        delivered, wanted = delivered + sum(sent) / 3, wanted + sum(gradients) / 3
        so_far.append(np.linalg.norm(delivered - wanted) / np.linalg.norm(wanted))
    found = rows["topk:density=0.02"].steps
    assert [step.residual for step in found] == pytest.approx(norms / np.sqrt(squares[0]), rel=1e-5)
    assert [step.error_so_far for step in found] == pytest.approx(so_far, rel=1e-5)


def test_what_was_not_delivered_so_far_is_the_mean_residual():
    """On one rank the residual's norm is the error of the sum, in other units."""
    (_, row) = s2sim.run("single-switch", workers=1, trace=TRACE, reducers=["topk:density=0.05"], steps=5).rows
    trace = load_trace(TRACE, workers=1)
    gradients = [flat(trace.gradient(step, 0)) for step in range(5)]
    usual = np.linalg.norm(gradients[0])
    for step, total in zip(row.steps, np.cumsum(gradients, axis=0), strict=True):
        assert step.residual * usual == pytest.approx(step.error_so_far * np.linalg.norm(total), rel=1e-5)


@pytest.mark.parametrize(
    ("residuals", "word"),
    [
        ([1.0] * 6, "settled"),
        ([4, 3, 2, 2, 2, 2, 1], "settled"),
        (1 - 0.5 ** np.arange(1, 20), "settled"),
        (np.arange(1, 9), "still grows"),
        (np.sqrt(np.arange(1, 9)), "still grows"),
        (1.5 ** np.arange(12), "diverges"),
        ([0.0] * 9, "settled"),
        # Noise about a level, of which the first third happens to be low or high.
        ([0.44, 0.69, 0.64, 0.59, 0.58, 0.56, 0.60, 0.60], "settled"),
        ([0.5, 0.5, 0.49, 0.5, 0.53, 0.56], "still grows"),
        ([1, 2, 3, 4, 5], "too few steps"),
        ([], "too few steps"),
    ],
)
def test_trends(residuals, word):
    assert residual_trend(list(residuals)) == word


def test_a_sketch_with_too_few_cells_diverges():
    (_, row) = s2sim.run("single-switch", workers=2, trace=TRACE, reducers=["s2:rows=1,columns=20"], steps=7).rows
    assert row.residual_trend == "diverges"
    assert row.steps[-1].error_so_far > 1


def test_a_trace_with_fewer_steps_is_refused():
    with pytest.raises(OptionError, match=r"--steps 8: trace synthetic.* has 7; s2sim list traces"):
        s2sim.run("fat-tree", workers=2, trace=TRACE, steps=8)


@pytest.mark.parametrize(("options", "said"), [({"steps": 0}, "at least 1"), ({"steps": 2.0}, "valid integer")])
def test_bad_numbers_are_refused(options, said):
    with pytest.raises(OptionError, match=said):
        s2sim.run("fat-tree", workers=2, trace=TRACE, **options)


@pytest.mark.parametrize("size", [{"scale_to": "1M"}, {"model": "gnmt-8"}])
def test_scaled_scripts_have_no_residuals_to_follow(size):
    with pytest.raises(OptionError, match="leave one of them out"):
        s2sim.run("fat-tree", workers=2, trace=TRACE, steps=2, **size)


def test_ctrl_c_keeps_the_rows_that_are_finished(monkeypatch):
    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(follow_rows, "run_steps", interrupted)
    result = s2sim.run("fat-tree", workers=2, trace=TRACE, reducers=["union"], steps=3, progress=ProgressWatcher())
    assert [row.option_string for row in result.rows] == ["dense", "union"]
    assert INTERRUPTED_NOTE in result.notes


@pytest.mark.slow
@pytest.mark.parametrize("text", ["topk:density=1,momentum=0.9,masking=false", "topk:density=1,gmc=0.9"])
def test_momentum_within_is_compared_with_momentum(text):
    """Where nothing is lost, what has been delivered is what plain training with momentum would have taken."""
    result = s2sim.run("ring", workers=2, trace="lstm-lm-steps", reducers=[text], steps=4)
    (row,) = (each for each in result.rows if not each.baseline)
    assert all(step.error_so_far < 1e-5 for step in row.steps)
    assert all(step.residual == 0 for step in row.steps)


def test_steps_of_a_warm_up_do_not_count():
    texts = ("dense", "topk:density=0.02,warmup=3", "topk:density=0.02,warmup=9")
    alone, followed = (
        {row.option_string: row for row in s2sim.run("fat-tree", **ASKED | {"reducers": texts}, steps=steps).rows}
        for steps in (1, 7)
    )
    row, longer = (followed[text] for text in texts[1:])
    assert [step.settled for step in row.steps] == [step >= 3 for step in range(7)]
    assert judged_time_s(row) == sorted(step.total_s for step in row.steps[3:])[1]
    # What was sent in a step of the warm-up is no time of one after it.
    assert max(step.total_s for step in row.steps[:3]) > judged_time_s(row)
    assert judged_time_s(longer) == longer.time_s.total == alone[texts[2]].time_s.total


def test_a_reducer_is_timed_with_the_feedback_that_it_needs():
    bare = ("topk:density=0.02", "powersgd", "onebit-sgd", "powersgd:h=2")
    trained = [f"{text}{',' if ':' in text else ':'}ef=true" for text in bare]
    found = {row.option_string: row for row in s2sim.run("fat-tree", **ASKED | {"reducers": (*bare, *trained)}).rows}
    for text, other in zip(bare, trained, strict=True):
        assert found[text].time_s == found[other].time_s
        assert found[text].error == found[other].error
    (left_out,) = s2sim.run("fat-tree", **ASKED | {"reducers": ("dense", "powersgd:ef=false")}).rows[1:]
    assert left_out.time_s.total < found["powersgd"].time_s.total


def test_ranks_that_go_on_alone_are_compared_over_a_period():
    texts = ("diloco:h=4,rate=1,momentum=0", "slowmo:h=3,momentum=0", "dense:h=4")
    for row in s2sim.run("fat-tree", **ASKED | {"reducers": texts}).rows:
        assert row.error.relative_l2 < 1e-6, row.option_string


def test_feedback_that_is_left_out_is_so_everywhere():
    texts = ("topk:density=0.02,ef=false", "topk:density=0.02")
    bare, fed = s2sim.run("fat-tree", **ASKED | {"reducers": ("dense", *texts)}, steps=4).rows[1:]
    assert (bare.feedback, fed.feedback) == ("no", "needed")
    assert [step.residual for step in bare.steps] == [None] * 4
    assert bare.steps[0].total_s == bare.time_s.total < fed.time_s.total
    one, other = (
        s2sim.run("fat-tree", **ASKED | {"reducers": ("dense", text)}).provenance["spec_sha256"] for text in texts
    )
    assert one != other
    with pytest.raises(OptionError, match="give it beside the patterns"):
        make_reducer("per-layer:a=topk:density=0.02;ef=false,*=fp16")


def test_a_warm_up_is_no_trend():
    text = "topk:density=0.02,warmup=5"
    row = s2sim.run("fat-tree", **ASKED | {"reducers": ("dense", text)}, steps=7).rows[1]
    assert row.steps[0].residual < 1e-6 < row.steps[6].residual
    assert row.residual_trend == residual_trend([step.residual for step in row.steps[5:]])
