"""The law of choice, over random rows and over the cases that it was made for."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import s2sim
from s2sim.experiment.break_even import BreakEvenScan
from s2sim.experiment.choice import (
    WORTHWHILE,
    Candidate,
    candidates_of,
    choose,
    find_dominated,
    least_saving_s,
    rejected,
)
from s2sim.experiment.judgement import Compared, is_offered, judge, longest_offered_s
from s2sim.experiment.row_parts import Crossing, Extrapolation, Transfer
from s2sim.experiment.verdict import pays_text, with_reason

# With which the examples of this file were made.
LATENCIES = ("nvlink.latency=300ns", "nic.latency=2.2us")
DENSE = Candidate("dense", 1.0, 0.0, exact=True, baseline=True)


@st.composite
def fields(draw):
    """Draw what may be compared: some rounded times, so that there are ties, and dense among them."""
    found = [replace(DENSE, exact=draw(st.booleans()), error=draw(st.sampled_from([0.0, 1e-3])))]
    for number in range(draw(st.integers(0, 7))):
        exact = draw(st.booleans())
        found.append(
            Candidate(
                name=str(number),
                time_s=draw(st.sampled_from([0.2, 0.5, 0.502, 0.992, 0.999, 1.0, 1.5]) | st.floats(0.01, 2)),
                error=0.0 if exact else draw(st.sampled_from([3e-4, 0.05, 0.69]) | st.floats(1e-5, 0.99)),
                exact=exact,
                assumes=draw(st.sampled_from([None, None, "rows are known"])),
                rejected=draw(st.sampled_from([None, None, None, "worse than zeros"])),
                doubt=draw(st.sampled_from([1.0, 1.0, 1.3])),
                feedback=not exact and draw(st.booleans()),
            )
        )
    return found


@given(field=fields(), max_error=st.sampled_from([None, 0.1, 1e-3]))
def test_nothing_is_recommended_that_should_not_be(field, max_error):
    if max_error is not None:
        field = [
            replace(each, rejected="error over") if each.loss > max_error and not each.baseline else each
            for each in field
        ]
    choice, beaten = choose(field, max_error), find_dominated(field)
    several = (choice, *([choice.without] if choice.without else []))
    for each in {item for one in several for item in (one.exact, one.lossy) if item is not None and not item.baseline}:
        assert each.rejected is None
        assert each.name not in beaten
        assert each.time_s * WORTHWHILE <= 1.0
        assert each.time_s * each.doubt < 1.0
    if choice.best.assumes is not None:
        assert choice.without == choose([each for each in field if each.assumes is None], max_error)
        assert choice.without.best.assumes is None
    able = [each for each in field if each.rejected is None]
    exact_s = min(each.time_s for each in able if each.exact or each.baseline)
    if not choice.exact.baseline:
        assert choice.exact.time_s <= WORTHWHILE * exact_s
    if choice.lossy is not None:
        assert choice.lossy.time_s * WORTHWHILE <= exact_s
        gaining = [each for each in able if not (each.exact or each.baseline) and each.time_s * WORTHWHILE <= exact_s]
        sure = [each for each in gaining if each.time_s * each.doubt < 1.0 and each.name not in beaten]
        rivals = [each for each in sure if each.assumes is None] or sure
        if max_error is None:
            assert choice.lossy.loss == min(each.loss for each in rivals)
        else:
            assert choice.lossy.time_s <= WORTHWHILE * min(each.time_s for each in rivals)
    if choice.decision == "do not compress":
        assert all(each.time_s >= 1.0 for each in able)
    assert (choice.decision == "use") == (not choice.best.baseline)


def test_a_lossy_baseline_is_not_second_to_itself():
    dense = replace(DENSE, name="dense:dtype=bf16", exact=False, error=3e-3)
    slower = Candidate("fp16", 1.2, 4e-4, exact=False)
    assert choose([dense, slower], None).runner_up == slower
    assert choose([dense], None).runner_up is None


@pytest.mark.slow
@given(field=fields())
def test_who_comes_first_changes_nothing(field):
    one, other = choose(field, None), choose(field[::-1], None)
    assert one.decision == other.decision
    assert one.best.time_s == other.best.time_s


def test_an_error_needs_a_reason():
    """Never top-k at 0.69 while half precision at 0.0003 is 1.9 times as fast; unless somebody allows that error."""
    half, topk = Candidate("fp16", 1 / 1.9, 3e-4, exact=False), Candidate("topk", 1 / 3, 0.69, exact=False)
    choice = choose([DENSE, half, topk], None)
    assert (choice.best, choice.faster) == (half, None)
    assert choose([DENSE, half, topk], 0.7).best == topk
    # A smaller error is at least offered, if that is sure.
    small = replace(topk, error=0.4)
    assert choose([DENSE, half, small], None).faster == small
    assert choose([DENSE, half, replace(small, error_range=(0.1, 1.6))], None).faster is None
    slower = replace(topk, time_s=0.9)
    choice = choose([DENSE, half, slower], None)
    assert (choice.best, choice.faster) == (half, None)


def test_a_gain_that_the_model_cannot_tell_is_undecided():
    close = Candidate("union", 0.995, 0.0, exact=True)
    assert choose([DENSE, close], None).decision == "undecided"
    doubtful = Candidate("union", 0.7, 0.0, exact=True, doubt=1.5)
    assert choose([DENSE, doubtful], None).decision == "undecided"
    assert choose([DENSE, replace(doubtful, doubt=1.2)], None).decision == "use"
    # Where hardly anything is exposed there is no such gain, but what is doubtful stays so.
    hidden = replace(DENSE, unbeatable=True)
    assert choose([hidden, close], None).decision == "do not compress"
    assert choose([hidden, doubtful], None).decision == "undecided"


def test_an_error_is_no_price_for_what_is_exact_and_as_fast():
    close, lossy = Candidate("union", 0.993, 0.0, exact=True), Candidate("topk", 0.989, 0.04, exact=False)
    assert choose([DENSE, close, lossy], None).decision == "undecided"
    assert choose([DENSE, close, replace(lossy, time_s=0.98)], None).best.name == "topk"


def test_where_the_exact_one_is_doubtful_a_sure_one_with_an_error_is_used_and_the_doubt_told():
    """Half precision sends the same of any gradients; what a union sends of another model's is a guess."""
    union, half = Candidate("union", 0.7, 0.0, exact=True, doubt=3.0), Candidate("fp16", 0.52, 3e-4, exact=False)
    choice = choose([DENSE, union, half], None)
    assert (choice.decision, choice.best, choice.doubtful) == ("use", half, union)
    # Nor is a gain that is there given up for a larger one that may be none.
    slower = Candidate("gather-rows", 0.75, 0.0, exact=True, doubt=1.1)
    choice = choose([DENSE, union, slower], None)
    assert (choice.decision, choice.best, choice.doubtful) == ("use", slower, union)
    worse = replace(half, time_s=0.8)
    assert choose([DENSE, union, worse], None).best is worse
    assert "fp16" not in find_dominated([DENSE, union, worse])


