"""The same question without faults and on other hardware, beside runs there."""

import json

import pytest

import s2sim
from s2sim.errors import S2SimError

SMALL = {"workers": 8, "trace": "synthetic:density=0.02,overlap=0.5,rows=2000,width=16", "reducers": ["union", "fp16"]}
QUICK = {"break_even": False, "thorough": False}


def compared(result):
    return {row.reducer: row.judgement.time_s for row in result.rows}


def test_with_a_fault_the_healthy_cluster_is_beside_it():
    faults = ("slow-link:link=node0.nic0.out,factor=0.5",)
    result = s2sim.run("fat-tree", **SMALL, **QUICK, faults=faults)
    (healthy,) = result.alternatives
    alone = s2sim.run("fat-tree", **SMALL, **QUICK)
    assert (healthy.name, healthy.time_s) == ("without faults", compared(alone))
    assert (healthy.decision, healthy.best) == (alone.verdict.decision, alone.verdict.best)
    assert compared(result)["dense"] > healthy.time_s["dense"]
    assert "Without the faults: dense" in str(result)
    assert alone.alternatives == ()


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        (SMALL, "nic.count=2,nic.rate=200Gbps"),
        # Other nodes: reducers run anew.
        pytest.param(SMALL | {"reducers": ["node-union"]}, "node.gpus=2", marks=pytest.mark.slow),
        pytest.param(
            {"workers": 8, "profile": "resnet-18", "reducers": ["fp16"], "discipline": "mg-wfbp"},
            "nic.rate=1Gbps",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_other_hardware_gives_what_a_run_with_it_gives(options, instead):
    overrides = ("nic.latency=2us",)
    result = s2sim.run("fat-tree", **options, **QUICK, overrides=overrides, instead=[instead])
    (other,) = result.alternatives
    there = s2sim.run("fat-tree", **options, **QUICK, overrides=(*overrides, *instead.split(",")))
    assert other.overrides == there.spec.overrides
    assert other.time_s == compared(there)
    assert (other.decision, other.best) == (there.verdict.decision, there.verdict.best)
    assert f"With {instead}: dense" in str(result).replace("\n", " ")
    assert type(result).load(json.dumps(result.to_json())).alternatives == result.alternatives


def test_an_answer_elsewhere_doubts_extrapolated_gradients_as_a_run_there_does():
    options = {"workers": 8, "trace": "ncf", "scale_to": "50M", "reducers": ["omnireduce"]}
    (other,) = s2sim.run("dgx-a100", **options, **QUICK, instead=["nvlink.rate=50Gbps"]).alternatives
    there = s2sim.run("dgx-a100", **options, **QUICK, overrides=("nvlink.rate=50Gbps",))
    assert other.time_s == compared(there)
    assert (other.decision, other.best) == (there.verdict.decision, there.verdict.best)


@pytest.mark.slow
def test_what_cannot_be_checked_here_is_in_no_answer_elsewhere():
    options = {"workers": 12, "trace": "ncf", "scale_to": "700000", "reducers": ["union", "spardl:teams=3"]}
    result = s2sim.run("fat-tree", **options, **QUICK, instead=["node.gpus=2"])
    assert [each.reducer for each in result.refused] == ["spardl:teams=3"]
    assert set(result.alternatives[0].time_s) == {"dense", "union"}


def test_what_fewer_workers_cannot_check_runs_with_more():
    """Four ranks have no three teams; six have."""
    options = {"trace": "ncf", "scale_to": "700000", "reducers": ["union", "spardl:teams=3"]}
    several = s2sim.run("fat-tree", workers=(4, 6), **options, **QUICK)
    alone = s2sim.run("fat-tree", workers=6, **options, **QUICK)
    assert [(each.reducer, each.workers) for each in several.refused] == [("spardl:teams=3", 4)]
    assert {row.reducer: row.judgement.time_s for row in several.rows if row.workers == 6} == compared(alone)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"trace": "ncf", "model": "gnmt-8", "reducers": ["s2-exact"]}, {"profile": "ncf"}])
def test_several_numbers_of_workers_are_judged_as_each_alone_is(options):
    several = s2sim.run("dgx-h100", workers=(2, 16), **QUICK, **options)
    for workers, verdict in zip((2, 16), several.verdicts, strict=True):
        alone = s2sim.run("dgx-h100", workers=workers, **QUICK, **options)
        assert (verdict.decision, verdict.best) == (alone.verdict.decision, alone.verdict.best)
        assert [row for row in several.rows if row.workers == workers] == list(alone.rows)


def test_an_override_replaces_the_one_of_the_question():
    result = s2sim.run("fat-tree", **SMALL, **QUICK, overrides=("nic.rate=10Gbps",), instead=["nic.rate=40Gbps"])
    assert result.alternatives[0].overrides == ("nic.rate=40Gbps",)
    assert result.alternatives[0].time_s["dense"] < compared(result)["dense"]


@pytest.mark.slow
def test_another_gpu_computes_the_mini_batch_of_the_question():
    options = {"workers": 2, "profile": "gpt2", "reducers": ["fp16"]}
    result = s2sim.run("dgx-h100", **options, **QUICK, instead=["gpu=h200"])
    (other,) = result.alternatives
    # Alone it takes twice as many, as its memory holds them.
    there = s2sim.run("dgx-h100", **options, **QUICK, overrides=("gpu=h200",), batch=32)
    assert result.spec.batch is None
    assert other.time_s == compared(there)
    assert other.time_s["dense"] < 1.01 * compared(result)["dense"]
    assert other.batch == 32
    assert "With gpu=h200 and the mini-batch of 32 as here: dense" in str(result).replace("\n", " ")
    (stated,) = s2sim.run("dgx-h100", **options, **QUICK, instead=["gpu=h200"], batch=32).alternatives
    assert (stated.batch, stated.time_s) == (None, other.time_s)


def test_a_field_that_is_unknown_is_refused():
    with pytest.raises(S2SimError, match=r"unknown field 'nic\.foo'"):
        s2sim.run("fat-tree", **SMALL, **QUICK, instead=["nic.foo=2"])
