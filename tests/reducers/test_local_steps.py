"""Local SGD: what a reducer does once in several steps, and that no row takes the others for free."""

import numpy as np
import pytest

import s2sim
from s2sim.errors import OptionError, S2SimError
from s2sim.experiment.rate_curve import rate_curves
from s2sim.experiment.spec import RunSpec
from s2sim.reducers.registry import make_reducer, option_string, with_feedback
from s2sim.reducers.run import reduce_once, reduce_steps, run_reducer
from s2sim.reducers.script import Post, Wait, join_recordings
from s2sim.testing.reducer_properties import example_gradients

RANKS, SIZE = 4, 64


def arrays_of(step):
    return [np.random.default_rng([step, rank]).standard_normal(SIZE).astype(np.float32) for rank in range(RANKS)]


def test_what_is_exchanged_is_the_sum_of_the_steps():
    steps = [arrays_of(step) for step in range(7)]
    found = reduce_steps("dense:h=3", steps)
    for step, result in enumerate(found):
        if step % 3 == 2:
            expected = np.mean(np.sum(steps[step - 2 : step + 1], axis=0, dtype=np.float64), axis=0)
            np.testing.assert_allclose(result.values[0], expected, atol=1e-6)
            # 8n(P-1)/P in the step that exchanges, and nothing in the others.
            assert result.bytes_sent == [8 * SIZE * (RANKS - 1) // RANKS] * RANKS
        else:
            assert not any(value.any() for value in result.values)
            assert result.bytes_sent == [0] * RANKS


def test_local_sgd_is_plain_sgd_whose_models_are_averaged():
    rate, steps = 0.1, [arrays_of(step) for step in range(4)]
    models = np.zeros((RANKS, SIZE))
    shared = np.zeros(SIZE)
    for step, (arrays, found) in enumerate(zip(steps, reduce_steps("dense:h=2", steps), strict=True)):
        models -= rate * np.array(arrays)
        shared -= rate * found.values[0]
        if step % 2:
            models[:] = models.mean(axis=0)
            np.testing.assert_allclose(models[0], shared, atol=1e-6)


def test_residuals_see_the_sums():
    steps = [arrays_of(step) for step in range(4)]
    found = reduce_steps("topk:density=0.1,ef=true,h=2", steps)
    summed = [list(np.add(steps[at], steps[at + 1])) for at in (0, 2)]
    for late, plain in zip(found[1::2], reduce_steps("topk:density=0.1,ef=true", summed), strict=True):
        assert np.array_equal(late.values[0], plain.values[0])
        assert late.bytes_sent == plain.bytes_sent


def test_post_local_sgd_exchanges_every_step_at_first():
    found = reduce_steps("dense:h=2,after=3", [arrays_of(step) for step in range(8)])
    assert [bool(step.bytes_sent[0]) for step in found] == [True] * 3 + [False, True, False, True, False]
    # A run tells of what it comes to.
    ran = run_reducer(make_reducer("dense:h=2,after=3"), example_gradients(RANKS))
    assert (ran.recording.steps, len(ran.recording.calls)) == (2, 1)


def test_one_reduction_is_no_period():
    with pytest.raises(S2SimError, match="once in 3 steps"):
        reduce_once("dense:h=3", arrays_of(0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dense:h=1", "2 steps or more"),
        ("dense:h=2,after=-1", r"after=-1 is not in \[0, inf\)"),
        ("union:prefetch=true,h=2", "cannot be about the sum"),
        ("dense:after=5", "goes with h=H"),
        ("dense:h=often", "not a whole number"),
    ],
)
def test_what_changes_nothing_is_refused(text, said):
    with pytest.raises(OptionError, match=said):
        make_reducer(text)


def test_option_strings_and_traits():
    made = make_reducer("topk:h=4,ef=true,density=0.1,after=2")
    assert option_string(made) == "topk:density=0.1,ef=true,h=4,after=2"
    assert made.options().items() >= {"density": 0.1, "ef": True, "h": 4, "after": 2}.items()
    assert (made.period, made.warmup_steps) == (4, 2)
    assert made.traits.estimates == "weights"
    assert not make_reducer("dense:h=2").traits.lossless
    assert make_reducer("signsgd-vote:h=2").traits.estimates == "sign"
    assert make_reducer("dense:h=2").traits.formula.endswith("/2")


def test_feedback_goes_inside():
    assert with_feedback(make_reducer("topk:h=2")) == make_reducer("topk:ef=true,h=2")
    # `train` tells what it added, by whether it is another one.
    lossless = make_reducer("fp16:h=2")
    assert with_feedback(lossless) is lossless


def test_joined_scripts_name_their_own_calls():
    one = run_reducer(make_reducer("union"), example_gradients(2)).recording
    two = join_recordings([one, one])
    count = len(one.calls)
    assert (two.steps, two.calls) == (2, one.calls * 2)
    posts = [step.call for step in two.scripts[0] if isinstance(step, Post)]
    assert posts == list(range(2 * count))
    waits = [call for step in two.scripts[0] if isinstance(step, Wait) for call in step.calls]
    assert sorted(waits) == posts


# Rows of runs.

TRACE = "lstm-lm-steps"


def row_of(text, **more):
    result = s2sim.run("ring", workers=4, reducers=[text], **({"trace": TRACE} | more))
    return result, next(row for row in result.rows if not row.baseline)


def test_a_row_is_the_mean_over_a_period():
    result, row = row_of("dense:h=10")
    base = next(each for each in result.rows if each.baseline)
    assert row.period == 10
    assert row.ratio == pytest.approx(10)
    assert row.bytes_sent_per_rank == -(-base.bytes_sent_per_rank // 10)
    # The difference of the models is one pass more.
    assert base.time_s.total / 10 < row.time_s.total < 1.01 * base.time_s.total / 10
    assert row.lower_bound_s == pytest.approx(base.lower_bound_s / 10)
    assert not row.exact
    assert row.judgement.rejected
    assert result.verdict.decision == "do not compress"
    assert any("the trace's first 10 steps" in note for note in result.notes)
    assert "Time and bytes are means over 10 steps: dense:h=10." in str(result)


def test_a_sketch_has_no_bound_for_several_steps():
    _, row = row_of("s2:h=2")
    assert row.error_bound is None


@pytest.mark.slow
def test_too_few_steps_are_taken_in_turn_and_said_so():
    notes = " ".join(row_of("dense:h=30")[0].notes)
    assert "the gradients of 20 steps in turn, as there are no more" in notes
    small = "synthetic:density=0.05,overlap=0.5,rows=600,width=4,dense=400,steps=1"
    notes = " ".join(row_of("dense:h=3", trace=small)[0].notes)
    assert "the same gradients in all of them" in notes


def test_a_run_says_that_it_is_past_the_first_steps():
    for text, steps in (("dense:h=2,after=5", 5), ("topk:warmup=3,epoch=4", 12)):
        notes = row_of(text)[0].notes
        assert f"{text}: as after its first {steps} steps, which go otherwise" in notes


@pytest.mark.slow
def test_with_steps_the_mean_decides():
    _, row = row_of("topk:h=3", steps=7)
    assert [step.bytes_sent_per_rank > 0 for step in row.steps] == [False, False, True] * 2 + [False]
    assert row.judgement.time_s == pytest.approx(sum(step.total_s for step in row.steps[-6:]) / 6)
    assert row.judgement.time_s > 0
    # What is not exchanged yet is not lost.
    assert row.steps[5].error_so_far < row.steps[4].error_so_far


def test_other_rates_count_every_step():
    spec = RunSpec(topology="ring", workers=(4,), trace=TRACE, reducers=("topk:h=2", "topk"))
    speedups = rate_curves(spec, [1e7, 1e12]).speedups
    # At a low rate all is bytes: half of those of every step.
    assert speedups["topk:h=2"][0] == pytest.approx(2 * speedups["topk"][0], rel=0.01)
    # At a high one launches are what is left, half of them and one addition for two steps.
    assert speedups["topk"][1] < speedups["topk:h=2"][1] < 2 * speedups["topk"][1]


@pytest.mark.slow
def test_a_rank_that_is_late_in_every_step_is_so_here_too():
    _, late = row_of("dense:h=10", faults=["slow-rank:rank=1,delay=1ms"])
    _, row = row_of("dense:h=10")
    assert late.time_s.total == pytest.approx(row.time_s.total + 1e-3)
