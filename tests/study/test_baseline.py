"""What all reducers are compared with: the all-reduce in the type that gradients are held in."""

import pytest

import s2sim

SMALL = "synthetic:density=0.05,overlap=0.5,rows=20000,width=8,dense=4000"


def run(*reducers, **options):
    return s2sim.run("fat-tree", workers=16, trace=SMALL, reducers=reducers, **options)


def test_half_precision_gains_nothing_over_gradients_in_bf16():
    result = run("fp16", dtype="bf16")
    dense, half = result.rows
    assert (dense.reducer, dense.baseline) == ("dense", True)
    assert (dense.speedup_vs_dense, dense.ratio, half.ratio) == (1.0, 1.0, 1.0)
    # The same bytes, and two casts on top.
    assert half.time_s.total == pytest.approx(dense.time_s.total + half.time_s.encode + half.time_s.decode, rel=1e-9)
    assert result.verdict.decision == "do not compress"
    assert (result.verdict.best, result.verdict.best_exact) == ("dense", "dense")
    assert result.verdict.break_even == ()


@pytest.mark.parametrize("reducers", [("bf16", "fp16"), ("dense:dtype=bf16",), ("bf16", "dense")])
def test_dense_in_the_type_of_the_gradients_is_a_row_and_the_baseline(reducers):
    rows = {row.reducer: row for row in run(*reducers, break_even=False).rows}
    assert [name for name, row in rows.items() if row.baseline] == ["dense"]
    for name, row in rows.items():
        assert row.speedup_vs_dense == pytest.approx(rows["dense"].time_s.total / row.time_s.total), name
        assert row.judgement.exact == (name == "dense")


@pytest.mark.slow
def test_dense_in_another_type_is_a_candidate_as_any_other():
    result = run("dense:dtype=bf16")
    rounded = result.rows[1]
    assert (rounded.ratio, result.verdict.best_lossy) == (2.0, "dense:dtype=bf16")
    assert run("dense:dtype=bf16", max_error=1e-3).verdict.best == "dense"
    # Gradients in bf16: it is dense, and gradients in fp32 have to be asked for.
    assert [row.baseline for row in run("dense:dtype=bf16", dtype="bf16").rows] == [True]
    assert [row.reducer for row in run("dense:dtype=fp32", dtype="bf16").rows] == ["dense", "dense:dtype=fp32"]


@pytest.mark.slow
def test_break_even_is_with_dense_in_the_type_of_the_gradients():
    (at_full,) = run("union").verdict.break_even
    (at_half,) = run("union", dtype="bf16").verdict.break_even
    assert at_half.reducer == at_full.reducer == "union"
    assert at_half.at_Bps != at_full.at_Bps