def test_where_an_assumption_fails_the_choice_is_made_anew():
    early = Candidate("prefetch", 0.3, 0.0, exact=True, assumes="rows are known")
    union, topk = Candidate("union", 0.5, 0.0, exact=True), Candidate("topk", 0.4, 0.04, exact=False)
    choice = choose([DENSE, early, union, topk], None)
    assert (choice.best, choice.lossy) == (early, None)
    assert (choice.without.best, choice.without.lossy) == (union, topk)
    assert choose([DENSE, early, topk], None).without.best == topk
    assert choose([DENSE, early], None).without.decision == "do not compress"
    assert set(choice.named()) == {early, union, topk}


def result_of(*, max_error=None, **options):
    chosen = {"topology": "fat-tree", "workers": 16, "break_even": False, "max_error": max_error} | options
    return s2sim.run(chosen.pop("topology"), **chosen)


@pytest.mark.slow
def test_the_verdict_tells_what_to_do_where_an_assumption_fails():
    reducers = ["union", "union:prefetch=true", "topk:density=0.01"]
    first, second, _ = result_of(reducers=reducers, library="nccl:timing=wire", overrides=LATENCIES).verdict.lines
    assert first == (
        "Use union:prefetch=true (exact) if rows are known before forward, else union, or topk:density=0.01 with "
        "error feedback (error 0.044 in one step) if training confirms it."
    )
    assert second == (
        "Communication 1.57 ms -> 339 us: 4.63x (else 3.58x, topk:density=0.01 3.96x); 16 workers, nccl:timing=wire "
        "on a100."
    )
    verdict = result_of(reducers=reducers, max_error=0.1).verdict
    assert verdict.lines[0].endswith(
        "or topk:density=0.01 with error feedback (error 0.044 in one step, allowed 0.1) if training confirms it."
    )
    assert (verdict.without_assumption, verdict.best_lossy) == ("union", "topk:density=0.01")
    verdict = result_of(reducers=reducers[1:], max_error=1e-3).verdict
    assert verdict.lines[0].endswith("if rows are known before forward, else do not compress.")


