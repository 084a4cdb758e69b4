"""``s2sim diff``: which inputs and figures differ between two results."""

import csv
import io
import json
from pathlib import Path

import pytest

from s2sim.cli.main import main

RUN = ("run", "--topology", "tcp-10g", "--workers", "8", "--reducer", "union", "--no-break-even", "-q", "--json")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    paths = [folder / "a.json", folder / "b.json"]
    for path, rate in zip(paths, ("10Gbps", "20Gbps"), strict=True):
        assert main([*RUN, str(path), "--set", f"nic.rate={rate}"]) == 0
    return paths


def test_the_input_and_what_it_changed_are_named(s2sim, results):
    code, text, _ = s2sim("diff", *results, "--csv", "-")
    rows = {row["where"]: row for row in csv.DictReader(io.StringIO(text))}
    assert code == 0
    assert (rows["spec.overrides.[0]"]["a"], rows["spec.overrides.[0]"]["b"]) == ("nic.rate=10Gbps", "nic.rate=20Gbps")
    bound = rows["results.[8 dense].lower_bound_s"]
    assert float(bound["b_over_a"]) == pytest.approx(0.5)
    assert "results.[8 union].bytes_sent_per_rank" not in rows
    screen = s2sim("diff", *results, "--most", 3)[1]
    assert "inputs that differ" in screen
    assert "46 more figures: --csv - has all." in screen


def test_a_row_that_one_result_lacks_is_shown(s2sim, tmp_path, results):
    value = json.loads(results[0].read_text("utf-8"))
    value["results"] = [row for row in value["results"] if row["name"] != "union"]
    (tmp_path / "fewer.json").write_text(json.dumps(value), "utf-8")
    assert "[8 union]" in s2sim("diff", results[0], tmp_path / "fewer.json", "--most", "50")[1]


def test_a_result_differs_in_nothing_from_itself(s2sim, results):
    assert s2sim("diff", results[0], results[0])[1] == "No inputs that differ.\nNo figures that differ.\n"
    assert s2sim("diff", results[0], results[0], "--csv", "-")[1] == "where,a,b,b_over_a\n"


def rows_of(s2sim, *paths):
    text = s2sim("diff", *paths, "--csv", "-")[1]
    return {row["where"]: row for row in csv.DictReader(io.StringIO(text))}


def test_a_file_that_changed_is_an_input_that_differs(s2sim, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hardware = 'gpu = "v100"\nlibrary = "nccl"\nnode.gpus = 1\npcie = { rate = "12GB/s", latency = "1us" }\n'
    network = 'nic = { rate = "10Gbps", latency = "1us" }\nfabric = { kind = "graph", file = "net.edges" }\n'
    Path("net.toml").write_text(hardware + network)
    for name, latency, places in (("a", "30us", "0 0\n1 0\n"), ("b", "60us", "1 0\n0 0\n")):
        Path("net.edges").write_text("".join(f"{host} s 10Gbps {latency}\n" for host in "xyz"))
        Path("places").write_text(places)
        of_files = ("--topology", "./net.toml", "--workers", "2", "-q", "--json")
        assert s2sim("run", "--reducer", "union", "--no-break-even", *of_files, f"run-{name}.json")[0] == 0
        size = ("--size", "1MiB", "--placement", "./places")
        assert s2sim("collective", "all_reduce", *size, *of_files, f"collective-{name}.json")[0] == 0
    inputs = "provenance.inputs.files"
    found = rows_of(s2sim, "run-a.json", "run-b.json")
    assert [where for where in found if ".inputs." in where] == [f"{inputs}.net.edges"]
    found = rows_of(s2sim, "collective-a.json", "collective-b.json")
    assert {where for where in found if ".inputs." in where} == {f"{inputs}.net.edges", f"{inputs}.places"}
    assert "No inputs" not in s2sim("diff", "collective-a.json", "collective-b.json")[1]


def test_rows_of_other_workers_meet_by_their_reducers(s2sim, tmp_path, results):
    for workers in ("4", "4,8"):
        assert s2sim(*RUN, tmp_path / f"{workers}.json", "--workers", workers)[0] == 0
    found = rows_of(s2sim, results[0], tmp_path / "4.json")
    assert 0 < float(found["results.[union].time_s.total"]["b_over_a"]) != 1
    assert "results.[4 union]" in rows_of(s2sim, results[0], tmp_path / "4,8.json")


def test_the_hash_of_an_input_stands_for_it_where_nothing_else_does(s2sim, tmp_path, results):
    changed = json.loads(results[0].read_text())
    for name in ("trace", "topology"):
        changed["provenance"]["inputs"][name]["sha256"] = "0"
    changed["provenance"]["inputs"]["topology"]["name"] = "other"
    (tmp_path / "c.json").write_text(json.dumps(changed))
    found = rows_of(s2sim, results[0], tmp_path / "c.json")
    assert set(found) == {"provenance.inputs.trace.sha256", "provenance.inputs.topology.name"}


def test_the_answer_and_the_times_that_reducers_are_compared_by_stand_first(s2sim, results):
    lines = s2sim("diff", *results)[1].splitlines()
    figures = lines[lines.index("figures that differ") + 3 :]
    first = [line.split("]")[-1].split()[0] for line in figures[:3]]
    assert set(first) == {".time_s.total", ".speedup_vs_dense"}, figures


def test_results_of_two_commands_are_refused_and_a_narrow_terminal_is_no_error(
    fails, s2sim, tmp_path, results, monkeypatch
):
    asked = ("--topology", "tcp-10g", "--workers", "4", "--size", "1MiB", "-q", "--json", tmp_path / "c.json")
    assert s2sim("collective", "all_reduce", *asked)[0] == 0
    assert "results of different commands" in fails("diff", results[0], tmp_path / "c.json")
    for columns in ("20", "40"):
        monkeypatch.setenv("COLUMNS", columns)
        assert s2sim("diff", *results)[0] == 0


def test_other_files_are_refused(fails, tmp_path):
    (tmp_path / "x.json").write_text("[1]")
    assert "is no result" in fails("diff", tmp_path / "x.json", tmp_path / "x.json")
    assert "y.json" in fails("diff", tmp_path / "y.json", tmp_path / "x.json")
