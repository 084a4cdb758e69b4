"""The law of choice over real runs: what may be recommended, worked out anew from rows, is what the verdict says."""

from statistics import median_low

import pytest

import s2sim

MANY = ("union", "union:prefetch=true", "owner-reduce", "s2-exact", "s2:rows=3,cells=4", "fp16", "topk:density=0.01")
DENSE_ROWS = "synthetic:density=0.5,rows=300,width=8,dense=100"
SPARSE_ROWS = "synthetic:density=0.01,rows=20000,width=16,overlap=0.5,tail=1.5"
RUNS = {
    "small": {"topology": "single-switch", "workers": 4, "trace": DENSE_ROWS},
    "sparse": {"topology": "single-switch", "workers": 4, "trace": SPARSE_ROWS},
    "one lossy": {"topology": "fat-tree", "workers": 8, "trace": SPARSE_ROWS, "reducers": ["topk", "fp16"]},
    "one exact": {"topology": "ring", "workers": 3, "trace": SPARSE_ROWS, "reducers": ["union"]},
    "assumption": {"topology": "fat-tree", "workers": 3, "trace": SPARSE_ROWS, "reducers": ["union:prefetch=true"]},
    "allowed": {"topology": "tcp-10g", "workers": 8, "trace": "ncf", "max_error": 0.2},
    "hardly allowed": {"topology": "tcp-10g", "workers": 8, "trace": "ncf", "max_error": 1e-5},
    "slow": {"topology": "fat-tree", "workers": 8, "trace": "ncf", "overrides": ("nic.rate=1Gbps",)},
    "fast": {"topology": "rail-optimised", "workers": 16, "trace": "ncf", "library": "ideal"},
    "compute": {"topology": "fat-tree", "workers": 8, "trace": "ncf", "compute": "20ms"},
    "hidden": {"topology": "fat-tree", "workers": 8, "trace": "ncf", "compute": "200ms"},
    "bf16": {"topology": "fat-tree", "workers": 8, "trace": "ncf", "reducers": ["dense:dtype=bf16", "fp16", "union"]},
    "steps": {"topology": "fat-tree", "workers": 4, "trace": "lstm-lm-steps", "steps": 3},
    "scaled": {"topology": "fat-tree", "workers": 8, "trace": "ncf", "scale_to": "30M"},
    "of a model": {"topology": "torus", "workers": 8, "trace": "ncf", "model": "gnmt-8", "reducers": ["union", "fp16"]},
    "more ranks": {"topology": "fat-tree", "workers": (2, 8), "trace": DENSE_ROWS},
}


def time_s(row):
    phase_s = median_low(step.total_s for step in row.steps) if row.steps else row.time_s.total
    return phase_s + (0.0 if row.iteration_s is None else row.iteration_s - row.time_s.total)


def longest_s(row):
    """Return the time if the gradients are as far off as was found."""
    doubt = 1.0 if row.extrapolated is None else row.extrapolated.doubt
    phase_s = median_low(step.total_s for step in row.steps) if row.steps else row.time_s.total
    return time_s(row) + (doubt - 1) * phase_s


def is_exact(row):
    return row.lossless or (row.error.relative_l2 is not None and row.error.relative_l2 <= 1e-6)


def loss(row):
    return 0.0 if is_exact(row) else row.error.relative_l2


def is_able(row, max_error):
    """Return whether the error of a row allows it to be recommended."""
    if row.lossless:
        return True
    errors = [row.error.relative_l2, row.error_compressed.relative_l2]
    layers = [error.relative_l2 for error in row.error_per_layer.values()]
    return (
        row.error.relative_l2 is not None
        and all(error is None or error < 1 for error in errors)
        and all(error is None or error <= 1 + 1e-6 for error in layers)
        and row.residual_trend != "diverges"
        and (max_error is None or row.error.relative_l2 <= max_error)
    )