@pytest.mark.slow
def test_each_way_of_being_undecided_has_its_reason():
    small = result_of(reducers=["union"], compute="200ms").verdict
    assert small.lines[0] == "Undecided: union gains 0.6%, which is too little for this model to tell."
    far = result_of(topology="torus", workers=16, trace="ncf", scale_to="100M", reducers=["union"]).verdict
    assert far.lines[0] == "Undecided: union gains 2.16x, less than the gradients it stands on may be off."
    assert (far.decision, far.best) == ("undecided", "dense")
    assert far.lines[2] == "Only a measurement decides."


@pytest.mark.slow
def test_what_gpus_compute_is_not_in_doubt():
    options = {"topology": "torus", "workers": 8, "trace": "ncf", "scale_to": "100M", "reducers": ["union"]}
    communication = candidates_of(result_of(**options).rows, None)[1].doubt
    iteration = candidates_of(result_of(**options, compute="1s").rows, None)[1].doubt
    assert 1 < iteration < 1.1
    assert communication > 2


@pytest.fixture(scope="module")
def rows():
    return s2sim.run(
        "fat-tree", workers=8, trace="lstm-lm", reducers=["union", "s2:rows=1,cells=0.5", "fp16"], break_even=False
    ).rows


def test_what_is_worse_than_zeros_on_one_layer_is_out(rows):
    sketch = next(row for row in rows if row.name == "s2")
    layer, error = sketch.error_worst_layer
    assert error > 1
    assert sketch.error_per_layer[layer].relative_l2 == error
    assert rejected(sketch, None) == "worse than zeros"
    half = replace_error(sketch.error, 0.5)
    loud = replace(sketch, error=half, error_compressed=half)
    assert rejected(loud, None) == f"worse than zeros on {layer}"
    nearly = replace(loud, error_per_layer={layer: replace_error(sketch.error_per_layer[layer], 1.005)})
    assert rejected(nearly, None) is None
    better = {name: replace_error(item, min(item.relative_l2, 0.9)) for name, item in sketch.error_per_layer.items()}
    calm = replace(loud, error_per_layer=better)
    assert rejected(calm, None) is None
    assert rejected(calm, 0.1) == "error over 0.1"
    assert rejected(replace(calm, residual_trend="diverges"), None) == "residuals diverge"


def test_what_feedback_delivers_later_is_named_whatever_it_loses_in_one_step():
    dense, half = Candidate("dense", 1.0, 0.0, exact=True, baseline=True), Candidate("fp16", 0.6, 3e-4, exact=False)
    for fed_back in (True, False):
        low_rank = Candidate("powersgd", 0.3, 0.93, exact=False, error_range=(0.2, 3.0), feedback=fed_back)
        choice = choose([dense, half, low_rank], None)
        assert (choice.best, choice.faster) == (half, low_rank if fed_back else None)


def test_of_two_with_feedback_one_that_saves_half_of_the_other_is_not_named_for_its_one_step():
    low, high = (Candidate(f"powersgd:rank={r}", 0.1, e, exact=False, feedback=True) for r, e in ((4, 0.9), (32, 0.6)))
    assert choose([DENSE, low, replace(high, time_s=0.95)], None).best == low
    assert choose([DENSE, low, near := replace(high, time_s=0.3)], None).best == near
    assert least_saving_s([low, high], DENSE) == pytest.approx(0.45)


