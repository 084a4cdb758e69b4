"""What all reducers are compared with: the first dense, in the type that was asked for."""

from __future__ import annotations

import pytest

import s2sim

SMALL = "synthetic:density=0.05,overlap=0.5,rows=20000,width=8,dense=4000"


def run(*reducers, **options):
    return s2sim.run("fat-tree", workers=16, trace=SMALL, reducers=reducers, **options)


def test_half_precision_gains_nothing_over_gradients_in_bf16():
    result = run("dense:dtype=bf16", "fp16")
    dense, half = result.rows
    assert (dense.speedup_vs_dense, dense.ratio, half.ratio) == (1.0, 1.0, 1.0)
    # The same bytes, and two casts on top.
    assert half.time_s.total == pytest.approx(dense.time_s.total + half.time_s.encode + half.time_s.decode, rel=1e-9)
    assert 1e-4 < half.error.relative_l2 * 4 < dense.error.relative_l2 < 4e-3
    assert result.verdict.decision == "do not compress"
    assert (result.verdict.best, result.verdict.best_exact) == ("dense:dtype=bf16", "dense:dtype=bf16")
    assert result.verdict.break_even == ()


def test_a_baseline_that_rounds_is_no_choice_that_an_error_could_rule_out():
    result = run("dense:dtype=bf16", "fp16", max_error=1e-3)
    assert result.verdict.best_exact == "dense:dtype=bf16"


def test_another_dense_is_a_candidate_as_any_other():
    rounded, full = run("dense:dtype=bf16", "dense", library="ideal").rows
    assert full.speedup_vs_dense == pytest.approx(rounded.time_s.total / full.time_s.total)
    assert full.speedup_vs_dense < 0.7
    full, rounded = run("dense", "dense:dtype=bf16").rows
    assert (full.speedup_vs_dense, rounded.ratio) == (1.0, 2.0)
    assert run("dense", "dense:dtype=bf16").verdict.best_lossy == "dense:dtype=bf16"


def test_break_even_is_with_the_dense_that_was_asked_for():
    (at_full,) = run("dense", "union").verdict.break_even
    (at_half,) = run("dense:dtype=bf16", "union").verdict.break_even
    assert at_half.reducer == at_full.reducer == "union"
    # A dense of half the bytes is beaten up to lower rates alone.
    assert at_half.at_Bps < 0.7 * at_full.at_Bps