def may_be_recommended(rows, max_error):
    """Return what may be used exactly, what with an error, and what is faster than dense, all as option strings."""
    dense = next(row for row in rows if row.name == "dense")
    able = [row for row in rows if row is not dense and is_able(row, max_error)]
    unbeaten = [
        row
        for row in able
        if not any(
            time_s(other) <= time_s(row)
            and loss(other) <= loss(row)
            and (time_s(other), loss(other)) != (time_s(row), loss(row))
            and (other.assumes is None or row.assumes is not None)
            # What gains for sure is not given up for what may not gain.
            and (other is dense or longest_s(other) < time_s(dense) or longest_s(row) >= time_s(dense))
            for other in [*able, dense]
        )
    ]
    sure = [row for row in unbeaten if longest_s(row) < time_s(dense)]
    gaining = [row for row in sure if is_exact(row) and time_s(row) * 1.01 <= time_s(dense)]
    exact = [row for row in gaining if time_s(row) <= 1.01 * min(map(time_s, gaining))]
    quickest_s = min(time_s(row) for row in [*sure, dense] if row is dense or is_exact(row))
    lossy = [row for row in sure if not is_exact(row) and time_s(row) * 1.01 <= quickest_s]
    lossy = [row for row in lossy if row.assumes is None] or lossy
    if max_error is None:
        lossy = [row for row in lossy if loss(row) == min(map(loss, lossy))]
    else:
        lossy = [row for row in lossy if time_s(row) <= 1.01 * min(map(time_s, lossy))]
    faster = [row for row in able if time_s(row) < time_s(dense)]
    return tuple([row.option_string for row in found] for found in (exact, lossy, faster))


# One of each decision, one with what is assumed, one in a type of two bytes and one with a limit of the error.
QUICK = ("small", "sparse", "one lossy", "one exact", "assumption", "bf16")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in RUNS])
def test_the_verdict_is_what_rows_alone_allow(name):
    options = {"reducers": MANY, "break_even": False} | RUNS[name]
    max_error = options.get("max_error")
    result = s2sim.run(options.pop("topology"), **options)
    for verdict in result.verdicts:
        rows = [row for row in result.rows if row.workers == verdict.workers]
        dense = next(row.option_string for row in rows if row.name == "dense")
        exact, lossy, faster = may_be_recommended(rows, max_error)
        wanted = "use" if exact or lossy else "undecided" if faster else "do not compress"
        assert verdict.decision == wanted
        assert verdict.best_exact in (exact or [dense])
        assert verdict.best in (exact or lossy or [dense])
        best = next(row for row in rows if row.option_string == verdict.best)
        assert verdict.assumes == best.assumes
        allowed = lossy
        if best.assumes is not None:
            assert best.assumes in verdict.lines[0]
            sober, sober_lossy, _ = may_be_recommended([row for row in rows if row.assumes is None], max_error)
            assert verdict.without_assumption in (sober or sober_lossy or [dense])
            allowed = lossy or sober_lossy
        else:
            assert verdict.without_assumption is None
        assert verdict.best_lossy in (allowed or [None])
        for told in {verdict.best, verdict.best_lossy, verdict.without_assumption} - {None, dense}:
            assert told in verdict.lines[0]


@pytest.mark.slow
def test_the_runs_have_every_decision():
    decisions = {
        verdict.decision
        for name in ("small", "sparse", "hidden")
        for verdict in s2sim.run(
            **{"reducers": ["union"], "break_even": False} | RUNS[name] | {"reducers": ["union"]}
        ).verdicts
    }
    assert decisions == {"use", "undecided", "do not compress"}


def test_dense_by_another_schedule_is_no_compressor():
    asked = {"topology": "single-switch", "workers": 8, "trace": DENSE_ROWS, "collective": "ring", "library": "ideal"}
    result = s2sim.run(asked.pop("topology"), reducers=["dense:collective=halving-doubling"], **asked)
    dense, other = result.rows
    assert time_s(other) < time_s(dense)
    assert other.judgement.rejected.startswith("dense by another schedule")
    assert result.verdict.decision == "do not compress"