@pytest.mark.parametrize(("loss", "beaten"), [(0.12, False), (3e-4, True)])
def test_one_step_is_no_reason_against_feedback_but_for_what_hardly_loses(loss, beaten):
    """An int8 that is as fast loses less in one step, and who knows in the next; an fp16 hardly loses at all."""
    half = Candidate("bf16", 0.7, 1e-3, exact=False)
    quick = Candidate("quick", 0.5, loss, exact=False, error_range=None if beaten else (loss, 6 * loss))
    own = Candidate("powersgd", 0.501, 0.93, exact=False, feedback=True)
    assert ("powersgd" in find_dominated([DENSE, half, quick, own])) == beaten
    assert choose([DENSE, half, quick, own], None).faster == (None if beaten else own)


def test_a_layer_is_worse_than_zeros_by_more_than_its_error_may_be_off(rows):
    half = replace_error(rows[2].error, 0.5)
    row = replace(rows[2], lossless=False, error=half, error_compressed=half)
    name = next(iter(row.error_per_layer))
    off = Transfer("ncf", 8, 0.0, 0.0, 3.0)  # Errors may be a fourth
    mark = Extrapolation("law", 8, 8, 1, 2, None, "half", 0.0, 0.0, (off,))
    for layer_error, known, unknown in ((3.9, False, True), (4.2, False, False), (1.2, False, True), (0.9, True, True)):
        loud = replace(row, error_per_layer={name: replace_error(row.error_per_layer[name], layer_error)})
        assert (rejected(loud, None) is None) == known
        assert (rejected(replace(loud, extrapolated=mark), None) is None) == unknown


def test_what_is_as_bad_as_zeros_needs_steps_with_feedback(rows):
    some = rows[1]
    row = replace(some, lossless=False, error=replace_error(some.error, 0.9949))
    assert rejected(row, None) is None
    for field in ("error", "error_compressed"):
        hardly = replace(row, **{field: replace_error(getattr(row, field), 0.995)})
        assert rejected(hardly, None) == "as bad as zeros"
        assert rejected(replace(hardly, residual_trend="settled"), None) is None
        assert rejected(replace(hardly, residual_trend="diverges"), None) == "residuals diverge"


def replace_error(error, relative_l2):
    return error._replace(relative_l2=relative_l2)


def test_rows_are_judged_by_what_the_verdict_is_about(rows):
    for row in judge(rows, None):
        assert row.judgement.time_s == row.time_s.total
        assert row.judgement.speedup == pytest.approx(row.speedup_vs_dense)


@pytest.mark.slow
def test_with_steps_the_median_one_with_feedback_decides():
    """Top-k that keeps residuals is slower than dense here, though its first step without them is faster."""
    asked = {"workers": 4, "trace": "lstm-lm-steps", "reducers": ["topk:density=0.01"], "gpu": "h100"}
    where = {"overrides": ("nvlink.rate=1500Gbps",), "library": "ideal"}
    result = s2sim.run("fat-tree", **asked, **where, steps=5)
    topk = result.rows[1]
    times_s = sorted(step.total_s for step in topk.steps)
    assert topk.judgement.time_s == times_s[2] > topk.time_s.total
    assert "median of 5 steps with feedback" in result.verdict.lines[1]
    # The rates at which it pays are those of that step too.
    (crossing,) = result.verdict.break_even
    slower = s2sim.run(
        "fat-tree",
        **asked,
        library="ideal",
        overrides=(f"nvlink.rate={crossing.at_Bps!r}B/s",),
        steps=5,
        break_even=False,
    )
    assert slower.rows[1].judgement.speedup == pytest.approx(WORTHWHILE, abs=2e-3)


