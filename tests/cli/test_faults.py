"""Faults on the command line."""

import json

import pytest

COLLECTIVE = ("collective", "all_reduce", "--topology", "fat-tree", "--workers", "32", "--size", "1MiB")


def test_a_line_says_what_each_fault_did(s2sim):
    faults = ("--fault", "fail-link:link=leaf0.up0,at=50us", "--fault", "jitter:latency=2us")
    code, out, err = s2sim(*COLLECTIVE, "--algorithm", "ring", *faults)
    assert (code, err) == (0, "")
    lines = [line.split("fault ")[1] for line in out.splitlines() if line.startswith("  fault ")]
    assert lines[0].startswith("fail-link:link=leaf0.up0,at=50us  ")
    assert lines[0].endswith(" messages took another way")
    assert lines[1].startswith("jitter:latency=2us                1,984 messages were late, by ")


@pytest.mark.slow
def test_json_holds_the_faults_and_what_they_did(s2sim, tmp_path):
    code, out, _ = s2sim(*COLLECTIVE, "--fault", "jitter:latency=2us", "--json", "-")
    assert code == 0
    value = json.loads(out)
    assert value["faults"] == ["jitter:latency=2us"]
    assert "messages were late" in value["fault_effects"][0]
    assert value["closed_form_s"] is None
    assert "faults" not in json.loads(s2sim(*COLLECTIVE, "--json", "-")[1])
    file = tmp_path / "transfers.csv"
    file.write_text("start_s,src,dst,bytes\n0,0,1,1000000\n0,2,9,1000000\n")
    arguments = ("flows", file, "--topology", "fat-tree", "--fault", "slow-link:link=node0.nic0.out,factor=0.5")
    value = json.loads(s2sim(*arguments, "--fault", "slow-rank:rank=2,delay=1ms", "--json", "-")[1])
    assert value["fault_effects"] == ["1 messages crossed it at 0.5 of its rate", "1 transfers start later"]
    assert "fault slow-link:link=node0.nic0.out,factor=0.5  1 messages crossed" in s2sim(*arguments)[1]


@pytest.mark.slow
def test_an_idle_fault_is_a_warning(process):
    done = process(*COLLECTIVE, "--fault", "slow-link:link=leaf0.up3,factor=0.5,at=5s")
    assert done.returncode == 0
    assert "s2sim: warning: --fault slow-link:link=leaf0.up3,factor=0.5,at=5s changes nothing here" in done.stderr


def test_refusals(fails):
    assert "did you mean 'jitter'" in fails(*COLLECTIVE, "--fault", "jiter:latency=2us")
    assert "did you mean 'leaf0.up1'" in fails(*COLLECTIVE, "--fault", "fail-link:link=leaf0.uup1")
    assert "rank 3 cannot reach rank 4 after node0.nic0.out failed at 2us" in fails(
        *COLLECTIVE, "--algorithm", "ring", "--fault", "fail-link:link=node0.nic0.out,at=2us"
    )
    assert "needs the fluid network" in fails(*COLLECTIVE, "--cross-check", "--fault", "jitter:latency=2us")
