"""Verdicts on iterations say on which overlap they rest, and when dense hides all that could be gained."""

from dataclasses import replace

import pytest

import s2sim
from s2sim.experiment.choice import candidates_of, exposed_share
from s2sim.experiment.judgement import judge
from s2sim.experiment.verdict import VerdictContext, give_verdict

from .conftest import iterating

KNOWN = VerdictContext("nccl", compute="v100 batch 32")
SMALL = "synthetic:density=0.05,overlap=0.5,rows=600,width=4,dense=400"


def verdict_of(*rows, known=KNOWN):
    return give_verdict(judge(rows, None), known)


def test_the_verdict_is_on_iterations_and_names_the_overlap():
    verdict = verdict_of(iterating("dense", exposed=0.03), iterating("fp16", exposed=0.012))
    assert verdict.decision == "use"
    assert verdict.lines[1] == (
        "Iteration 388 ms -> 370 ms: 1.05x; 64 workers, nccl, ddp:bucket=25MiB in 20 buckets, v100 batch 32."
    )


def test_codec_beside_compute_is_told():
    rows = [iterating("dense", exposed=0.03), iterating("fp16", exposed=0.012)]
    rows = [replace(row, iteration=replace(row.iteration, streams=2)) for row in rows]
    assert "in 20 buckets, codec beside compute, v100" in verdict_of(*rows).lines[1]


def test_dense_that_hides_behind_backward_is_not_to_be_beaten():
    dense = iterating("dense", exposed=0.0, hidden=0.2, waiting=0.0)
    for fp16 in (iterating("fp16", codec=0.002, exposed=0.0, waiting=0.0), replace(dense, reducer="fp16")):
        verdict = verdict_of(dense, replace(fp16, baseline=False))
        assert verdict.decision == "do not compress"
        assert verdict.lines[0] == "Do not compress: dense hides 100% of its communication behind backward."


def test_a_gain_too_small_to_tell_is_no_doubt_where_nothing_is_left_to_gain():
    rows = iterating("dense", exposed=0.002, hidden=0.2, waiting=0.0), iterating("fp16", exposed=0.001, waiting=0.0)
    assert candidates_of(rows, None)[0].unbeatable
    assert exposed_share(rows[0]) == pytest.approx(0.002 / 0.358)
    verdict = verdict_of(*rows)
    assert verdict.decision == "do not compress"
    assert "hides 99% of its communication behind backward, and 0.6% of an iteration" in verdict.lines[0]


def test_what_is_left_to_gain_is_no_less_than_a_row_gains_and_counts_none_that_is_rejected():
    dense = iterating("dense", exposed=0.002, hidden=0.2, waiting=0.0)
    # Compute that communication slows less is a gain beside what is exposed; 3 ms of 358 are 0.8 %.
    quicker = iterating("fp16", exposed=0.0, waiting=-0.001)
    assert "and 0.8% of an iteration is left to gain" in verdict_of(dense, quicker).lines[0]
    rejected = replace(quicker, estimates="weights")
    assert "and 0.6% of an iteration is left to gain" in verdict_of(dense, rejected).lines[0]


def test_where_much_is_exposed_a_small_gain_stays_undecided():
    verdict = verdict_of(iterating("dense", exposed=0.02, hidden=0.2), iterating("fp16", exposed=0.0199))
    assert verdict.decision == "undecided"
    assert verdict.lines[0].endswith("; dense hides 91% of its communication behind backward.")


def test_what_is_slower_although_dense_is_exposed_is_not_used():
    rows = iterating("dense", exposed=0.02, hidden=0.2), iterating("fp16", codec=0.05, exposed=0.01)
    verdict = verdict_of(*rows, known=replace(KNOWN, behind="compute"))
    assert verdict.lines[0] == (
        "Do not compress: dense hides 91% of its communication behind compute, and nothing with an acceptable error is "
        "faster."
    )


def test_compute_that_is_only_added_overlaps_with_nothing():
    result = s2sim.run("fat-tree", workers=2, trace=SMALL, reducers=["union"], compute="5ms", break_even=False)
    assert "5 ms of compute without overlap" in result.verdict.lines[1]


@pytest.mark.slow
def test_a_run_of_a_profile_tells_its_gpu_batch_and_what_hides():
    result = s2sim.run(
        "dgx-a100", workers=8, profile="resnet-50", discipline="ddp", reducers=["fp16"], break_even=False
    )
    assert result.verdict.decision == "do not compress"
    assert "of its communication behind backward" in result.verdict.lines[0]
    assert "ddp in 5 buckets, a100 bf16 batch 128" in result.verdict.lines[1]
    shown = s2sim.run(
        "dgx-a100", workers=8, profile="resnet-50", discipline="two-priorities", reducers=["fp16"], break_even=False
    )
    assert "behind compute" in shown.verdict.lines[0]
