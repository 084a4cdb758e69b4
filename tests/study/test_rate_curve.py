"""The curve of speed-ups against a rate, beside runs at that rate."""

import pytest

import s2sim
from s2sim.errors import OptionError
from s2sim.experiment.choice import WORTHWHILE
from s2sim.experiment.rate_curve import rate_curves
from s2sim.experiment.spec import RunSpec

SMALL = "synthetic:density=0.02,overlap=0.5,rows=2000,width=16"
REDUCERS = ("fp16", "topk:density=0.01", "union", "s2:cells=1")
FAULT = "slow-link:link=node0.nic0.out,factor=0.5"
FAULTY = {"faults": (FAULT,)}
GBPS = 1.25e8
QUICK = {"break_even": False, "thorough": False}


def speedups(result):
    return {row.option_string: row.speedup_vs_dense for row in result.rows if row.reducer != "dense"}


@pytest.mark.parametrize(
    "options",
    [{"compute": "1ms"}, *(pytest.param(each, marks=pytest.mark.slow) for each in ({}, {"library": "nccl"}, FAULTY))],
)
def test_at_a_rate_the_curve_is_what_a_run_at_that_rate_says(options):
    spec = RunSpec("fat-tree", (4, 8), trace=SMALL, reducers=REDUCERS, **options)
    rates_Gbps = (10, 100, 400)
    curves = rate_curves(spec, [rate * GBPS for rate in rates_Gbps])
    assert (curves.field, curves.workers, curves.compute) == ("nic.rate", 8, "compute" in options)
    assert tuple(curves.speedups) == REDUCERS
    for number, rate in enumerate(rates_Gbps):
        overrides = (f"nic.rate={rate}Gbps",)
        result = s2sim.run(
            "fat-tree", workers=8, trace=SMALL, reducers=REDUCERS, overrides=overrides, **QUICK, **options
        )
        assert {name: values[number] for name, values in curves.speedups.items()} == speedups(result)


@pytest.mark.slow
def test_warm_reducers_carry_over_as_in_a_run():
    overrides = ("nic.rate=100Gbps",)
    options = {"trace": "lstm-lm-steps", "reducers": ("s2:cells=1,warm=true",)}
    result = s2sim.run("single-switch", workers=4, overrides=overrides, **options)
    curves = rate_curves(RunSpec("single-switch", (4,), **options), [100 * GBPS])
    assert {name: values[0] for name, values in curves.speedups.items()} == speedups(result)


@pytest.mark.slow
def test_the_curve_crosses_what_is_worthwhile_at_the_break_even_of_the_run():
    result = s2sim.run("fat-tree", workers=8, trace=SMALL, reducers=REDUCERS)
    assert result.verdict.break_even
    for crossing in result.verdict.break_even:
        rates = [crossing.at_Bps * factor for factor in (0.99, 1.01)]
        before, after = rate_curves(result.spec, rates).speedups[crossing.reducer]
        assert (before > WORTHWHILE > after) if crossing.pays == "below" else (before < WORTHWHILE < after)


def test_inside_one_node_the_rate_is_that_of_the_links_there():
    assert rate_curves(RunSpec("fat-tree", (4,), trace=SMALL, reducers=("union",)), [GBPS]).field == "nvlink.rate"


def test_what_goes_beyond_the_recording_is_marked():
    options = {"trace": "cnn", "reducers": ("fp16",)}
    assert rate_curves(RunSpec("fat-tree", (9,), **options), [GBPS]).extrapolated
    assert rate_curves(RunSpec("fat-tree", (8,), scale_to="1M", **options), [GBPS]).extrapolated
    assert not rate_curves(RunSpec("fat-tree", (8,), **options), [GBPS]).extrapolated


@pytest.mark.parametrize(
    ("workers", "rates", "message"),
    [
        (1, [GBPS], "1 worker, whom no rate limits"),
        (8, [], "at least one"),
        (8, [GBPS, 0.0], "above 0"),
        (8, [float("inf")], "above 0"),
        (8, [float("nan")], "above 0"),
    ],
)
def test_mistakes_are_told(workers, rates, message):
    with pytest.raises(OptionError, match=message):
        rate_curves(RunSpec("fat-tree", (workers,), trace=SMALL), rates)
