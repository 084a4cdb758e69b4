"""What entries rest on: figures of messages, sweeps over clusters, and what is said where nothing can be trained."""

from dataclasses import replace
from math import prod

import pytest

from s2sim.claims import training_outcomes as in_loop
from s2sim.claims.grid import message_bytes, normal_gradient, sweep
from s2sim.claims.paper import Claim, PaperEffort, PaperPart, PaperTexts, Table, judge_within, on_both_bases
from s2sim.claims.papers import coded_messages
from s2sim.claims.papers.s2_reducer import in_the_loop
from s2sim.experiment.progress import SILENT
from s2sim.experiment.run import run
from s2sim.experiment.spec import RunSpec

SMALL = "synthetic:density=0.05,overlap=0.5,rows=600,width=4,dense=400"


def test_a_message_is_what_one_rank_sends():
    gradient = normal_gradient([(100, 10), (1000,)])
    assert message_bytes("dense", gradient) == 4 * 2000
    assert message_bytes("dgc-select:coding=distance16,density=0.01", gradient) == 20 * 6


def test_published_shapes_have_the_published_sizes():
    for name, (mib, _, _) in coded_messages._DGC.figures["mib"].items():
        elements = sum(map(prod, coded_messages._shapes(name)))
        assert 4 * elements / 2**20 == pytest.approx(mib, abs=0.005), name


def test_a_sweep_has_the_times_of_runs():
    spec = RunSpec.of("tcp-10g", workers=(8,), reducers=("dense", "union"), trace=SMALL)
    clusters = {"slow": ("nic.rate=1Gbps",), "fast": ("nic.rate=100Gbps",)}
    found = sweep(spec, clusters, PaperEffort(), SILENT)
    for name, overrides in clusters.items():
        rows = run("tcp-10g", workers=8, reducers=["union"], trace=SMALL, overrides=overrides, break_even=False).rows
        for row in rows:
            timed = found[name][row.option_string]
            assert timed.time_s == timed.iteration_s == row.time_s.total
            assert timed.error == row.error.relative_l2
    assert found["slow"]["dense"].time_s > found["fast"]["dense"].time_s


def test_tables_alone_leave_out_dense_layers():
    spec = RunSpec.of("tcp-10g", workers=(4,), reducers=("dense",), model="lstm")
    (timed,) = sweep(spec, {"here": ()}, PaperEffort(), SILENT, tables_only=True)["here"].values()
    (whole,) = sweep(spec, {"here": ()}, PaperEffort(), SILENT)["here"].values()
    table = 4 * 28869 * 650
    assert timed.sent_bytes == pytest.approx(2 * 3 / 4 * table, rel=1e-6)
    assert whole.sent_bytes > 2 * timed.sent_bytes


def test_without_the_extra_torch_claims_of_accuracy_say_so(monkeypatch):
    monkeypatch.setattr(in_loop, "find_spec", lambda _name: None)
    parts = [in_loop.in_the_loop(PaperTexts(name)) for name in ("random-block", "sbc", "dgc", "deepreduce")]
    for part in (in_the_loop, *parts):
        claims = part(PaperEffort(quick=True), SILENT).claims
        assert claims
        assert all(claim.judgement == "not testable" and "extra torch" in claim.rule for claim in claims)


def test_a_claim_of_time_is_judged_on_two_bases_of_cost():
    def part(effort, _progress):
        seconds = {"kernels": 1.0, "published": 2.0}[effort.basis]
        judged = [(name, f"{known} s", judge_within(seconds, known)) for name, known in (("a", 1), ("b", 9))]
        claims = (Claim(name, "", known, f"{seconds:.0f} s", judgement, "", "") for name, known, judgement in judged)
        return PaperPart(tuple(claims), (Table("times", ("s",), ((str(seconds),),)), Table("sizes", ("B",), ())))

    both = on_both_bases(part)
    found = both(PaperEffort(), SILENT)
    assert [(claim.judgement, claim.ours) for claim in found.claims] == [
        ("depends on the implementation", "1 s; 2 s with codecs as published code"),
        ("not reproduced", "1 s; 2 s with codecs as published code"),
    ]
    assert [table.title for table in found.tables] == ["times", "sizes", "times; codecs as published code"]
    alone = both(PaperEffort(codec_as="published"), SILENT)
    assert [claim.judgement for claim in alone.claims] == ["not reproduced", "not reproduced"]


def test_both_bases_of_cost_share_what_was_recorded():
    effort = PaperEffort(codec_as="kernels")
    spec = RunSpec.of("tcp-10g", workers=(2,), reducers=("dense", "topk:density=0.1"), trace=SMALL)
    kernels = sweep(spec, {"here": ()}, effort, SILENT)["here"]["topk:density=0.1"]
    (recorded,) = effort.recorded.values()
    published = sweep(spec, {"here": ()}, replace(effort, codec_as="published"), SILENT)["here"]["topk:density=0.1"]
    assert list(effort.recorded.values()) == [recorded]
    assert published.time_s > kernels.time_s
    assert (published.sent_bytes, published.error) == (kernels.sent_bytes, kernels.error)
