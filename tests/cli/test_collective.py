import json

import pytest

BASE = ("collective", "all_reduce", "--topology", "single-switch", "--workers", "16", "--size", "100MiB")


def test_json_has_the_pinned_keys_and_agrees_with_itself(s2sim):
    code, out, err = s2sim(*BASE, "--algorithm", "ring", "--json", "-")
    assert (code, err) == (0, "")
    value = json.loads(out)
    pinned = {"time_s", "algbw_Bps", "busbw_Bps", "lower_bound_s", "algorithm", "bytes_per_rank", "bottlenecks"}
    assert pinned <= set(value)
    assert value["algorithm"] == "ring"
    assert value["algbw_Bps"] == pytest.approx(100 * 2**20 / value["time_s"])
    assert value["busbw_Bps"] == pytest.approx(value["algbw_Bps"] * 2 * 15 / 16)
    assert value["bytes_per_rank"] == 2 * 15 * 100 * 2**20 // 16
    assert value["time_s"] >= value["lower_bound_s"]
    assert {"link", "bytes", "utilisation", "flows", "shared_by"} == set(value["bottlenecks"][0])


def test_text_shows_bandwidth_bound_and_links(s2sim):
    code, out, err = s2sim(*BASE)
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith("single-switch: 16 nodes")
    for part in ("algbw", "busbw", "GB/s", "Gbps", "lower bound", "time / bound", "algorithm", "busiest links"):
        assert part in out
    assert "\x1b" not in out


def test_quiet_is_one_line(s2sim):
    _, out, _ = s2sim(*BASE, "--quiet")
    assert out.count("\n") == 1
    assert out.startswith("all_reduce of 104.9 MB over 16 workers")


def test_both_spellings_of_a_kind(s2sim):
    first = s2sim(*BASE, "--json", "-")
    assert s2sim("collective", "all-reduce", *BASE[2:], "--json", "-") == first


def test_json_goes_to_a_file_beside_the_text(s2sim, tmp_path):
    path = tmp_path / "out.json"
    _, out, _ = s2sim(*BASE, "--json", path)
    assert json.loads(path.read_text())["workers"] == 16
    assert "busbw" in out


def test_overrides_change_the_time(s2sim):
    fast = json.loads(s2sim(*BASE, "--json", "-")[1])
    slow = json.loads(s2sim(*BASE, "--set", "nic.rate=10Gbps", "--json", "-")[1])
    assert slow["time_s"] > 5 * fast["time_s"]


@pytest.mark.parametrize("library", [[], ["--library", "nccl"]])
def test_what_is_named_as_faster_is_so_when_it_is_asked_for(s2sim, library):
    asked = ("collective", "all_gather", "--topology", "dgx-h100", "--workers", "64", "--size", "4B", *library)
    value = json.loads(s2sim(*asked, "--json", "-")[1])
    faster = value["faster"]
    assert faster["time_s"] < 0.9 * value["time_s"]
    assert f"by {faster['algorithm']}" in s2sim(*asked)[1]
    named = json.loads(s2sim(*asked, "--algorithm", faster["algorithm"], "--json", "-")[1])
    assert named["time_s"] == faster["time_s"]
    assert named.get("protocol") == faster["protocol"]
    assert "faster" not in named


def test_placement_matters_where_nodes_have_several_gpus(s2sim):
    base = ("collective", "all_reduce", "--topology", "fat-tree", "--workers", "16", "--size", "100MiB")
    near = json.loads(s2sim(*base, "--algorithm", "ring", "--json", "-")[1])
    far = json.loads(s2sim(*base, "--algorithm", "ring", "--placement", "round-robin", "--json", "-")[1])
    assert far["time_s"] > near["time_s"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("collective", "all_reduc", *BASE[2:]), "all_reduce"),
        (("collective", "ALL_REDUCE", *BASE[2:]), "all_reduce"),
        ((*BASE[:-1], "100"), "unit"),
        ((*BASE[:-1], "1.5B"), "1.5B"),
        ((*BASE[:-1], "abc"), "abc"),
        ((*BASE[:-1], "1e400MiB"), "at most 2^60 bytes"),
        ((*BASE[:5], "0", *BASE[6:]), "at least 1"),
        ((*BASE[:5], "x", *BASE[6:]), "'x'"),
        ((*BASE, "--algorithm", "rign"), "ring"),
        ((*BASE, "--algorithm", "double-binary-tree:chunk=3"), "chunks"),
        (("collective", "all_gather", *BASE[2:], "--algorithm", "double-binary-tree"), "ring"),
        ((*BASE, "--placement", "x"), "round-robin"),
        ((*BASE, "--set", "x"), "field=value"),
    ],
)
def test_bad_input_is_told_in_one_line(fails, arguments, part):
    assert part in fails(*arguments)
