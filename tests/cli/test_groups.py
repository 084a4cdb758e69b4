"""Groups of ranks beside each other on the command line."""

import json

import numpy as np
import pytest

from s2sim.errors import S2SimWarning
from s2sim.traffic.collective_run import run_collective

BASE = ("collective", "all_reduce", "--topology", "dgx-h100", "--size", "64MiB")


def found(s2sim, *more):
    code, out, err = s2sim(*BASE, *more, "--json", "-")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_all_groups_at_once_against_one_alone(s2sim):
    """Eight groups with a rank in each of eight nodes: on one interface a node they take eight times as long as one."""
    shared = ("--workers", "64", "--algorithm", "ring:channels=1", "--groups", "tp=8,dp=rest")
    each = found(s2sim, *shared)
    assert each["groups"] == {"tp": 8, "pp": 1, "dp": 8, "groups": 8, "alone_s": each["time_s"], "contention": 1.0}
    assert each["workers"] == 8
    assert len(each["rank_finish_s"]) == 8
    one = found(s2sim, *shared, "--set", "nic.count=1")
    assert one["groups"]["contention"] == pytest.approx(8, rel=0.05)
    assert one["time_s"] == pytest.approx(8 * one["groups"]["alone_s"], rel=0.05)
    for value in (each, one):
        assert value["lower_bound_s"] <= value["time_s"]
    assert one["lower_bound_s"] == pytest.approx(2 * 7 / 8 * 8 * 64 * 2**20 / 50e9, rel=1e-6)


def test_links_are_shared_by_workers_of_all_groups(s2sim):
    value = found(s2sim, "--workers", "32", "--algorithm", "ring", "--groups", "tp=8", "--set", "nic.count=1")
    busiest = value["bottlenecks"][0]
    assert busiest["link"] == "node0.nic0.out"
    assert [(flow["src"], flow["dst"]) for flow in busiest["shared_by"]] == [(rank, 8 + rank) for rank in range(8)]


def test_the_screen_says_what_one_group_takes(s2sim):
    code, out, err = s2sim(*BASE, "--workers", "64", "--groups", "tp=4,pp=2,dp=rest")
    assert (code, err) == (0, "")
    assert "over 8 workers in each of 8 groups (tp=4, pp=2)" in out
    assert "one group alone" in out
    assert "all 8 at once take 1.00x" in out


def test_terms_add_up_beside_other_groups(s2sim):
    for library in ((), ("--library", "nccl")):
        value = found(s2sim, "--workers", "32", "--groups", "tp=2", "--set", "nic.count=1", "--terms", *library)
        assert sum(term["time_s"] for term in value["terms"]) == pytest.approx(value["time_s"], abs=1e-12)


@pytest.mark.slow
def test_packets_agree(s2sim):
    value = found(s2sim, "--workers", "32", "--groups", "tp=4", "--cross-check", "--packet-bytes", "16KiB")
    assert abs(value["cross_check"]["difference"]) < 0.02


def test_groups_decide_the_hash(s2sim):
    hashes = [
        found(s2sim, "--workers", "32", *more)["spec_sha256"]
        for more in (("--groups", "tp=8"), ("--groups", "tp=8,pp=1,dp=4"), ("--groups", "tp=4"))
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_one_group_of_all_is_warned_of():
    asked = {"workers": 16, "size_bytes": 2**20}
    with pytest.warns(S2SimWarning, match="--groups tp=1 changes nothing here: one group has all ranks"):
        found = run_collective("all_reduce", "dgx-h100", groups="tp=1", **asked)
    assert "groups" not in found.to_json()
    assert found.time_s == run_collective("all_reduce", "dgx-h100", **asked).time_s


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (("--groups", "tp=3"), "32 workers do not divide by tp=3"),
        (("--groups", "tp=0"), "tp=0 must be at least 1"),
        (("--groups", "tp=8,pp=2,dp=4"), "are 64 ranks and not 32: write dp=rest"),
        (("--groups", "tp=8,cp=2"), "there are no 'cp' groups"),
        (("--groups", "tp=8,tp=8"), "tp stands twice"),
        (("--groups", "tp=8", "--show"), "--groups is of many collectives, and --show of one"),
        (("--groups", "tp=8", "--timeline", "x.json"), "--timeline of one"),
        (("--groups", "tp=8", "--fault", "jitter:latency=5us"), "leave either out"),
        (("--groups", "tp=8", "--algorithm", "parameter-server:on=nodes"), "servers on GPUs of their own"),
    ],
)
def test_groups_that_cannot_be(fails, more, part):
    assert part in fails(*BASE, "--workers", "32", *more)


def test_python_takes_groups():
    result = run_collective(
        "all_reduce", "dgx-h100", workers=32, size_bytes=2**20, groups="tp=8", overrides=("nic.count=1",)
    )
    assert result.groups.groups == 8
    assert result.groups.contention > 1
    assert np.isclose(result.time_s, result.groups.alone_s * result.groups.contention)
