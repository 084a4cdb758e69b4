"""The law of choice, over random rows and over the cases that it was made for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import s2sim
from s2sim.study.break_even.scan import Scan
from s2sim.study.compare.choice import WORTHWHILE, Candidate, choose, dominated
from s2sim.study.compare.judge import judge, rejected
from s2sim.study.compare.verdict import pays_text
from s2sim.study.measuring.result import Crossing

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
    choice, beaten = choose(field, max_error), dominated(field)
    recommended = [
        choice.exact,
        *([choice.instead] if choice.instead else []),
        *([choice.lossy] if choice.lossy else []),
    ]
    for each in recommended:
        assert each.rejected is None
        assert each.baseline or each.time_s * WORTHWHILE <= 1.0
        # What nothing tells apart may be taken for resting on less.
        if each.name in beaten and not each.baseline:
            better = next(other for other in field if other.name == beaten[each.name])
            assert better.time_s * WORTHWHILE > each.time_s
    if choice.exact.assumes is not None:
        assert choice.instead is not None
        assert choice.instead.assumes is None
    able = [each for each in field if each.rejected is None]
    exact_s = [each.time_s for each in able if each.exact or each.baseline]
    assert choice.exact.time_s <= WORTHWHILE * min(exact_s)
    if choice.lossy is not None and choice.lossy.assumes is None:
        assert choice.lossy.gains_on(choice.exact)
        gaining = [each for each in able if not (each.exact or each.baseline) and each.gains_on(choice.exact)]
        free = [each for each in gaining if each.assumes is None]
        if max_error is None:
            assert choice.lossy.loss == min(each.loss for each in free)
        else:
            assert choice.lossy.time_s <= WORTHWHILE * min(each.time_s for each in free)
    if choice.decision == "use":
        assert choice.best.time_s * choice.best.doubt < 1.0
    if choice.decision == "do not compress":
        assert all(each.time_s >= 1.0 for each in able)


@given(field=fields())
def test_who_comes_first_changes_nothing(field):
    one, other = choose(field, None), choose(field[::-1], None)
    assert one.decision == other.decision
    assert one.best.time_s == other.best.time_s


def test_an_error_needs_a_reason():
    """Never top-k at 0.69 while half precision at 0.0003 is 1.9 times as fast; unless somebody allows that error."""
    half, topk = Candidate("fp16", 1 / 1.9, 3e-4, exact=False), Candidate("topk", 1 / 3, 0.69, exact=False)
    choice = choose([DENSE, half, topk], None)
    assert (choice.best, choice.faster) == (half, topk)
    assert choose([DENSE, half, topk], 0.7).best == topk
    slower = replace(topk, time_s=0.9)
    choice = choose([DENSE, half, slower], None)
    assert (choice.best, choice.faster) == (half, None)


def test_a_gain_that_the_model_cannot_tell_is_undecided():
    close = Candidate("union", 0.995, 0.0, exact=True)
    assert choose([DENSE, close], None).decision == "undecided"
    doubtful = Candidate("union", 0.7, 0.0, exact=True, doubt=1.5)
    assert choose([DENSE, doubtful], None).decision == "undecided"
    assert choose([DENSE, replace(doubtful, doubt=1.2)], None).decision == "use"


@pytest.fixture(scope="module")
def rows():
    return s2sim.run(
        "fat-tree", workers=8, trace="lstm-lm", reducers=["union", "s2:rows=3,cells=1", "fp16"], break_even=False
    ).rows


def test_what_is_worse_than_zeros_on_one_layer_is_out(rows):
    sketch = next(row for row in rows if row.reducer == "s2")
    layer, error = sketch.worst_layer
    assert error > 1
    assert sketch.error_per_layer[layer].relative_l2 == error
    assert rejected(sketch, None).startswith("worse than zeros")
    better = {name: replace_error(item, min(item.relative_l2, 0.9)) for name, item in sketch.error_per_layer.items()}
    calm = replace(
        sketch,
        error=replace_error(sketch.error, 0.5),
        error_compressed=replace_error(sketch.error_compressed, 0.5),
        error_per_layer=better,
    )
    assert rejected(calm, None) is None
    assert rejected(calm, 0.1) == "error over 0.1"
    assert rejected(replace(calm, residual_trend="diverges"), None) == "residuals diverge"


def replace_error(error, relative_l2):
    return error._replace(relative_l2=relative_l2)


def test_rows_are_judged_by_what_the_verdict_is_about(rows):
    for row in judge(rows, None):
        assert row.judgement.time_s == row.total_s
        assert row.judgement.speedup == pytest.approx(row.speedup_vs_dense)


def test_with_steps_the_median_one_with_feedback_decides():
    """Top-k that keeps residuals is slower than dense here, though its first step without them is faster."""
    asked = {"workers": 4, "trace": "lstm-lm-steps", "reducers": ["topk:density=0.01"], "gpu": "h100"}
    where = {"overrides": ("nvlink.rate=1500Gbps",), "library": "ideal"}
    result = s2sim.run("fat-tree", **asked, **where, steps=5)
    topk = result.rows[1]
    times_s = sorted(step.total_s for step in topk.steps)
    assert topk.judgement.time_s == times_s[2] > topk.total_s
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
    assert slower.rows[1].judgement.speedup == pytest.approx(1, abs=2e-3)


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
    assert pays_text("x", Scan("nic.rate", found, {"x": (first, last)})) == expected
    assert pays_text("y", Scan("nic.rate", found, {"x": (first, last)})) is None


def test_an_estimate_that_decides_is_named():
    """Under the ideal library, faster launches let owners win over the union of rows known before."""
    result = s2sim.run("fat-tree", workers=16, library="ideal", thorough=False)
    flips = {(flip.constant, flip.best) for flip in result.verdict.flips}
    assert ("kernel_launch", "owner-reduce") in flips
    assert "If a kernel launch took 2 us (taken: 5 us, an estimate): owner-reduce" in result.verdict.lines[2]
    named = {result.verdict.best, result.verdict.without_assumption}
    assert set(result.verdict.pays) >= named - {"dense"}
