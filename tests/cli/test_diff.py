"""``s2sim diff``: which inputs and figures differ between two results."""

import csv
import io

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
    assert "more: --csv - has all." in screen


def test_a_result_differs_in_nothing_from_itself(s2sim, results):
    assert s2sim("diff", results[0], results[0])[1] == "No inputs that differ.\nNo figures that differ.\n"


def test_other_files_are_refused(fails, tmp_path):
    (tmp_path / "x.json").write_text("[1]")
    assert "is no result" in fails("diff", tmp_path / "x.json", tmp_path / "x.json")
    assert "y.json" in fails("diff", tmp_path / "y.json", tmp_path / "x.json")