@pytest.mark.parametrize(
    ("crossings", "first", "expected"),
    [
        ([], True, "pays at any nic.rate from 10 Mbps to 3.2 Tbps"),
        ([], False, "pays at no nic.rate from 10 Mbps to 3.2 Tbps"),
        ([1e9], True, "pays below 8 Gbps of nic.rate"),
        ([1e9], False, "pays above 8 Gbps of nic.rate"),
        ([1e9, 2e9, 4e9], True, "pays below 8 Gbps and from 16 Gbps to 32 Gbps of nic.rate"),
        ([1e9, 2e9, 4e9], False, "pays from 8 Gbps to 16 Gbps and above 32 Gbps of nic.rate"),
    ],
)
def test_rates_are_told_however_many_crossings_there_are(crossings, first, expected):
    last = first if len(crossings) % 2 == 0 else not first
    found = tuple(Crossing("x", "nic.rate", "below", at_Bps) for at_Bps in crossings)
    assert pays_text("x", BreakEvenScan("nic.rate", found, {"x": (first, last)})) == expected
    assert pays_text("y", BreakEvenScan("nic.rate", found, {"x": (first, last)})) is None
    here = BreakEvenScan("nic.rate", found, {"x": (first, last)}, same_buckets=True)
    assert pays_text("x", here) == f"{expected} in these buckets"


@pytest.mark.slow
def test_an_estimate_that_decides_is_named():
    """Under the ideal library, faster launches let owners win over the union of rows known before."""
    result = s2sim.run("fat-tree", workers=16, library="ideal", overrides=LATENCIES, thorough=False)
    flips = {(flip.constant, flip.best) for flip in result.verdict.flips}
    assert ("kernel_launch", "owner-reduce") in flips
    assert "kernel launch of 2 us (5 us is an estimate) would make it owner-reduce; " in result.verdict.lines[2]
    named = {result.verdict.best, result.verdict.without_assumption}
    assert set(result.verdict.pays) >= named - {"dense"}


def test_an_error_of_nothing_leaves_what_is_exact():
    """Fixed-point cells round: no error that a limit is set for."""
    result = result_of(workers=8, reducers=["union", "fp16", "s2-exact"], max_error=0.0)
    over = {row.reducer: row.judgement.rejected for row in result.rows}
    assert over == {"dense": None, "union": None, "fp16": "error over 0", "s2-exact": None}
    assert result.verdict.best == "union"
    assert "fp16" not in result.verdict.lines[0]


def test_errors_are_compared_as_they_are_printed():
    dense = Candidate("dense", 2.0, 0.0, True, baseline=True)
    slower, quicker = Candidate("slower", 1.5, 2.301e-4, False), Candidate("quicker", 1.4, 2.304e-4, False)
    assert choose([dense, slower, quicker], None).best is quicker


def test_an_error_that_may_be_above_what_is_allowed_is_a_condition():
    one = Candidate("int8", 1.0, 0.05, False, error_range=(0.02, 0.3))
    allowed = "int8 (error 0.02 to 0.3, allowed 0.1)"
    assert with_reason(one, 0.1) == f"{allowed} if its error on your gradients is at most 0.1"
    assert with_reason(replace(one, error_range=(0.02, 0.09)), 0.1) == "int8 (error 0.02 to 0.09, allowed 0.1)"


@given(
    st.lists(
        st.tuples(st.integers(900, 1100), st.sampled_from([0.0, 0.001, 0.1, 0.6]), st.booleans(), st.booleans()),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([None, 0.2]),
)
def test_the_time_that_would_change_an_answer_is_that_of_the_choice(drawn, max_error):
    """No longer time of a grid makes the choice offer it, and the one that is said does."""
    able = [Candidate("dense", 1000.0, 0.0, exact=True, baseline=True)]
    for at, (time_s, error, feedback, doubted) in enumerate(drawn):
        over = "error over 0.2" if max_error is not None and error > max_error else None
        more = {"feedback": feedback and error > 0, "doubt": 1.05 if doubted else 1.0, "rejected": over}
        able.append(Candidate(f"{at}", float(time_s), error, exact=error == 0, **more))

    def offered(each, time_s):
        changed = [replace(each, time_s=time_s) if other is each else other for other in able]
        return is_offered(each, choose(changed, max_error))

    for each in able[1:]:
        if each.rejected is None and not offered(each, each.time_s):
            found, _ = longest_offered_s(each, Compared(able, choose(able, max_error), max_error, lambda _: able))
            assert found is None or offered(each, found * (1 - 1e-9))
            grid = [time_s for time_s in np.arange(each.time_s, 800, -0.5).tolist() if offered(each, time_s)]
            assert max(grid, default=0.0) <= (found or 0.0)
